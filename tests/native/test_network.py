"""The native pass against torch in float64, on the same weights."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from compiled import SETS, filled, linears_of, needs_native, odd_spec, packed, random_piece, read, scored, use_set
from tiny import fill_block, tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import Tensor

from paceline import native
from paceline.cache.store import SequenceCache
from paceline.models.linear import Linear
from paceline.models.rounding import WHOLE_ROW, coded, rounded
from paceline.models.transformer import Transformer, prepare
from paceline.native import Arithmetic

pytestmark = needs_native

TOLERANCE = 5e-5
"""Of hidden states, which the final norm brings to 1: some hundred roundings of 6e-8 in each of their sums."""


def close(model: Transformer, seed: int, causal: bool = True) -> None:
    oracle = tiny_transformer(model.spec, seed)
    vocab, taps = model.spec.vocab_size, tuple(range(model.spec.num_layers))
    pieces = [
        random_piece(seed, vocab, 1 + seed % 7, 11, tree=causal),
        random_piece(seed + 1, vocab, 1, 0, tree=False),
        random_piece(seed + 2, vocab, 13, 3, tree=False),
    ]
    ours, theirs = ([filled(each, piece.past) for piece in pieces] for each in (model, oracle))
    found, expected = read(model, pieces, ours, taps, causal), read(oracle, pieces, theirs, taps, causal)
    assert found.features is not None
    assert expected.features is not None
    torch.testing.assert_close(found.hidden.double(), expected.hidden, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(found.features.double(), expected.features, atol=TOLERANCE, rtol=TOLERANCE)
    for cache, other, piece in zip(ours, theirs, pieces, strict=True):
        end = piece.past + len(piece.tokens)
        rows, others = (each.room(0)[..., :end, :].double() for each in (cache, other))
        torch.testing.assert_close(rows, others, atol=TOLERANCE, rtol=TOLERANCE)
    logits, scores = model.head(found.hidden), oracle.head(expected.hidden)
    torch.testing.assert_close(logits.double(), scores, atol=20 * TOLERANCE, rtol=0)
    at_once = scored(model, pieces, ours, taps, causal)
    assert torch.equal(at_once.logits, logits)
    assert at_once.features is not None
    assert torch.equal(at_once.features, found.features)


@pytest.mark.parametrize("seed", range(24))
def test_any_spec(seed: int) -> None:
    close(packed(odd_spec(seed), seed), seed)


@pytest.mark.parametrize("seed", range(6))
def test_any_spec_in_both_directions(seed: int) -> None:
    close(packed(odd_spec(seed), seed), seed, causal=False)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_every_instruction_set(family: str, instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_set(monkeypatch, instructions)
    close(packed(tiny_spec(family, hidden_size=72, head_dim=64)), 0)


def test_weights_that_bfloat16_holds() -> None:
    model, oracle = (tiny_transformer(tiny_spec(), dtype=dtype) for dtype in (torch.float32, torch.float64))
    with torch.no_grad():
        for parameter, exact in zip(model.parameters(), oracle.parameters(), strict=True):
            parameter.copy_(parameter.bfloat16())
            exact.copy_(parameter)
    plain = packed(tiny_spec()).packed_bytes
    prepare(model)
    assert model.packed_bytes * 2 == plain
    piece = random_piece(0, 64, 9, 4, tree=True)
    found, expected = (read(each, [piece], [filled(each, 4)]).hidden for each in (model, oracle))
    torch.testing.assert_close(found.double(), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("group", [1, 7, 16, WHOLE_ROW])
@pytest.mark.parametrize("seed", range(3))
def test_int8_is_the_model_with_rounded_weights(seed: int, group: int) -> None:
    spec = odd_spec(seed)
    model, oracle = tiny_transformer(spec, seed, torch.float32), tiny_transformer(spec, seed)
    for mine, exact in zip(linears_of(model), linears_of(oracle), strict=True):
        mine.arithmetic = native.Arithmetic("weights", group)
        exact.weight = torch.nn.Parameter(rounded(mine.weight.detach(), group).double(), requires_grad=False)
    prepare(model)
    piece = random_piece(seed, spec.vocab_size, 9, 4, tree=True)
    found, expected = (read(each, [piece], [filled(each, 4)]).hidden for each in (model, oracle))
    torch.testing.assert_close(found.double(), expected, atol=TOLERANCE, rtol=0)
    logits, exact = model.head(found), oracle.head(found.double())
    torch.testing.assert_close(logits.double(), exact, atol=TOLERANCE, rtol=0)


class RoundingLinear(Linear):
    """Both factors rounded, and then multiplied in float64."""

    rounding_to: Literal["bfloat16", "int8"]

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.double()
        if self.rounding_to == "bfloat16":
            return F.linear(x.bfloat16().double(), self.weight.bfloat16().double(), bias)
        (own, own_scales), (codes, scales) = coded(x), coded(self.weight)
        return F.linear((own * own_scales).double(), (codes * scales).double(), bias)

    __call__ = forward


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("rounding", ["bfloat16", "int8"])
@pytest.mark.parametrize("seed", range(4))
def test_rounded_factors(
    seed: int, rounding: Literal["bfloat16", "int8"], instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near the plain model that rounds alike: a number that rounds the other way moves it by a step, and few do."""
    use_set(monkeypatch, instructions)
    spec = odd_spec(seed)
    model, oracle, exact = packed(spec, seed, Arithmetic(rounding)), tiny_transformer(spec, seed), packed(spec, seed)
    for linear in linears_of(oracle):
        linear.__class__, linear.rounding_to = RoundingLinear, rounding  # type: ignore[assignment]
    piece = random_piece(seed, spec.vocab_size, 9, 4, tree=True)
    found, expected, plain = (read(each, [piece], [filled(each, 4)]).hidden.double() for each in (model, oracle, exact))
    assert (found - expected).square().mean() < 0.1 * (plain - expected).square().mean()


