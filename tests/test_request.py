from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from paceline.errors import BadRequest
from paceline.request import Infill, Round, Sampling, Stats, Usage


def stats(accepted: tuple[int, ...] = (), seconds: float = 2.0) -> Stats:
    rounds, kept = len(accepted), sum(accepted) - len(accepted)
    return Stats("dflash", rounds, sum(accepted) + 1, accepted, 7 * rounds, 5 * rounds, kept, 0.5, 0.5, seconds)


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
        ("max_tokens", 2**32), ("repetition_penalty", 10**400), ("temperature", 10**400), ("max_tokens", None),
        ("top_p", "x"), ("min_p", []), ("repetition_penalty", "x"), ("presence_penalty", None), ("n", "2"),
        ("seed", "7"), ("temperature", True), ("top_p", True), ("min_p", False), ("repetition_penalty", True),
        ("top_k", True), ("presence_penalty", False), ("frequency_penalty", True), ("temperature", 1j), ("top_k", None),
        ("stop", None), ("stop", [1]), ("stop", 5), ("stop", b"a"), ("stop", {"a": 1}), ("stop", [None]),
        ("stop", ["a", 1]),
        ("stop_token_ids", 5), ("stop_token_ids", None), ("stop_token_ids", "12"), ("stop_token_ids", b"12"),
        ("stop_token_ids", [-1]), ("stop_token_ids", [True]), ("stop_token_ids", ["a"]), ("stop_token_ids", [[1]]),
        ("logit_bias", {1: "x"}), ("logit_bias", {1: None}), ("logit_bias", {1: True}), ("logit_bias", None),
        ("logit_bias", [1]), ("logit_bias", "a"), ("logit_bias", {-1: 0.0}), ("logit_bias", {"1": 0.0}),
        ("logit_bias", {1: 10**400}), ("logit_bias", {True: 1.0}),
    ],
)  # fmt: skip
def test_a_value_out_of_range_names_its_setting(name: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        Sampling(**{name: value})
    assert caught.value.param == name
    assert caught.value.http_status == 400
    assert name in str(caught.value) or name == "stop"
    assert caught.value.remedy


def test_a_bad_token_id_is_named_with_its_setting() -> None:
    for name, value in (("stop_token_ids", (3, -1)), ("logit_bias", {3: 1.0, -1: 1.0})):
        with pytest.raises(BadRequest, match=rf"^{name} contains -1, which is not a token id\."):
            Sampling(**{name: value})


def test_the_rule_of_a_message_says_what_was_broken() -> None:
    with pytest.raises(BadRequest, match=r"^max_tokens is 4294967296\. It must be an integer in \[1, 2\*\*31\]\.$"):
        Sampling(max_tokens=2**32)
    with pytest.raises(BadRequest, match=r"^temperature is 'hot'\. It must be a number in \[0, 100\]\.$"):
        Sampling(temperature="hot")  # type: ignore[arg-type]


def test_a_long_value_is_not_echoed_whole() -> None:
    with pytest.raises(BadRequest) as caught:
        Sampling(stop=[5, "x" * 10_000])  # type: ignore[list-item]
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 1), ("max_tokens", 2**31), ("seed", None), ("temperature", 0), ("temperature", 100.0),
        ("top_k", 0), ("top_p", 1.0), ("top_p", 1e-9),
        ("min_p", 0.0), ("min_p", 1.0), ("seed", -(2**63)), ("seed", 2**63 - 1), ("seed", 0), ("n", 128),
        ("presence_penalty", -2.0), ("frequency_penalty", 2.0), ("repetition_penalty", 0.01),
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


def test_the_prompt_pass_is_a_forward_pass_where_it_gives_a_token() -> None:
    assert (stats((8, 3, 4)).forward_passes, stats((8, 3, 4)).tokens_per_forward) == (4, 4)


def test_a_diffusion_pass_drafts_nothing_that_is_judged() -> None:
    """Two tokens behind a mask, then the mask: nothing and then all three are committed."""
    rounds = [Round((5, 6), (), (), 0, 0.5, 0.0, (1, 2)), Round((4,), (), (4, 5, 6), 0, 0.5, 0.0, (0,))]
    found = Stats.of("diffusion", rounds, 3, 2.0)
    assert (found.rounds, found.accepted_per_round, found.acceptance_length) == (2, (0, 3), 1.5)
    assert (found.drafted_tokens, found.checked_tokens, found.accepted_tokens) == (0, 0, 0)
    assert (found.forward_passes, found.tokens_per_forward) == (2, 1.5)
    assert (found.draft_seconds, found.verify_seconds, found.tokens_per_second) == (1.0, 0.0, 1.5)


def test_the_first_draft_of_apd_is_judged_by_nobody() -> None:
    """Two of five kept, and the third refused; then a lone draft; then three, all kept. 16 of 20 tokens reused."""
    rounds = [
        Round((4, 5, 6, 7, 8), (5, 9, 1, 1), (4, 5), 1, 0.5, 0.25, (), 10, 6),
        Round((6,), (), (6,), 0, 0.5, 0.25, (), 4, 4),
        Round((7, 8, 9), (8, 9), (7, 8, 9), 2, 0.5, 0.25, (), 6, 6),
    ]
    assert [round.unjudged for round in rounds] == [1, 1, 1]
    found = Stats.of("apd", rounds, 6, 3.0)
    assert (found.drafted_tokens, found.checked_tokens, found.accepted_tokens) == (6, 4, 3)
    assert (found.forward_passes, found.tokens_per_forward, found.prefix_hit_rate) == (3, 2, 0.8)
    assert (found.draft_seconds, found.verify_seconds) == (1.5, 0.75)


def test_a_draft_behind_the_end_of_the_answer_was_not_judged() -> None:
    """APD kept five and DFlash three with a bonus, and a stop string ended the answer in the second of them."""
    apd = Round((4, 5, 6, 7, 8), (5, 6, 7, 8), (4, 5, 6, 7, 8), 4, 0.5, 0.25).cut(2)
    assert (apd.committed, apd.accepted, apd.checked, apd.drafted) == ((4, 5), 1, 1, 4)
    dflash = Round((4, 5, 6, 7), (4, 5, 6, 1, 2), (4, 5, 6, 1), 3, 0.5, 0.25)
    assert (dflash.accepted, dflash.checked, dflash.cut(4)) == (3, 4, dflash)
    assert (dflash.cut(3).accepted, dflash.cut(3).checked) == (3, 3)
    assert (dflash.cut(2).accepted, dflash.cut(2).checked) == (2, 2)
    assert (dflash.cut(0).committed, dflash.cut(0).accepted, apd.cut(0).accepted) == ((), 0, 0)


def test_a_suffix_is_text_or_ids() -> None:
    assert Infill("a", "b").suffix == "b"
    assert Infill([1], [2, 3]).suffix == (2, 3)
    for suffix in (5, None, [{"role": "user", "content": "x"}], [-1], b"ab"):
        with pytest.raises(BadRequest, match="suffix") as caught:
            Infill("a", suffix)  # type: ignore[arg-type]
        assert caught.value.param == "suffix"


def test_no_round_and_no_time_divide_nothing() -> None:
    assert stats(()).acceptance_length == stats(()).prefix_hit_rate == 0
    assert Stats.of("diffusion", [], 0, 0.0).tokens_per_forward == 0
    assert stats((), seconds=0.0).tokens_per_second == 0
