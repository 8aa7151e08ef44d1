"""The drafter: which layers it is fed with, what its slots see, and that its fast form is its slow one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from scripted import drafter_of, zero_matrices
from tiny import fill_block, run_flat, tiny_cache, tiny_context, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import Tensor

from paceline.models.attention import Segment
from paceline.models.drafter import Drafter
from paceline.models.transformer import Transformer, prepare

CONTEXT, BLOCK, WINDOW = 14, 6, 5
MASK = 63


@pytest.fixture(scope="module")
def target() -> Transformer:
    return tiny_transformer(tiny_spec())


def slots(drafter: Drafter, features: Tensor, block: list[int]) -> Tensor:
    """Hidden states of the slots of a block behind the context."""
    return fill_block(drafter, tiny_context(drafter, features), block)


def random_features(drafter: Drafter, rows: int = CONTEXT) -> Tensor:
    return torch.randn(rows, drafter.fc.weight.shape[1], generator=torch.Generator().manual_seed(3)).double()


class TestTaps:
    """loading-01: tap i is the output of decoder layer i; a toy target whose layer l adds 10^-l."""

    LAYERS = 5

    @pytest.fixture
    def adding(self) -> Transformer:
        model = tiny_transformer(tiny_spec("llama", num_layers=self.LAYERS, out_bias=True))
        zero_matrices(model)
        for index, layer in enumerate(model.layers):
            layer.out.bias.data.fill_(10.0**-index)
        return model

    @pytest.mark.parametrize("taps", [(0,), (1, 3), (3, 1), (0, 1, 2, 3), (2, 2)])
    def test_a_tap_is_the_output_of_its_layer(self, adding: Transformer, taps: tuple[int, ...]) -> None:
        """Layers are counted from 0, the embedding is none of them, and taps keep their order."""
        features = run_flat(adding, [[4, 5, 6]], [tiny_cache(adding)], taps).features
        assert features is not None
        sums = [sum(10.0**-index for index in range(tap + 1)) for tap in taps]
        expected = torch.tensor(sums, dtype=torch.float64).repeat_interleave(32).expand(3, -1)
        torch.testing.assert_close(features, expected, atol=1e-12, rtol=0)

    def test_the_last_layer_is_tapped_behind_the_final_norm(self, adding: Transformer) -> None:
        output = run_flat(adding, [[4, 5]], [tiny_cache(adding)], (self.LAYERS - 1,))
        assert output.features is not None
        assert torch.equal(output.features, output.hidden)

    def test_without_taps_there_are_no_features(self, adding: Transformer) -> None:
        assert run_flat(adding, [[4]], [tiny_cache(adding)]).features is None


KINDS: dict[str, tuple[int | None, bool, Callable[[int, int], bool]]] = {
    "full": (None, False, lambda query, key: True),
    "sliding": (WINDOW, True, lambda query, key: 0 <= query - key < WINDOW),
    "sliding, is_causal false": (WINDOW, False, lambda query, key: abs(query - key) < WINDOW),
    "full, is_causal true": (None, True, lambda query, key: key <= query),
}
"""Kind of a draft layer -> its window, whether it is causal, and which positions see which (loading-04)."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def one_layer(target: Transformer, window: int | None, causal: bool) -> Drafter:
    block = replace(tiny_drafter_spec(target.spec).block, windows=(window,))
    return drafter_of(target, block=block, causal=(causal,))


def changed(before: Tensor, after: Tensor) -> list[int]:
    """Which rows moved; the others are equal bit for bit, or nearly: a mask may change how a sum is split."""
    distance = (before - after).abs().amax(-1)
    assert ((distance < 1e-12) | (distance > 1e-6)).all()
    return [row for row, moved in enumerate((distance > 1e-6).tolist()) if moved]


class TestWhatSlotsSee:
    """loading-04. Slot s of a block behind CONTEXT features stands at position CONTEXT + s."""

    def test_of_the_context(self, target: Transformer, kind: Any) -> None:
        """A sliding slot at position q sees features at q - WINDOW + 1 … and none before: the border lies there."""
        window, causal, sees = kind
        drafter = one_layer(target, window, causal)
        features, block = random_features(drafter), [7, *[MASK] * (BLOCK - 1)]
        before = slots(drafter, features, block)
        for position in range(CONTEXT):
            moved = features.clone()
            moved[position] += 1.0
            seeing = [slot for slot in range(BLOCK) if sees(CONTEXT + slot, position)]
            assert changed(before, slots(drafter, moved, block)) == seeing

    def test_of_the_block(self, target: Transformer, kind: Any) -> None:
        """Full layers see in both directions, sliding layers only back unless is_causal is false."""
        window, causal, sees = kind
        drafter = one_layer(target, window, causal)
        features, block = random_features(drafter), [7, *[MASK] * (BLOCK - 1)]
        before = slots(drafter, features, block)
        for slot in range(BLOCK):
            other = [*block[:slot], 11, *block[slot + 1 :]]
            seeing = [place for place in range(BLOCK) if sees(CONTEXT + place, CONTEXT + slot)]
            assert changed(before, slots(drafter, features, other)) == seeing

    def test_every_layer_has_its_own_kind(self, target: Transformer) -> None:
        """Two sliding layers reach twice as far back through the block, a full layer behind them sees all."""
        block = tiny_spec(num_layers=2, tied_head=True, windows=(2, None))
        drafter = drafter_of(target, block=block, causal=(True, False))
        features, tokens = random_features(drafter), [7, MASK, MASK]
        moved = features.clone()
        moved[0] += 1.0
        assert changed(slots(drafter, features, tokens), slots(drafter, moved, tokens)) == [0, 1, 2]


