"""Fading counts: how drafts fared, how far the drafter is to be believed, how long rounds took."""

from __future__ import annotations

import random

import pytest

from paceline.decode.experience import Calibration, Drift, Pace


def test_acceptance_is_conditional_and_fades() -> None:
    pace = Pace()
    for _ in range(200):
        pace.learn(1, 1, 2)
    assert pace.acceptance(1, 0) > 0.9
    assert pace.acceptance(1, 1) < 0.2
    for _ in range(60):
        pace.learn(1, 2, 3)
    assert pace.acceptance(1, 1) > 0.9
    assert Pace().acceptance(1, 5) == 0.7


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
    pace.learn(1, 1, 2)
    assert pace.width == 1.0
    for _ in range(100):
        pace.learn(1, 1, 2, width=3.0)
    assert pace.width == pytest.approx(3.0, abs=1e-3)
