from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from paceline.errors import BadRequest
from paceline.request import Infill, Sampling


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
    with pytest.raises(BadRequest, match=r"^max_tokens is 4294967296\. It must be an integer from 1 to 2147483648\.$"):
        Sampling(max_tokens=2**32)
    with pytest.raises(BadRequest, match=r"^temperature is 'hot'\. It must be a number from 0 to 100\.$"):
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


@pytest.mark.parametrize("number", [np.int64(3), torch.tensor(3)])
def test_integers_of_other_libraries_become_pythons(number: Any) -> None:
    whole = {"max_tokens": number, "top_k": number, "seed": number, "n": number, "temperature": number}
    sampling = Sampling(**whole, stop_token_ids=[number], logit_bias={number: number})
    values = [*(getattr(sampling, name) for name in whole), *sampling.stop_token_ids, *sampling.logit_bias]
    assert {(value, type(value)) for value in values} == {(3, int)}
    assert Infill([1], [number]).suffix == (3,)


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


def test_a_suffix_is_text_or_ids() -> None:
    assert Infill("a", "b").suffix == "b"
    assert Infill([1], [2, 3]).suffix == (2, 3)
    for suffix in (5, None, [{"role": "user", "content": "x"}], [-1], b"ab"):
        with pytest.raises(BadRequest, match="suffix") as caught:
            Infill("a", suffix)  # type: ignore[arg-type]
        assert caught.value.param == "suffix"
