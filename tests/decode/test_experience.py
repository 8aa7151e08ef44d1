"""Fading counts: how drafts fared, how far the drafter is to be believed, how long rounds took."""

from __future__ import annotations

import random

import pytest

from paceline.decode.experience import Acceptance, Calibration, Copies, Drift, Habit, Pace


def test_acceptance_is_conditional_and_fades() -> None:
    acceptance, usual = Acceptance(), [0.7] * 2
    for _ in range(200):
        acceptance.learn(1, 1, 2)
    first, second = acceptance.likely(1, usual, 1.0)
    assert (first > 0.9, second < 0.2) == (True, True)
    for _ in range(60):
        acceptance.learn(1, 2, 3)
    assert acceptance.likely(1, usual, 1.0)[1] > 0.9
    assert Acceptance().likely(1, [0.7] * 6, 1.0) == [0.7] * 6


def test_what_is_usual_is_shifted_by_what_was_seen() -> None:
    """A first place half as good as usual halves the next ones; one that is better makes them half as much better."""
    usual = [0.8, 0.6, 0.9]
    worse, better = Acceptance(), Acceptance()
    for _ in range(500):
        worse.learn(1, 0, 1)
        better.learn(1, 1, 1)
    first, second, third = worse.likely(1, usual, 1.0)
    assert (second / usual[1], third / usual[2]) == pytest.approx((first / usual[0],) * 2)
    first, second, third = better.likely(1, usual, 1.0)
    shares = [(1 - found) / (1 - common) for found, common in zip((first, second, third), usual, strict=True)]
    assert [1 - share for share in shares] == pytest.approx([1 - shares[0], (1 - shares[0]) / 2, (1 - shares[0]) / 4])


def test_a_habit_is_what_most_answers_did() -> None:
    habit = Habit()
    assert (habit.known, habit.likely(Acceptance(), 1, 3)) == (False, [0.7] * 3)
    for _ in range(200):
        habit.learn(1, 0, 1)
    assert habit.known
    assert max(habit.likely(Acceptance(), 1, 3)) < 0.05
    assert habit.likely(Acceptance(), 2, 3) == [0.7] * 3, "other steps are not known yet"


def test_an_unbiased_drafter_is_believed() -> None:
    """20,000 drafts of a drafter that says what is true: five standard deviations are below 0.03."""
    rng, calibration = random.Random(3), Calibration()
    for _ in range(20_000):
        said = rng.random()
        calibration.learn(said, rng.random() < said)
    for said in (0.01, 0.1, 0.3, 0.6, 0.85, 0.95, 0.99):
        assert calibration.probability(said) == pytest.approx(said, abs=0.1)


def test_drift_follows_slowly_and_forgives_a_pause() -> None:
    drift = Drift()
    drift.learn(True, 1000.0)
    assert drift.drafted == pytest.approx(1.1)
    assert drift.plain == 1.0
    for _ in range(100):
        drift.learn(False, 1.5)
    assert drift.plain == pytest.approx(1.5, abs=1e-3)


def test_the_width_of_trees_is_remembered() -> None:
    pace = Pace()
    pace.count(1, 1.0)
    assert pace.width == 1.0
    for _ in range(100):
        pace.count(1, 3.0)
    assert pace.width == pytest.approx(3.0, abs=1e-3)


def test_copies_are_known_by_the_length_of_their_match() -> None:
    """Long matches right nine times in ten, short ones once: fading counts of 50, within five deviations of 0.04."""
    rng, copies = random.Random(5), Copies()
    assert copies.probability(1) == copies.probability(16) == 0.5
    for _ in range(500):
        copies.learn(1, rng.random() < 0.1)
        copies.learn(12, rng.random() < 0.9)
    assert copies.probability(1) == pytest.approx(0.1, abs=0.2)
    assert copies.probability(15) == pytest.approx(0.9, abs=0.2)
    assert copies.probability(16) == 0.5
