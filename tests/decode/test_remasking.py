"""Settings and rules of remasking: what is refused, and how many tokens a pass fixes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from paceline.decode.remasking import (
    Remasking,
    Turn,
    above_threshold,
    even_share,
    how_many,
    linear_share,
    within_factor,
)
from paceline.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0. It must be an integer of at least 1, or null"),
        ({"steps": 2.0}, "steps is 2.0"),
        ({"block_length": 0}, "block_length is 0"),
        ({"tokens_per_step": -1}, "tokens_per_step is -1"),
        ({"threshold": 0.0}, "threshold is 0.0. It must be a number above 0 and of at most 1"),
        ({"threshold": 1.01}, "threshold is 1.01"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"threshold": "0.5"}, "threshold is '0.5'"),
        ({"factor": 0}, "factor is 0. It must be a number above 0"),
        ({"factor": -0.5}, "factor is -0.5"),
        ({"factor": float("inf")}, "factor is inf"),
        (
            {"steps": 4, "step_schedule": "linear", "eps": 1.0},
            "eps is 1.0. It must be a number of at least 0 and below 1",
        ),
        ({"strategy": "best"}, "strategy is 'best'. It must be 'low_confidence' or"),
        ({"cache": "full"}, "cache is 'full'"),
        ({"step_schedule": "cosine", "steps": 3}, "step_schedule is 'cosine'"),
        ({"steps": 4, "threshold": 0.5}, "threshold is 0.5, and steps is 4. Change one of them: give at most one of"),
        ({"threshold": 0.5, "factor": 1.0}, "factor is 1.0, and threshold is 0.5"),
        ({"steps": 4, "tokens_per_step": 2}, "tokens_per_step is 2, and steps is 4"),
        ({"threshold": 0.5, "strategy": "entropy"}, "threshold needs strategy low_confidence"),
        ({"factor": 0.5, "strategy": "random"}, "factor needs strategy low_confidence"),
        ({"step_schedule": "linear"}, "step_schedule linear needs steps"),
        ({"window": 0, "strategy": "left_to_right"}, "window is 0. It must be an integer of at least 1, or all"),
        ({"kv_window": 0, "strategy": "left_to_right"}, "kv_window is 0"),
        ({"window": 2, "tokens_per_step": 3, "strategy": "left_to_right"}, "a pass fixes no more masks than it sees"),
        ({"end_last": True, "strategy": "left_to_right"}, "end_last is True, and strategy is 'left_to_right'"),
        ({"end_last": None}, "end_last is None. It must be true or false"),
        ({"window": 4}, "strategy must be left_to_right"),
        ({"kv_window": 4, "strategy": "left_to_right", "cache": "dual"}, "cache must be none"),
        ({"kv_window": 4, "strategy": "left_to_right", "steps": 3}, "steps must be left out"),
        ({"window": 4, "strategy": "left_to_right", "block_length": 3}, "block_length must be left out"),
    ],
)
def test_settings_out_of_range_or_at_odds_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Remasking(**changes)
    assert message in str(caught.value)
    assert caught.value.param in changes


def test_bounds_that_are_allowed() -> None:
    assert Remasking(threshold=1.0).threshold == 1
    assert Remasking(steps=1, step_schedule="linear", eps=0).eps == 0
    assert Remasking(steps=1, block_length=1, cache="dual").cache == "dual"


def test_even_shares_are_whole_and_fall() -> None:
    for total in range(20):
        for parts in range(1, 25):
            shares = [even_share(total, parts, index) for index in range(parts)]
            assert sum(shares) == total
            assert shares == sorted(shares, reverse=True)
            assert shares[0] - shares[-1] <= 1


@pytest.mark.parametrize("eps", [Fraction(0), Fraction(1, 1000), Fraction(1, 2)])
def test_dreams_schedule_in_exact_numbers(eps: Fraction) -> None:
    for steps in range(1, 30):
        times = [1 - (1 - eps) * index / steps for index in range(steps + 1)]
        for masked in range(40):
            for index in range(steps - 1):
                exact = int(masked * (1 - times[index + 1] / times[index]))
                assert linear_share(masked, steps, index, float(eps)) == exact
            assert linear_share(masked, steps, steps - 1, float(eps)) == masked


def test_dreams_schedule_fixes_none_first_and_two_last() -> None:
    left, shares = 5, []
    for index in range(5):
        shares.append(linear_share(left, 5, index, 1e-3))
        left -= shares[-1]
    assert shares == [0, 1, 1, 1, 2]


def test_a_threshold_always_lets_one_pass() -> None:
    assert above_threshold([0.9, 0.6, 0.5, 0.4], 0.5) == 3
    assert above_threshold([0.4, 0.3], 0.5) == 1
    assert above_threshold([1.0, 1.0], 1.0) == 2


def test_a_factor_asks_more_of_every_further_token() -> None:
    """n tokens need c_n >= 1 - 1 / (n + 1): 1/2, 2/3, 3/4, …"""
    assert within_factor([0.9, 0.7, 0.74, 0.1], 1.0) == 2
    assert within_factor([0.9, 0.7, 0.76], 1.0) == 3
    assert within_factor([0.1, 0.1], 1.0) == 1
    assert within_factor([0.6, 0.6], 1.0) == 1, "two masks do not go together because only the last fails"
    assert within_factor([0.0, 0.0, 0.0], 9.0) == 3


def test_how_many_follows_the_one_setting_given() -> None:
    ranked, turn = [0.9, 0.8, 0.3, 0.2, 0.1], Turn(passes=1, steps=3, tokens=8)
    assert how_many(Remasking(), ranked, turn) == 1
    assert how_many(Remasking(tokens_per_step=2), ranked, turn) == 2
    assert how_many(Remasking(tokens_per_step=9), ranked, turn) == 5
    assert how_many(Remasking(threshold=0.3), ranked, turn) == 3
    assert how_many(Remasking(factor=1.0), ranked, turn) == 2
    assert how_many(Remasking(steps=7), ranked, turn) == 3
    assert how_many(Remasking(steps=7, step_schedule="linear"), ranked, turn) == 2
