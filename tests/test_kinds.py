"""Kinds of values, as type hints say them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from paceline.kinds import fits, in_range, kind_described, words_of


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
        (list[str] | None, ["a"], "a", "a list, each text or null"),
    ],
)
def test_a_kind_tells_values_apart(kind: Any, value: object, other: object, told: str) -> None:
    assert fits(value, kind)
    assert not fits(other, kind)
    assert kind_described(kind) == told


def test_bounds_belong_to_the_range_and_hold_for_each_of_many() -> None:
    assert [in_range(value, 1, 2) for value in (0.9, 1, 2, 2.1)] == [False, True, True, False]
    assert [in_range(value, 1, 2) for value in ((1, 2), [1, 3], ())] == [True, False, True]
    assert all(in_range(value, 5, 9) for value in (True, "a", None))
    assert in_range(10**9, None, None)


def test_words_in_place_of_a_number() -> None:
    assert words_of(int | Literal["auto"] | None) == ("auto",)
    assert words_of(Literal["a", "b"]) == words_of(int) == ()
