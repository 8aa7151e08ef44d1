"""The arithmetic of the benchmark, on times that are written down."""

from __future__ import annotations

import pytest

from paceline.bench.figures import DEFINITIONS, Sample, distinct_4gram_share, figures, other_share, share_of_bandwidth


def sample(seconds: float, tokens: tuple[int, ...] = (1, 2, 3, 4, 5), committed: tuple[int, ...] = (3, 1)) -> Sample:
    return Sample(tokens, committed, 0.1 * seconds, 0.2 * seconds, 0.5 * seconds, seconds)


def test_times_are_sums_of_medians_and_speedup_is_the_median_of_paired_ratios() -> None:
    plain = [[sample(1.0), sample(4.0), sample(2.0)], [sample(3.0), sample(3.0), sample(9.0)]]
    fast = [[sample(0.5), sample(1.0), sample(1.0)], [sample(1.0), sample(1.5), sample(3.0)]]
    found = figures(fast, plain)
    assert found["tokens"] == 10
    assert found["prompts"] == 2
    assert found["ms_per_token"] == pytest.approx(1000 * (1.0 + 1.5) / 10)
    assert found["tokens_per_second"] == pytest.approx(10 / 2.5)
    assert found["decode_ms_per_token"] == pytest.approx(1000 * 0.9 * 2.5 / 8)
    assert found["speedup_vs_ar"] == pytest.approx(2.5)  # of 2, 4, 2, 3, 2, 3
    assert found["speedup_quartiles"] == pytest.approx([2.0, 3.0])
    assert found["prompt_seconds"] == pytest.approx(0.25)
    assert found["draft_seconds"] == pytest.approx(0.5)
    assert found["verify_seconds"] == pytest.approx(1.25)
    assert found["other_seconds"] == pytest.approx(0.5)
    assert found["acceptance_length"] == 2.0
    assert found["tokens_per_round"] == {"1": 2, "3": 2}


def test_plain_decoding_is_once_as_fast_as_itself() -> None:
    runs = [[sample(1.0), sample(2.0)]]
    assert figures(runs, runs)["speedup_vs_ar"] == 1.0


def test_one_measurement_and_an_answer_of_one_token() -> None:
    runs = [[sample(1.0, (9,), ())]]
    found = figures(runs, runs)
    assert found["acceptance_length"] == 0.0
    assert found["distinct_4gram_share"] is None
    assert not found["counts"]


def test_distinct_4grams() -> None:
    assert distinct_4gram_share([1, 2, 3]) is None
    assert distinct_4gram_share([1, 2, 3, 4]) == 1.0
    assert distinct_4gram_share([1, 1, 1, 1, 1, 1]) == pytest.approx(1 / 3)
    assert distinct_4gram_share([1, 2] * 50) == pytest.approx(2 / 97)


def test_looping_text_does_not_count_and_short_answers_weigh_little() -> None:
    varied, looping = tuple(range(100)), (1, 2) * 50
    short = (1, 1, 1, 1, 1, 1)
    assert figures([[sample(1.0, varied)]], [[sample(1.0, varied)]])["counts"]
    assert not figures([[sample(1.0, looping)]], [[sample(1.0, looping)]])["counts"]
    mixed = [[sample(1.0, varied)], [sample(1.0, short)]]
    assert figures(mixed, mixed)["distinct_4gram_share"] == pytest.approx(98 / 100)


def test_share_of_bandwidth_counts_the_rounds_without_the_prompt() -> None:
    runs = [[sample(1.0), sample(4.0), sample(2.0)], [sample(3.0), sample(3.0), sample(9.0)]]
    share = share_of_bandwidth(runs, bytes_per_pass=900, bytes_per_second=4000.0)
    assert share == pytest.approx(900 * (2 + 2) / (0.9 * (2.0 + 3.0)) / 4000)
    assert share_of_bandwidth([[sample(1.0, (9,), ())]], 900, 4000.0) is None


def test_every_figure_is_defined() -> None:
    runs = [[sample(1.0)]]
    assert figures(runs, runs).keys() - {"prompts"} <= DEFINITIONS.keys()


def test_the_share_of_time_outside_the_models() -> None:
    """Without the prompt pass: 0.2 of 0.9 seconds of a sample of one second."""
    assert other_share([[sample(1.0), sample(3.0), sample(2.0)]]) == pytest.approx(0.2 / 0.9)
    assert other_share([[sample(1.0, (9,), ())]]) is None


def test_eval_01_the_mean_counts_what_left_the_engine() -> None:
    """eval-01: rounds of 8, 3 and 4 tokens, the last cut at an end token, are 5 per round; the first token is extra."""
    cut = [[sample(1.0, tuple(range(16)), (8, 3, 4))]]
    found = figures(cut, cut)
    assert found["acceptance_length"] == 5.0
    assert found["tokens"] == 1 + sum((8, 3, 4))
    assert "bonus token included" in DEFINITIONS["acceptance_length"]
