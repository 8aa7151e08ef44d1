"""Figures of hand-made answers."""

from __future__ import annotations

import pytest

from paceline.bench.accuracy import ACCURACY_DEFINITIONS, GradedAnswer, accuracy_figures, kept_figures, speed_figures
from paceline.bench.intervals import Pairs, kept_share_low, wilson

MINE = [
    GradedAnswer("sums", 1, True, 10, 5, 0.1, 100, 50),
    GradedAnswer("sums", 2, False, 20, 5, 0.4, 100, 90),
    GradedAnswer("records", 1, True, 30, 10, 0.2, 200, 100),
]
THEIRS = [
    GradedAnswer("sums", 1, True, 10, 11, 0.1, 0, 0),
    GradedAnswer("sums", 2, True, 20, 21, 0.1, 0, 0),
    GradedAnswer("records", 1, False, 30, 31, 0.1, 0, 0),
]


def test_right_answers_in_all_by_kind_and_by_level() -> None:
    figures = accuracy_figures(MINE)
    assert (figures["problems"], figures["right"], figures["accuracy"]) == (3, 2, pytest.approx(2 / 3))
    assert figures["accuracy_interval"] == list(wilson(2, 3))
    assert {kind: found["accuracy"] for kind, found in figures["kinds"].items()} == {"sums": 0.5, "records": 1.0}
    assert figures["kinds"]["sums"]["accuracy_interval"] == list(wilson(1, 2))
    assert list(figures["levels"]) == ["1", "2"]
    easy, hard = figures["levels"].values()
    assert (easy["accuracy"], easy["forwards_per_answer"], easy["tokens_per_forward"]) == (1.0, 7.5, 40 / 15)
    assert (hard["accuracy"], hard["forwards_per_answer"], hard["tokens_per_forward"]) == (0.0, 5.0, 4.0)


def test_speed_is_over_all_answers() -> None:
    figures = speed_figures(MINE, 2.0)
    assert figures["tokens"] == 60
    assert figures["tokens_per_second"] == 30.0
    assert figures["tokens_per_forward"] == 3.0
    assert figures["first_token_ms"] == pytest.approx(200.0)
    assert figures["prefix_hit_rate"] == 0.6
    assert speed_figures(THEIRS, 2.0)["prefix_hit_rate"] is None


def test_what_is_kept_is_paired() -> None:
    figures = kept_figures(MINE, THEIRS)
    assert figures["pairs"] == {"both": 1, "only_setting": 1, "only_reference": 1, "neither": 0}
    assert figures["kept_share"] == 1.0
    assert figures["kept_share_low"] == kept_share_low(Pairs(1, 1, 1, 0))


def test_every_figure_is_defined() -> None:
    figures = accuracy_figures(MINE) | speed_figures(MINE, 1.0) | kept_figures(MINE, THEIRS)
    by_level = {name for found in figures["levels"].values() for name in found}
    assert figures.keys() | by_level == ACCURACY_DEFINITIONS.keys()
