"""Drafters of version 2 on the native pass: against torch in float64, and to the bit in other company and threads."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from compiled import SETS, Piece, blocks_of, context_of, linears_of, needs_native, odd_spec, random_piece, same, use_set
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import Tensor

from paceline import native
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import DFlash2, DrafterSpec
from paceline.models.rounding import WHOLE_ROW, rounded
from paceline.models.transformer import prepare

pytestmark = needs_native

TOLERANCE = 5e-5
"""Of hidden states: as in test_network."""


def odd_drafter(seed: int) -> DrafterSpec:
    """Sizes at random: blocks and kernels of 1 to 7 rows, groups of any divisor of the width."""
    rng = random.Random(seed)
    block = replace(odd_spec(seed), qk_norm=True, tied_head=True)
    size = block.hidden_size
    group = rng.choice([each for each in range(1, size + 1) if size % each == 0])
    return tiny_drafter_spec(
        tiny_spec(hidden_size=size, vocab_size=block.vocab_size),
        block=block,
        causal=tuple(rng.random() < 0.5 for _ in range(block.num_layers)),
        v2=DFlash2(kernel_size=rng.randint(1, 7), group_size=group, selector_rank=4, selector_top_k=3),
    )


def pair(spec: DrafterSpec, seed: int = 0) -> tuple[Drafter, Drafter]:
    """A random drafter in float32, not prepared yet, and the same one in float64."""
    sizes = {"hidden_size": spec.block.hidden_size, "vocab_size": spec.block.vocab_size}
    targets = (tiny_transformer(tiny_spec(**sizes), seed, dtype) for dtype in (torch.float32, torch.float64))
    ours, theirs = (tiny_drafter(spec, target, seed) for target in targets)
    return ours, theirs


def native_one(spec: DrafterSpec, seed: int = 0) -> Drafter:
    drafter, _ = pair(spec, seed)
    prepare(drafter.head)
    prepare(drafter)
    return drafter


def pieces_of(spec: DrafterSpec, seed: int) -> list[Piece]:
    """Blocks of different lengths; the second is an anchor alone."""
    sizes = (1 + seed % 7, 11), (1, 0), (13, 3), (2, 5)
    vocab = spec.block.vocab_size
    return [random_piece(seed + number, vocab, *size, tree=False) for number, size in enumerate(sizes)]


@torch.inference_mode()
def states(drafter: Drafter, pieces: Sequence[Piece]) -> Tensor:
    """Of all rows of a pass; a piece has the same context in every pass and precision."""
    caches = [context_of(drafter, piece.past, piece.past) for piece in pieces]
    hidden: Tensor = drafter(*blocks_of(drafter, pieces, caches))
    return hidden


@torch.inference_mode()
def slots(drafter: Drafter, pieces: Sequence[Piece]) -> tuple[Tensor, Tensor]:
    caches = [context_of(drafter, piece.past, piece.past) for piece in pieces]
    return drafter.read(*blocks_of(drafter, pieces, caches))


def close(drafter: Drafter, oracle: Drafter, pieces: Sequence[Piece]) -> None:
    found = states(drafter, pieces)
    torch.testing.assert_close(found.double(), states(oracle, pieces), atol=TOLERANCE, rtol=0)
    hidden, logits = slots(drafter, pieces)
    ends = torch.tensor([len(piece.tokens) for piece in pieces]).cumsum(0).tolist()
    behind = [row for row in range(len(found)) if row not in (0, *ends)]
    assert torch.equal(hidden, found[behind])
    assert torch.equal(logits, drafter.logits(hidden))
    assert chosen(drafter, pieces) == logits.argmax(-1).tolist()


@torch.inference_mode()
def chosen(drafter: Drafter, pieces: Sequence[Piece]) -> list[int] | None:
    """The greatest of every slot, drawn in the pass; None where that is not native."""
    caches = [context_of(drafter, piece.past, piece.past) for piece in pieces]
    placed = blocks_of(drafter, pieces, caches)
    count = len(placed[0]) - len(pieces)
    return drafter.choose(*placed, native.Draws([1.0] * count, [0.0] * count, [0] * count))


@pytest.mark.parametrize("seed", range(24))
def test_any_spec(seed: int) -> None:
    spec = odd_drafter(seed)
    _, oracle = pair(spec, seed)
    close(native_one(spec, seed), oracle, pieces_of(spec, seed))


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("group", [1, 2, 8, 16, 24, 32, 96])
def test_groups_and_vectors(group: int, instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 96 channels: groups of less than a vector, of a whole one, and across two."""
    use_set(monkeypatch, instructions)
    spec = tiny_drafter_spec(tiny_spec(hidden_size=96), v2=DFlash2(3, group, 4, 3))
    close(native_one(spec), pair(spec)[1], pieces_of(spec, 3))


