"""Attention against its definition written out in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.models import masks
from paceline.models.attention import Segment, cached_attention, dense_attention

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
        torch.testing.assert_close(output[rows].detach(), expected, atol=1e-12, rtol=0)


KINDS = [(True, None), (False, None), (True, 3), (False, 3), (True, 7), (False, 7), (True, 1)]


def attention(queries: Tensor, keys: Tensor, values: Tensor, past: int, causal: bool, window: int | None) -> Tensor:
    segment = Segment(len(queries), cache_of(keys[:past], values[:past]))
    return cached_attention([segment], (causal,), (window,))(0, queries, keys[past:], values[past:])


@pytest.mark.parametrize(("causal", "window"), KINDS)
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("past", [0, 1, 6])
def test_blocks_of_rows_see_what_the_definition_says(
    heads: tuple[int, int], past: int, causal: bool, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 4 rows. Scores thousands apart make a softmax of exact ones and zeros: a row's output is the value of
    the key that it sees and likes best, bit by bit."""
    monkeypatch.setattr(masks, "_BLOCK_ROWS", 4)
    for rows in (1, 3, 4, 5, 8, 9, 13):
        order = torch.Generator().manual_seed(rows)
        likes = torch.stack([torch.randperm(past + rows, generator=order) for _ in range(heads[1])], 1).double()
        keys = torch.zeros(past + rows, heads[1], DIM, dtype=torch.float64)
        keys[..., 0] = 1e4 * likes
        queries = torch.zeros(rows, heads[0], DIM, dtype=torch.float64)
        queries[..., 0] = 1.0
        values = random_rows(past + rows, heads[1], 1)
        expected = torch.empty(rows, heads[0], DIM, dtype=torch.float64)
        for row, head in itertools.product(range(rows), range(heads[0])):
            own = head * heads[1] // heads[0]
            seen = [key for key in range(past + rows) if sees(past + row, key, causal, window)]
            expected[row, head] = values[max(seen, key=lambda key: float(likes[key, own])), own]
        assert torch.equal(attention(queries, keys, values, past, causal, window), expected.flatten(1))


@pytest.mark.parametrize(("causal", "window"), KINDS)
def test_blocks_of_rows_attend_as_the_definition_says(
    causal: bool, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "_BLOCK_ROWS", 4)
    for rows, past in itertools.product((4, 5, 8, 9), (0, 3)):
        queries, keys, values = random_rows(rows, 4, 0), *(random_rows(past + rows, 2, seed) for seed in (1, 2))
        expected = naive(queries, keys, values, past, causal, window)
        output = attention(queries, keys, values, past, causal, window)
        torch.testing.assert_close(output, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 300), (False, 300), (False, None)])
@pytest.mark.parametrize("rows", [255, 256, 257, 700])
def test_long_segments_in_blocks_of_their_real_size(rows: int, causal: bool, window: int | None) -> None:
    """Against all scores at once, in float64; and alone as in a batch, bit by bit."""
    past, shared = 60, 2
    queries, keys, values = random_rows(rows, 4, 0), *(random_rows(past + rows, 2, seed) for seed in (1, 2))
    distance = torch.arange(past, past + rows)[:, None] - torch.arange(past + rows)
    hidden = (distance < 0) & causal | (distance.abs() >= (window or 10**6))
    k, v = (x.repeat_interleave(shared, 1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", queries, k).div(math.sqrt(DIM)).masked_fill(hidden, -math.inf)
    expected = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
    alone = attention(queries, keys, values, past, causal, window)
    torch.testing.assert_close(alone, expected, atol=1e-12, rtol=0)
    segments = [Segment(len(queries), cache_of(keys[:past], values[:past])) for _ in range(2)]
    both = cached_attention(segments, (causal,), (window,))(
        0, *(torch.cat([x, x]) for x in (queries, keys[past:], values[past:]))
    )
    assert torch.equal(both, torch.cat([alone, alone]))


@pytest.mark.parametrize("causal", [True, False])
def test_dense_attention_with_a_window_in_blocks(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_BLOCK_ROWS", 4)
    q, k, v = (random_rows(2 * 9, count, seed).requires_grad_() for seed, count in enumerate((4, 2, 2)))
    output = dense_attention(2, (3,), causal)(0, q, k, v)
    for one in range(2):
        rows = slice(one * 9, (one + 1) * 9)
        expected = naive(q[rows].detach(), k[rows].detach(), v[rows].detach(), 0, causal, 3)
        torch.testing.assert_close(output[rows].detach(), expected, atol=1e-12, rtol=0)
    output.sum().backward()
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in (q, k, v))
