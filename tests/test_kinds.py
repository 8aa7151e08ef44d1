"""Kinds of values, as type hints say them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from paceline.kinds import Range, fits, from_word, is_integer, kind_described, plain, takes_one_text, words_of


@pytest.mark.parametrize(
    ("kind", "value", "other", "told"),
    [
        (int, 1, True, "an integer"),
        (int, 0, 1.0, "an integer"),
        (float, 1, float("inf"), "a number"),
        (float, 0.5, "0.5", "a number"),
        (bool, True, 1, "true or false"),
        (str, "a", Path("a"), "text"),
        (Path, "a", 3, "a path"),
        (int | Literal["auto"] | None, "auto", "automatic", "an integer or 'auto' or null"),
        (int | Literal["auto"] | None, None, [], "an integer or 'auto' or null"),
        (Literal["a", "b"], "b", "c", "'a' or 'b'"),
        (tuple[int, str], [1, "a"], [1, 2], "a list of 2: an integer, text"),
        (tuple[int, ...], [1, 2, 3], [1, "a"], "a list, each an integer"),
        (list[str] | None, ["a"], "a", "text, or a list, each text or null"),
    ],
)
def test_a_kind_tells_values_apart(kind: Any, value: object, other: object, told: str) -> None:
    assert fits(value, kind)
    assert not fits(other, kind)
    assert kind_described(kind, Range()) == told


def test_bounds_belong_to_the_range_and_hold_for_each_of_many() -> None:
    closed, open_ends = Range(1, 2), Range(above=1, below=2)
    assert [closed.holds(value) for value in (0.9, 1, 2, 2.1)] == [False, True, True, False]
    assert [open_ends.holds(value) for value in (1, 1.5, 2)] == [False, True, False]
    assert [closed.holds(value) for value in ((1, 2), [1, 3], ())] == [True, False, True]
    assert all(Range(5, 9).holds(value) for value in (True, "a", None))
    assert Range().holds(10**9)


@pytest.mark.parametrize(
    ("kind", "bounds", "told"),
    [
        (float, Range(0, 0.5), "a number from 0 to 0.5"),
        (int, Range(least=1), "an integer of at least 1"),
        (float, Range(above=0, most=1), "a number above 0 and of at most 1"),
        (float, Range(least=0, below=1), "a number of at least 0 and below 1"),
        (int | Literal["auto"] | None, Range(1, 64), "an integer from 1 to 64, or 'auto', or null"),
        (tuple[int, ...], Range(1, 9), "a list, each an integer from 1 to 9"),
        (int, Range(-(2**63), 2**63 - 1), "an integer from -9223372036854775808 to 9223372036854775807"),
    ],
)
def test_a_range_is_told_whole(kind: Any, bounds: Range, told: str) -> None:
    assert kind_described(kind, bounds) == told


@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), torch.tensor(3)])
def test_an_integer_is_what_python_takes_for_one(number: Any) -> None:
    assert fits(number, int)
    assert fits(number, float | None)
    assert type(plain(number)) is int


@pytest.mark.parametrize("value", [True, np.bool_(True), 3.0, np.float64(3.0), "3", None, torch.tensor(3.0)])
def test_what_is_no_integer_stays_what_it_is(value: Any) -> None:
    assert not is_integer(value)
    assert plain(value) is value


def test_numbers_without_end_are_none() -> None:
    assert not any(fits(value, float) for value in (float("nan"), float("inf"), 10**400))


@pytest.mark.parametrize(
    ("word", "kind", "value"),
    [
        ("3", int, 3),
        ("3", float, 3.0),
        ("3", int | Literal["auto"], 3),
        ("auto", int | Literal["auto"], "auto"),
        ("1.5", int, 1.5),
        ("x", float, "x"),
        ("3", str, "3"),
        (["3", "4"], tuple[int, ...], (3, 4)),
        (("3", "x"), tuple[int, str], (3, "x")),
        (True, bool, True),
    ],
)
def test_words_of_the_command_line_become_values(word: Any, kind: Any, value: Any) -> None:
    found = from_word(word, kind)
    assert (found, type(found)) == (value, type(value))


def test_one_text_may_stand_for_a_list_of_texts() -> None:
    assert all(map(takes_one_text, (tuple[str, ...], list[str], list[str] | None)))
    assert not any(map(takes_one_text, (str, tuple[int, ...], tuple[str, str], str | None)))
    assert kind_described(tuple[str, ...], Range()) == "text, or a list, each text"


def test_words_in_place_of_a_number() -> None:
    assert words_of(int | Literal["auto"] | None) == ("auto",)
    assert words_of(Literal["a", "b"]) == words_of(int) == ()