def test_context_grows_as_it_would_be_made_at_once(target: Transformer) -> None:
    drafter = drafter_of(target)
    features = random_features(drafter)
    whole = drafter.context(features, torch.arange(CONTEXT))
    parts = [drafter.context(features[a:b], torch.arange(a, b)) for a, b in ((0, 9), (9, 10), (10, CONTEXT))]
    for ours, expected in zip(zip(*parts, strict=True), whole, strict=True):
        torch.testing.assert_close(torch.cat(ours, 1), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("bias", [False, True])
def test_the_fused_context_equals_that_of_the_layers(bias: bool) -> None:
    """`prepare` makes one product of all layers' key and value projections, biases included."""
    target = tiny_transformer(tiny_spec(), dtype=torch.float32)
    block = tiny_spec(num_layers=3, tied_head=True, qkv_bias=bias, out_bias=bias)
    drafter = drafter_of(target, block=block, causal=(False,) * 3)
    features = random_features(drafter).float()
    positions = torch.arange(20, 20 + CONTEXT)
    slow = drafter.context(features, positions)
    hidden = drafter.hidden_norm(drafter.fc(features))
    for index, layer in enumerate(drafter.layers):
        projected = layer.qkv(hidden)[:, -32:].unflatten(-1, (2, 2, 8))
        torch.testing.assert_close(slow[1][index], projected[:, 1], atol=1e-5, rtol=0)
    names = list(drafter.state_dict())
    prepare(drafter)
    for ours, expected in zip(drafter.context(features, positions), slow, strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=0)
    assert list(drafter.state_dict()) == names


def test_embedding_and_head_are_the_targets_own_and_not_the_drafters_parameters(target: Transformer) -> None:
    """loading-02: the very objects, neither trained nor saved with the drafter."""
    drafter = drafter_of(target)
    assert drafter.embed is target.embed
    assert drafter.head is target.head
    lent = {target.embed.weight.data_ptr(), target.head.weight.data_ptr()}
    assert lent.isdisjoint(parameter.data_ptr() for parameter in drafter.parameters())


def test_multiplier_and_cap(target: Transformer) -> None:
    drafter, capped = drafter_of(target), drafter_of(target, output_multiplier=0.5, final_logit_softcapping=2.0)
    hidden = random_features(drafter)[:, :32]
    torch.testing.assert_close(capped.logits(hidden), 2.0 * torch.tanh(0.25 * drafter.logits(hidden)))


def test_scale_of_the_embedding(target: Transformer) -> None:
    """A scale of 3 is an embedding three times as large."""
    larger = tiny_transformer(tiny_spec())
    larger.embed.weight.mul_(3.0)
    scaled, plain = drafter_of(target, input_embedding_scale=3.0), drafter_of(larger)
    features = random_features(plain)
    assert_same = torch.testing.assert_close
    assert_same(slots(scaled, features, [7, MASK]), slots(plain, features, [7, MASK]), atol=1e-12, rtol=0)


def test_blocks_side_by_side_do_not_see_each_other(target: Transformer) -> None:
    """batch-01: blocks of other lengths behind contexts of other lengths, each as alone."""
    drafter = drafter_of(target)
    features = [random_features(drafter, rows) for rows in (3, 9, 1)]
    blocks = [[1, MASK, MASK], [2], [3, MASK]]
    caches = [tiny_context(drafter, part) for part in features]
    positions = torch.cat([torch.arange(c.length, c.length + len(b)) for c, b in zip(caches, blocks, strict=True)])
    segments = [Segment(len(block), cache) for block, cache in zip(blocks, caches, strict=True)]
    together = drafter(
        torch.tensor([token for block in blocks for token in block]), positions, drafter.attention(segments)
    )
    alone = torch.cat([slots(drafter, part, block) for part, block in zip(features, blocks, strict=True)])
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=0)
