"""Rotary positions, masks and attention, each against its definition written out in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.models.attention import (
    Segment,
    cached_attention,
    dense_attention,
    inverse_frequencies,
    rotate,
    rotation,
    visible,
)
from paceline.models.spec import Rope

DIM = 6
LLAMA31 = Rope(theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_tokens=8192)


def sees(query: int, key: int, causal: bool, window: int | None) -> bool:
    """The definition: nothing later where causal, nothing `window` or more away where there is one."""
    return not (causal and key > query) and (window is None or abs(query - key) < window)


def naive(queries: Tensor, keys: Tensor, values: Tensor, past: int, *kind: Any) -> Tensor:
    """Attention row by row, head by head: queries [rows, heads, dim], keys and values [past + rows, kv_heads, dim].

    `kind` is (causal, window).
    """
    rows, heads, dim = queries.shape
    shared = heads // keys.shape[1]
    output = torch.zeros(rows, heads, dim, dtype=queries.dtype)
    for row, head in itertools.product(range(rows), range(heads)):
        seen = [key for key in range(len(keys)) if sees(past + row, key, *kind)]
        scores = [float(queries[row, head] @ keys[key, head // shared]) / math.sqrt(dim) for key in seen]
        total = sum(map(math.exp, scores))
        for key, score in zip(seen, scores, strict=True):
            output[row, head] += math.exp(score) / total * values[key, head // shared]
    return output.flatten(1)


def random_rows(count: int, heads: int, seed: int) -> Tensor:
    return torch.randn(count, heads, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cache_of(keys: Tensor, values: Tensor) -> SequenceCache:
    cache = SequenceCache(1, keys.shape[1], DIM, 1, keys.dtype, torch.device("cpu"))
    cache.append(0, keys, values)
    cache.advance(len(keys))
    return cache


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3, 5, 100])
@pytest.mark.parametrize(("rows", "past"), [(1, 0), (1, 1), (1, 4), (1, 9), (4, 0), (4, 3), (6, 11)])
def test_the_mask_is_the_definition(rows: int, past: int, causal: bool, window: int | None) -> None:
    mask = visible(rows, past, causal, window)
    grid = itertools.product(range(past, past + rows), range(past + rows))
    table = torch.tensor([sees(query, key, causal, window) for query, key in grid]).view(rows, past + rows)
    if mask is None:
        assert table.all()
    else:
        assert not table.all(), "a mask that hides nothing costs time"
        assert torch.equal(mask, table)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 3), (False, None), (False, 3)])
def test_attention_of_a_ragged_batch(heads: tuple[int, int], causal: bool, window: int | None) -> None:
    """Sequences of other lengths and other pasts, one row or several, side by side and alone."""
    shapes = ((1, 0), (1, 1), (1, 7), (3, 0), (5, 4))
    parts: list[Any] = []
    for seed, (rows, past) in enumerate(shapes):
        keys, values = (random_rows(past + rows, heads[1], 10 * seed + k) for k in (0, 1))
        parts.append((random_rows(rows, heads[0], 10 * seed + 2), keys, values, past))

    def attend(chosen: list[Any]) -> list[Tensor]:
        segments = [Segment(len(q), cache_of(k[:past], v[:past])) for q, k, v, past in chosen]
        layer = cached_attention(segments, (causal,), (window,))
        new = ([q, k[past:], v[past:]] for q, k, v, past in chosen)
        output = layer(0, *(torch.cat(rows) for rows in zip(*new, strict=True)))
        return list(output.split([segment.rows for segment in segments]))

    together = attend(parts)
    for part, output in zip(parts, together, strict=True):
        torch.testing.assert_close(output, naive(*part, causal, window), atol=1e-12, rtol=0)
        torch.testing.assert_close(attend([part])[0], output, atol=1e-12, rtol=0)


def test_layers_of_one_model_see_differently() -> None:
    cache = SequenceCache(3, 2, DIM, 1, torch.float64, torch.device("cpu"))
    keys, values = random_rows(9, 2, 0), random_rows(9, 2, 1)
    for layer in range(3):
        cache.append(layer, keys[:5], values[:5])
    cache.advance(5)
    queries = random_rows(4, 4, 2)
    kinds = ((True, None), (False, 3), (True, 2))
    attend = cached_attention([Segment(4, cache)], *zip(*kinds, strict=True))
    for layer, kind in enumerate(kinds):
        output = attend(layer, queries, keys[5:], values[5:])
        torch.testing.assert_close(output, naive(queries, keys, values, 5, *kind), atol=1e-12, rtol=0)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
def test_dense_attention(heads: tuple[int, int], window: int | None) -> None:
    batch, length = 3, 5
    q, k, v = (random_rows(batch * length, count, seed) for seed, count in enumerate((heads[0], heads[1], heads[1])))
    output = dense_attention(batch, (window,))(0, q, k, v)
    for one in range(batch):
        rows = slice(one * length, (one + 1) * length)
        expected = naive(q[rows], k[rows], v[rows], 0, True, window)
        torch.testing.assert_close(output[rows], expected, atol=1e-12, rtol=0)


def test_rotation_is_a_product_of_complex_numbers() -> None:
    """Element i and i + dim / 2 are one complex number, turned by position x frequency."""
    heads, positions = random_rows(7, 3, 5), torch.tensor([0, 1, 2, 3, 500, 8191, 100_000])
    frequencies = inverse_frequencies(Rope(10000.0), DIM)
    turned = rotate(heads, rotation(positions, frequencies, torch.float64))
    numbers = torch.complex(heads[..., : DIM // 2], heads[..., DIM // 2 :])
    steps = torch.tensor([10000.0 ** (-2 * i / DIM) for i in range(DIM // 2)], dtype=torch.float64)
    angles = positions.double().unsqueeze(-1) * steps
    expected = numbers * torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
    torch.testing.assert_close(turned, torch.cat((expected.real, expected.imag), -1), atol=1e-11, rtol=0)


def test_scores_depend_on_the_distance_only() -> None:
    frequencies = inverse_frequencies(LLAMA31, DIM)
    query, key = random_rows(1, 1, 1), random_rows(1, 1, 2)

    def score(q: int, k: int) -> float:
        at = [rotate(x, rotation(torch.tensor([p]), frequencies, torch.float64)) for x, p in ((query, q), (key, k))]
        return float((at[0] * at[1]).sum())

    assert score(9, 4) == pytest.approx(score(70_009, 70_004), abs=1e-9)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


def test_angles_are_exact_in_half_precision() -> None:
    """cos and sin are rounded once, after an angle in float64: no position in bfloat16."""
    cos, _ = rotation(torch.tensor([100_001]), inverse_frequencies(Rope(10000.0), 2), torch.bfloat16)
    assert float(cos[0, 0, 0]) == pytest.approx(math.cos(100_001), abs=2e-3)


@pytest.mark.parametrize("rope", [LLAMA31, Rope(10000.0, 32.0, 1.0, 4.0, 64), Rope(1e6, 4.0, 0.5, 2.0, 1024)])
def test_llama3_scaling(rope: Rope) -> None:
    """The formula as Meta's reference code states it, one frequency at a time."""
    head_dim = 64
    for index, ours in enumerate(inverse_frequencies(rope, head_dim).tolist()):
        frequency = rope.theta ** (-2 * index / head_dim)
        wavelength = 2 * math.pi / frequency
        if wavelength < rope.original_context_tokens / rope.high_freq_factor:
            expected = frequency
        elif wavelength > rope.original_context_tokens / rope.low_freq_factor:
            expected = frequency / rope.factor
        else:
            smooth = (rope.original_context_tokens / wavelength - rope.low_freq_factor) / (
                rope.high_freq_factor - rope.low_freq_factor
            )
            expected = (1 - smooth) * frequency / rope.factor + smooth * frequency
        assert ours == pytest.approx(expected, rel=1e-12)


def test_llama3_scaling_keeps_short_waves_and_stretches_long_ones() -> None:
    """Llama 3.1, head_dim 128: pair 5 turns in 17 tokens, pair 60 in 1.4 million, pair 32 in 4443."""
    frequencies = inverse_frequencies(LLAMA31, 128)
    kept, stretched = 500000.0 ** (-2 * 5 / 128), 500000.0 ** (-2 * 60 / 128) / 8
    assert float(frequencies[5]) == pytest.approx(kept, rel=1e-12)
    assert float(frequencies[60]) == pytest.approx(stretched, rel=1e-12)
    assert 500000.0 ** (-2 * 32 / 128) / 8 < float(frequencies[32]) < 500000.0 ** (-2 * 32 / 128)