@pytest.mark.parametrize("windows", [(None, None), (5, 3)])
@pytest.mark.parametrize("causal", [False, True])
def test_drafter(causal: bool, windows: tuple[int | None, ...]) -> None:
    target = tiny_transformer(tiny_spec())
    spec = tiny_drafter_spec(target.spec, block=tiny_spec(windows=windows, tied_head=True), causal=(causal, causal))
    oracle = tiny_drafter(spec, target)
    drafter = tiny_drafter(spec, tiny_transformer(tiny_spec(), dtype=torch.float32))
    prepare(drafter)
    features = torch.randn(6, 2 * target.spec.hidden_size, generator=torch.Generator().manual_seed(1))
    places = torch.arange(6)
    contexts = (drafter.context(features, places), oracle.context(features.double(), places))
    for own, exact in zip(*contexts, strict=True):
        torch.testing.assert_close(own.double(), exact, atol=TOLERANCE, rtol=0)
    states = []
    for model, (keys, values) in zip((drafter, oracle), contexts, strict=True):
        cache = filled_context(keys, values)
        with torch.inference_mode():
            states.append(fill_block(model, cache, [3, 63, 63, 63]))
    torch.testing.assert_close(states[0].double(), states[1], atol=TOLERANCE, rtol=0)


def filled_context(keys: torch.Tensor, values: torch.Tensor) -> SequenceCache:
    layers, _, heads, dim = keys.shape
    cache = SequenceCache(layers, heads, dim, 8, keys.dtype, keys.device)
    cache.extend(keys, values)
    return cache


def test_many_rows() -> None:
    spec = tiny_spec(windows=(None, 30))
    model, oracle = packed(spec), tiny_transformer(spec)
    for rows in (64, 65, 200):
        piece = random_piece(rows, 64, rows, 2, tree=False)
        found, expected = (read(each, [piece], [filled(each, 2)]).hidden for each in (model, oracle))
        torch.testing.assert_close(found.double(), expected, atol=TOLERANCE, rtol=0)