@pytest.mark.parametrize("group", [1, 7, 16, WHOLE_ROW])
@pytest.mark.parametrize("seed", range(3))
def test_int8_rounds_projections_too(seed: int, group: int) -> None:
    spec = odd_drafter(seed)
    drafter, oracle = pair(spec, seed)
    for mine, exact in zip(linears_of(drafter), linears_of(oracle), strict=True):
        mine.arithmetic = native.Arithmetic("weights", group)
        exact.weight = torch.nn.Parameter(rounded(mine.weight.detach(), group).double(), requires_grad=False)
    prepare(drafter)
    pieces = pieces_of(spec, seed)
    torch.testing.assert_close(states(drafter, pieces).double(), states(oracle, pieces), atol=TOLERANCE, rtol=0)


def test_kernels_that_pass_on_change_nothing() -> None:
    """Not a bit: the pass of version 1 adds the same products to the same sums."""
    first, _ = pair(tiny_drafter_spec(tiny_spec()))
    second, _ = pair(replace(first.spec, v2=DFlash2(3, 8, 4, 3)))
    second.load_state_dict(first.state_dict(), strict=False)
    assert second.couplings is not None
    for coupling in second.couplings:
        for part in (coupling.attention, coupling.mlp):
            part.base_kernel[:, 0], part.base_kernel[:, 1:] = 1, 0
            part.kernel_projection.weight.zero_()
    prepare(first)
    prepare(second)
    pieces = pieces_of(first.spec, 5)
    assert same(states(first, pieces), states(second, pieces))


WIDE = tiny_drafter_spec(
    tiny_spec(hidden_size=40),
    block=tiny_spec(hidden_size=40, intermediate_size=72, num_heads=6, head_dim=20, windows=(None, 6), tied_head=True),
    causal=(False, True),
    v2=DFlash2(kernel_size=4, group_size=10, selector_rank=4, selector_top_k=3),
)


@pytest.mark.parametrize("instructions", SETS)
def test_blocks_beside_it(instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_set(monkeypatch, instructions)
    drafter, pieces = native_one(WIDE), pieces_of(WIDE, 4)
    together = states(drafter, pieces)
    alone = [states(drafter, [piece]) for piece in pieces]
    assert same(torch.cat(alone), together)
    assert same(torch.cat(alone[::-1]), states(drafter, pieces[::-1]))


@pytest.mark.parametrize("instructions", SETS)
def test_rows_to_its_right(instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In layers that see only to the left, the first rows of a long block are a short one's."""
    use_set(monkeypatch, instructions)
    drafter = native_one(replace(WIDE, causal=(True, True)))
    whole = states(drafter, [random_piece(0, 64, 20, 9, tree=False)])
    for rows in range(1, 20):
        piece = random_piece(0, 64, 20, 9, tree=False)
        assert same(states(drafter, [Piece(piece.tokens[:rows], 9)]), whole[:rows])


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_threads(restored_threads: None) -> None:
    found, pieces = [], pieces_of(WIDE, 6)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(slots(native_one(WIDE), pieces))
    for hidden, logits in found[1:]:
        assert same(hidden, found[0][0])
        assert same(logits, found[0][1])
