"""An answer in the making: fixed tokens stay, and settle once no mask is before them."""

from __future__ import annotations

import torch
from tiny import tiny_cache, tiny_spec, tiny_transformer

from paceline.decode.canvas import Canvas
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts
from paceline.request import Sampling

MASK = 63


def canvas(length: int = 6, suffix: tuple[int, ...] = (), counts: TokenCounts | None = None) -> Canvas:
    prompt = [1, 2, 3]
    return Canvas(
        tokens=[*prompt, *[MASK] * length, *suffix],
        hole=range(3, 3 + length),
        sampling=Sampling(),
        seed=0,
        cache=tiny_cache(tiny_transformer(tiny_spec())),
        noise=NoiseCache(0, 64),
        counts=counts,
    )


def test_it_is_settled_up_to_the_first_mask() -> None:
    it = canvas()
    assert (it.settled, it.remaining_tokens) == (3, 6)
    assert it.fix([5, 7], [10, 11]) == ()
    assert (it.settled, it.masked, it.remaining_tokens) == (3, [3, 4, 6, 8], 6)
    assert it.fix([3, 4], [12, 13]) == (12, 13, 10)
    assert (it.settled, it.masked, it.remaining_tokens) == (6, [6, 8], 3)
    assert it.fix([6, 8], [14, 15]) == (14, 11, 15)
    assert (it.settled, it.masked, it.remaining_tokens) == (9, [], 0)


def test_what_stands_behind_the_hole_never_settles() -> None:
    it = canvas(2, suffix=(8, 9))
    assert it.fix([4], [10]) == ()
    assert it.fix([3], [11]) == (11, 10)
    assert (it.settled, it.remaining_tokens, it.tokens) == (5, 0, [1, 2, 3, 11, 10, 8, 9])


def test_a_pass_may_fix_nothing() -> None:
    it = canvas()
    assert it.fix([], []) == ()
    assert (it.settled, it.block_passes) == (3, 1)


def test_what_a_pass_does_not_compute_of_the_prefix_it_takes_over() -> None:
    it = canvas()
    assert [it.reused_by(rows) for rows in (range(9), [1, 2, 3, 8], [2], range(3, 9), [4])] == [0, 1, 2, 3, 3]


def test_penalties_count_what_is_fixed() -> None:
    it = canvas(counts=TokenCounts.of_prompt([1, 2, 3], 64))
    it.fix([5, 6], [9, 9])
    it.fix([], [])
    assert it.counts is not None
    assert it.counts.output[9] == 2
    assert torch.count_nonzero(it.counts.output) == 1
