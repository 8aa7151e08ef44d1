"""The K/V store against a plain Python list."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paceline.cache.store import SequenceCache

LAYERS, HEADS, DIM = 2, 3, 4


def new(capacity: int = 2) -> SequenceCache:
    return SequenceCache(LAYERS, HEADS, DIM, capacity, torch.float64, torch.device("cpu"))


def rows(first: int, count: int, layer: int) -> tuple[Tensor, Tensor]:
    """Keys and values [count, heads, dim] that say which row, layer and head they are of."""
    number = torch.arange(first, first + count, dtype=torch.float64).view(-1, 1, 1) + 1000 * layer
    keys = number + torch.arange(HEADS).view(1, -1, 1) / 10 + torch.arange(DIM) / 100
    return keys, -keys


def append(cache: SequenceCache, first: int, count: int) -> list[tuple[Tensor, Tensor]]:
    return [cache.append(layer, *rows(first, count, layer)) for layer in range(LAYERS)]


def assert_holds(pair: tuple[Tensor, Tensor], numbers: list[int], layer: int) -> None:
    whole = [rows(number, 1, layer) for number in numbers]
    for view, parts in zip(pair, zip(*whole, strict=True) if whole else ((), ()), strict=True):
        expected = torch.cat([*parts]).transpose(0, 1) if parts else torch.empty(HEADS, 0, DIM, dtype=torch.float64)
        assert torch.equal(view, expected)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("truncate"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("compact"), st.integers(0, 6), st.integers(0, 2**9 - 1)),
    ),
    max_size=20,
)


@settings(max_examples=200)
@given(OPERATIONS, st.integers(1, 5))
def test_any_order_of_operations_equals_a_list(operations: list[Any], capacity: int) -> None:
    """`append` then `advance` or `compact`, and `truncate`: what is visible is what a list would hold."""
    cache, model, fresh = new(capacity), list[int](), 0
    for kind, first, second in operations:
        if kind == "append":
            for layer, pair in enumerate(append(cache, fresh, first)):
                assert_holds(pair, [*model, *range(fresh, fresh + first)], layer)
            cache.advance(min(first, second))  # the rest was a draft
            model += range(fresh, fresh + min(first, second))
            fresh += first
        elif kind == "truncate":
            length = min(first, len(model))
            cache.truncate(length)
            del model[length:]
        else:
            tree = [number for number in range(first) if second >> number & 1]
            append(cache, fresh, first)
            cache.compact(len(model), tree)
            model += [fresh + number for number in tree]
            fresh += first
        assert cache.length == len(model)
        for layer in range(LAYERS):
            assert_holds(cache.view(layer), model, layer)


def test_a_draft_that_is_not_advanced_leaves_no_trace() -> None:
    cache = new()
    append(cache, 0, 3)
    cache.advance(3)
    append(cache, 50, 9)
    cache.advance(0)
    append(cache, 3, 1)
    cache.advance(1)
    assert_holds(cache.view(1), [0, 1, 2, 3], 1)


def test_growth_keeps_rows_that_are_not_committed_yet() -> None:
    """Layer 0 writes a block that fits, layer 1 makes the store grow: both keep theirs."""
    cache = new(capacity=4)
    cache.append(0, *rows(0, 4, 0))
    cache.append(1, *rows(0, 5, 1))
    cache.advance(4)
    assert_holds(cache.view(0), [0, 1, 2, 3], 0)
    assert_holds(cache.view(1), [0, 1, 2, 3], 1)


def test_an_extension_is_room_in_all_layers_at_once() -> None:
    """What a forward pass takes once and fills layer by layer, in any order."""
    cache = new(capacity=3)
    append(cache, 0, 2)
    cache.advance(2)
    room = cache.extension(4)
    for layer in (1, 0):
        assert_holds(room.write(layer, *rows(2, 4, layer)), [*range(6)], layer)
    assert cache.length == 2
    cache.advance(3)
    for layer in (0, 1):
        assert_holds(cache.view(layer), [*range(5)], layer)


def test_growth_doubles() -> None:
    """n rows cost O(n) copies."""
    cache, sizes = new(capacity=1), set()
    for number in range(200):
        append(cache, number, 1)
        cache.advance(1)
        sizes.add(cache.nbytes)
    assert len(sizes) <= 9


def test_views_are_not_copies() -> None:
    cache = new(capacity=8)
    keys, values = append(cache, 0, 3)[0]
    cache.advance(3)
    for seen, committed in zip((keys, values), cache.view(0), strict=True):
        assert seen.data_ptr() == committed.data_ptr()


def test_precision_device_and_size() -> None:
    cache = SequenceCache(1, 2, 4, 10, torch.bfloat16, torch.device("cpu"))
    assert (cache.dtype, cache.device.type, cache.nbytes) == (torch.bfloat16, "cpu", 2 * 2 * 10 * 4 * 2)


@pytest.mark.parametrize("misuse", [lambda c: c.advance(99), lambda c: c.truncate(4), lambda c: c.truncate(-1)])
def test_a_rollback_or_advance_that_cannot_be_is_an_error(misuse: Any) -> None:
    """cache-03: never ignored."""
    cache = new()
    append(cache, 0, 3)
    cache.advance(3)
    with pytest.raises(AssertionError):
        misuse(cache)


def test_zero_rows_are_safe() -> None:
    cache = new()
    cache.advance(0)
    cache.truncate(0)
    cache.compact(0, [])
    assert_holds(cache.view(0), [], 0)
