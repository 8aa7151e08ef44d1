from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from paceline.errors import BadRequest
from paceline.request import Sampling, Stats, Usage


def stats(accepted: tuple[int, ...] = (), seconds: float = 2.0) -> Stats:
    return Stats("dflash", len(accepted), accepted, 7 * len(accepted), sum(accepted) - len(accepted), 0.5, 0.5, seconds)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 1.5), ("max_tokens", True), ("max_tokens", "9"),
        ("temperature", -0.1), ("temperature", 100.1), ("temperature", math.nan), ("temperature", math.inf),
        ("temperature", "hot"), ("temperature", None),
        ("top_k", -1), ("top_k", 2.0), ("top_p", 0.0), ("top_p", 1.1), ("top_p", math.nan),
        ("min_p", -0.1), ("min_p", 1.1), ("n", 0), ("n", 129), ("n", False),
        ("seed", 2**63), ("seed", -(2**63) - 1), ("seed", 1.0), ("seed", True),
        ("presence_penalty", 2.1), ("frequency_penalty", -2.1), ("frequency_penalty", math.nan),
        ("repetition_penalty", 0.0), ("repetition_penalty", -1.0), ("repetition_penalty", math.inf),
        ("repetition_penalty", math.nan), ("stop", ""), ("stop", ["a", ""]),
        ("logit_bias", {1: 100.5}), ("logit_bias", {1: math.nan}),
    ],
)  # fmt: skip
def test_a_value_out_of_range_names_its_setting(name: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        Sampling(**{name: value})
    assert caught.value.param == name
    assert caught.value.http_status == 400
    assert name in str(caught.value) or name == "stop"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [("stop_token_ids", [-1]), ("stop_token_ids", [True]), ("stop_token_ids", ["a"]), ("logit_bias", {-1: 0.0})],
)
def test_token_ids_are_integers_from_zero(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match="not a token id"):
        Sampling(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 1), ("temperature", 0), ("temperature", 100.0), ("top_k", 0), ("top_p", 1.0), ("top_p", 1e-9),
        ("min_p", 0.0), ("min_p", 1.0), ("seed", -(2**63)), ("seed", 2**63 - 1), ("seed", 0), ("n", 128),
        ("presence_penalty", -2.0), ("frequency_penalty", 2.0), ("repetition_penalty", 1e-3),
        ("logit_bias", {0: -100.0, 5: 100}),
    ],
)  # fmt: skip
def test_the_ends_of_each_range_are_in_it(name: str, value: Any) -> None:
    assert getattr(Sampling(**{name: value}), name) == value


def test_one_stop_string_is_a_tuple_of_one() -> None:
    assert Sampling(stop="ab").stop == ("ab",)
    assert Sampling(stop=["ab", "c"]).stop == ("ab", "c")
    assert Sampling().stop == ()


def test_settings_do_not_change_after_they_were_made() -> None:
    bias = {3: 1.0}
    sampling = Sampling(logit_bias=bias, stop_token_ids=[4])
    bias[3] = 2.0
    assert sampling.logit_bias == {3: 1.0}
    assert sampling.stop_token_ids == (4,)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampling.n = 2  # type: ignore[misc]


def test_a_missing_seed_stays_missing() -> None:
    assert Sampling().seed is None


@pytest.mark.parametrize(
    ("setting", "filtered", "penalised"),
    [
        ({}, False, False),
        ({"top_k": 1}, True, False),
        ({"top_p": 0.9}, True, False),
        ({"min_p": 0.1}, True, False),
        ({"repetition_penalty": 1.1}, False, True),
        ({"presence_penalty": 0.1}, False, True),
        ({"frequency_penalty": -0.1}, False, True),
    ],
)
def test_filtered_and_penalised(setting: dict[str, Any], filtered: bool, penalised: bool) -> None:
    sampling = Sampling(**setting)
    assert (sampling.filtered, sampling.penalised) == (filtered, penalised)


def test_usage_adds_up() -> None:
    assert Usage(prompt_tokens=5, completion_tokens=7).total_tokens == 12


def test_eval_01_acceptance_length_is_the_mean_over_rounds() -> None:
    assert stats((8, 3, 4)).acceptance_length == 5


def test_tokens_per_second_counts_the_first_token() -> None:
    assert stats((8, 3, 4), seconds=2.0).tokens_per_second == 8
    assert stats((), seconds=0.5).tokens_per_second == 2


def test_no_round_and_no_time_divide_nothing() -> None:
    assert stats(()).acceptance_length == 0
    assert stats((), seconds=0.0).tokens_per_second == 0
