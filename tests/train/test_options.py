"""Settings of the recipes that are refused."""

from __future__ import annotations

import pytest

from paceline.errors import ConfigError
from paceline.train.options import DrafterConfig, FitConfig, Objective, ResponsesConfig


@pytest.mark.parametrize("temperatures", [(0.0, 1.0), (1.0, 0.5), (-1.0, 1.0), (0.5, 1000.0), (float("nan"), 1.0)])
def test_temperatures_that_are_refused(temperatures: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=r"temperatures is \(.*Give the lower one first"):
        ResponsesConfig(temperatures=temperatures)


def test_one_temperature_for_all() -> None:
    assert ResponsesConfig(temperatures=(1.0, 1.0)).temperatures == (1.0, 1.0)


def test_shares_of_the_loss_that_are_more_than_all_of_it() -> None:
    Objective(distill_share=0.7, step_distill_share=0.3)
    with pytest.raises(ConfigError, match=r"distill_share is 0\.7, and step_distill_share is 0\.4"):
        Objective(distill_share=0.7, step_distill_share=0.4)


@pytest.mark.parametrize("size", [1, 3])
def test_blocks_that_are_too_small(size: int) -> None:
    with pytest.raises(ConfigError, match=f"block_size is {size}"):
        DrafterConfig(FitConfig(1), block_size=size)


@pytest.mark.parametrize(("given", "first"), [(None, 16), (0, 0), (9, 9)])
def test_blocks_of_a_drafter_that_begins_with_random_weights(given: int | None, first: int) -> None:
    assert DrafterConfig(FitConfig(1), block_size=given).first_block_size == first
