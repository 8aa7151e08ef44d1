"""What a pass computes and what it takes from the cache: positions, and the rows that stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import tiny_cache, tiny_spec, tiny_transformer

from paceline.cache.store import SequenceCache
from paceline.decode.canvas import Canvas
from paceline.decode.noise import NoiseCache
from paceline.decode.remasking import Remasking, Turn
from paceline.decode.windows import candidates, freeze, in_sight, keep, next_rows, turn
from paceline.request import Sampling


def numbered(rows: int) -> SequenceCache:
    """A cache into which a pass of `rows` rows wrote, each with its number, without being kept."""
    cache = SequenceCache(2, 1, 1, rows, torch.float32, torch.device("cpu"))
    for layer in range(2):
        cache.append(layer, torch.arange(rows).view(-1, 1, 1), -torch.arange(rows).view(-1, 1, 1))
    return cache


def kept(cache: SequenceCache) -> list[int]:
    keys, values = cache.view(1)
    assert torch.equal(keys, -values)
    return [int(key) for key in keys.flatten().tolist()]


@pytest.mark.parametrize(
    ("kind", "block", "rows"),
    [
        ("none", range(3, 6), []),
        ("prefix", range(3, 6), [0, 1, 2]),
        ("dual", range(3, 6), [0, 1, 2, 6, 7, 8]),
        ("dual", range(3, 9), [0, 1, 2]),
        ("dual", range(9), []),
    ],
)
def test_freezing_keeps_what_is_outside_the_block(kind: Any, block: range, rows: list[int]) -> None:
    cache = numbered(9)
    freeze(cache, kind, block, 9)
    assert kept(cache) == rows


def canvas(prompt_tokens: int = 4, new_tokens: int = 7, suffix_tokens: int = 0) -> Canvas:
    length = prompt_tokens + new_tokens + suffix_tokens
    return Canvas(
        tokens=[1] * prompt_tokens + [63] * new_tokens + [2] * suffix_tokens,
        hole=range(prompt_tokens, prompt_tokens + new_tokens),
        sampling=Sampling(),
        seed=0,
        cache=tiny_cache(tiny_transformer(tiny_spec()), length),
        noise=NoiseCache(0, 64),
        counts=None,
    )


def passes(settings: Remasking, shift: int, suffix_tokens: int = 0) -> list[tuple[int, int, int]]:
    """(first row, end of rows, rows cached) of every pass, two masks filled in each."""
    it, done = canvas(suffix_tokens=suffix_tokens), []
    while it.masked:
        rows = next_rows(it, settings, shift)
        done.append((rows[0], rows[-1] + 1, it.cache.length))
        positions = candidates(it, settings)[:2]
        it.fix(positions, [5] * len(positions))
        keep(it, settings, len(rows), shift, positions)
    return done


@pytest.mark.parametrize("shift", [0, 1])
def test_the_opening_pass_computes_everything_and_the_others_the_rest(shift: int) -> None:
    """Prompt 0-3, blocks 4-6, 7-9 and 10."""
    opening = (0, 11, 0)
    assert passes(Remasking(block_length=3), shift) == [opening] * 5
    first, second = (4 - shift, 11, 4 - shift), (7 - shift, 11, 7 - shift)
    assert passes(Remasking(block_length=3, cache="prefix"), shift) == [opening, first, opening, second, opening]
    first, second = (4 - shift, 7, 8 - shift), (7 - shift, 10, 8 - shift)
    assert passes(Remasking(block_length=3, cache="dual"), shift) == [opening, first, opening, second, opening]


def test_a_suffix_is_computed_like_later_masks_and_belongs_to_no_block() -> None:
    """Prompt 0-3, blocks 4-6, 7-9 and 10, suffix 11 and 12."""
    opening = (0, 13, 0)
    assert passes(Remasking(block_length=3), 0, 2) == [opening] * 5
    prefix, dual = Remasking(block_length=3, cache="prefix"), Remasking(block_length=3, cache="dual")
    assert passes(prefix, 0, 2) == [opening, (4, 13, 4), opening, (7, 13, 7), opening]
    assert passes(dual, 0, 2) == [opening, (4, 7, 10), opening, (7, 10, 10), opening]
    window = Remasking(strategy="left_to_right", tokens_per_step=3, kv_window=1)
    assert passes(window, 0, 2) == [(0, 13, 0), (4, 13, 4), (6, 13, 6), (8, 13, 8)]


def test_a_window_moves_with_the_first_mask() -> None:
    def of(**settings: Any) -> list[tuple[int, int, int]]:
        return passes(Remasking(strategy="left_to_right", tokens_per_step=2, **settings), 1)

    assert of(window=3) == [(0, 7, 0), (0, 9, 0), (0, 11, 0), (0, 11, 0)]
    assert of(kv_window=1) == [(0, 11, 0), (4, 11, 4), (6, 11, 6), (8, 11, 8)]
    assert of(kv_window=3) == [(0, 11, 0), (2, 11, 2), (4, 11, 4), (6, 11, 6)]
    assert of(kv_window=100) == [(0, 11, 0)] * 4
    assert of(kv_window=2, window=3) == [(0, 7, 0), (3, 9, 3), (5, 11, 5), (7, 11, 7)]


def test_masks_outside_the_block_or_out_of_sight_wait() -> None:
    it, settings = canvas(), Remasking(block_length=3)
    next_rows(it, settings, 0)
    assert candidates(it, settings) == [4, 5, 6]
    it, settings = canvas(), Remasking(strategy="left_to_right", window=2)
    assert next_rows(it, settings, 0) == [0, 1, 2, 3, 4, 5]
    assert candidates(it, settings) == [4, 5]


def test_what_stands_behind_the_hole_stays_in_sight_and_is_computed_in_every_pass() -> None:
    """Prompt 0-3, hole 4-10, suffix 11 and 12."""
    it, settings = canvas(suffix_tokens=2), Remasking(strategy="left_to_right", window=3, kv_window=2)
    assert next_rows(it, settings, 0) == [0, 1, 2, 3, 4, 5, 6, 11, 12]
    it.fix([4, 5], [5, 5])
    keep(it, settings, 9, 0, [4, 5])
    assert it.cache.length == 3
    assert next_rows(it, settings, 0) == [3, 4, 5, 6, 7, 8, 11, 12]
    assert in_sight(it, 5, None) == [5, 6, 7, 8, 9, 10, 11, 12]
    assert in_sight(it, 5, 5) == in_sight(it, 5, 50) == in_sight(it, 5, None)


def test_steps_are_shared_by_the_blocks_and_none_goes_without() -> None:
    def turns(steps: int) -> list[Turn]:
        it, settings, found = canvas(), Remasking(steps=steps, block_length=3), []
        while it.masked:
            next_rows(it, settings, 0)
            found.append(turn(it, settings))
            masks = candidates(it, settings)
            it.fix(masks, [5] * len(masks))
        return found

    assert turns(7) == [Turn(0, 3, 3), Turn(0, 2, 3), Turn(0, 2, 1)]
    assert turns(2) == [Turn(0, 1, 3), Turn(0, 1, 3), Turn(0, 1, 1)]
