"""APD's rules of trust."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from paceline.decode.adaptive import Adaptive, dllm_weight, next_window
from paceline.errors import ConfigError

adaptive = partial(Adaptive, schedule="adaptive")


@pytest.mark.parametrize(
    ("settings", "confidence", "weight"),
    [
        (Adaptive(alpha=0.7, schedule="fixed"), 0.1, 0.7),
        (adaptive(alpha=0.7, tau=0.5), 0.0, 0.7),
        (adaptive(alpha=0.5, tau=0.0), 0.5, 0.5),
        (adaptive(alpha=0.25, tau=0.0), 0.0, 1 / 7),
        (adaptive(alpha=0.3), 1.0, 1.0),
        (adaptive(alpha=0.3, tau=1.0), 0.0, 1.0),
        (adaptive(alpha=0.0, tau=1.0), 1.0, 0.0),
        (adaptive(alpha=1.0, tau=0.0), 0.0, 1.0),
    ],
)
def test_weight(settings: Adaptive, confidence: float, weight: float) -> None:
    assert dllm_weight(settings, confidence) == pytest.approx(weight, rel=1e-15)


@pytest.mark.parametrize("confidence", [0.0, 0.3, 0.9])
def test_at_one_half_the_product_is_the_articles(confidence: float) -> None:
    """marginal * joint ** (1 - mean(joint)): both exponents of the product, divided by R."""
    weight = dllm_weight(adaptive(alpha=0.5, tau=0.5), confidence)
    assert (1 - weight) / weight == pytest.approx(1 - confidence, rel=1e-15)


@pytest.mark.parametrize(
    ("settings", "masks", "confidence", "window"),
    [
        (adaptive(window=32), 100, 1.0, 32),
        (adaptive(window=32), 100, 0.0, 4),
        (adaptive(window=32), 100, 0.5, 18),
        (adaptive(window=32), 10, 0.5, 7),
        (adaptive(window=32), 3, 0.0, 3),
        (adaptive(window=2), 100, 0.0, 2),
        (adaptive(window=None), 100, 0.0, 100),
        (Adaptive(window=32, schedule="fixed"), 100, 0.0, 32),
        (Adaptive(window=32, schedule="fixed"), 7, 0.0, 7),
        (adaptive(window=32), 0, 0.5, 0),
    ],
)
def test_window(settings: Adaptive, masks: int, confidence: float, window: int) -> None:
    assert next_window(settings, masks, confidence) == window


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.1}, "alpha is 1.1"),
        ({"alpha": -0.1}, "alpha is -0.1"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"tau": 2.0}, "tau is 2.0"),
        ({"window": 0}, "window is 0"),
        ({"kv_window": 0}, "kv_window is 0"),
        ({"schedule": "warm"}, "schedule is 'warm'"),
        ({"window": 3.5}, "window is 3.5"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Adaptive(**settings)
