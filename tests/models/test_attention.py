"""Masks and attention, each against its definition written out in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.models.attention import Segment, cached_attention, dense_attention
from paceline.models.masks import visible

DIM = 6


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
