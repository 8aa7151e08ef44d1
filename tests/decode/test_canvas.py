"""An answer in the making: fixed tokens stay, and it ends at the first end token that is settled."""

from __future__ import annotations

from dataclasses import replace

import torch
from tiny import tiny_cache, tiny_spec, tiny_transformer

from paceline.decode.canvas import Canvas, Fill
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts
from paceline.request import Sampling

END, MASK = 7, 63


def canvas(length: int = 6) -> Canvas:
    prompt = [END, 2, 3]
    return Canvas(
        tokens=prompt + [MASK] * length,
        prompt_tokens=3,
        masked=list(range(3, 3 + length)),
        sampling=Sampling(),
        seed=0,
        end_ids=frozenset({END}),
        cache=tiny_cache(tiny_transformer(tiny_spec())),
        noise=NoiseCache(0, 64),
        counts=None,
    )


def test_it_is_settled_up_to_the_first_mask() -> None:
    it = canvas()
    assert (it.settled, it.finished) == (3, False)
    it.fix([5, 7], [10, 11], rows=9)
    assert (it.settled, it.masked) == (3, [3, 4, 6, 8])
    it.fix([3, 4], [12, 13], rows=9)
    assert (it.settled, it.masked, it.finished) == (6, [6, 8], False)
    it.fix([6, 8], [14, 15], rows=9)
    assert it.finished
    answer = it.answer()
    assert answer.tokens == [12, 13, 10, 14, 11, 15]
    assert (answer.finish_reason, answer.forward_passes) == ("length", 3)
    assert answer.unmasked_per_step == [2, 2, 2]


def test_an_end_token_ends_it_once_everything_before_is_fixed() -> None:
    it = canvas()
    it.fix([4, 5, 8], [END, 10, END], rows=9)
    assert not it.finished
    it.fix([3], [11], rows=9)
    assert it.finished
    answer = it.answer()
    assert (answer.tokens, answer.finish_reason) == ([11, END], "stop")
    assert answer.fills == (Fill((4,), (END,), 9), Fill((3,), (11,), 9))


def test_a_flood_of_end_tokens_is_one() -> None:
    it = canvas()
    it.fix(range(3, 9), [END] * 6, rows=9)
    assert it.answer().tokens == [END]
    assert it.answer().unmasked_per_step == [1]


def test_a_pass_may_fix_nothing() -> None:
    it = canvas()
    it.fix([], [], rows=9)
    assert (it.settled, it.block_passes) == (3, 1)


def test_penalties_count_what_is_fixed() -> None:
    it = replace(canvas(), counts=TokenCounts.of_prompt([1, 2, 3], 64))
    it.fix([5, 6], [9, 9], rows=9)
    it.fix([], [], rows=9)
    assert it.counts is not None
    assert it.counts.output[9] == 2
    assert torch.count_nonzero(it.counts.output) == 1
