"""Settings of the recipes of APD's models that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline.train.diffusion_options import DllmConfig, SamplesConfig
from paceline.train.options import FitConfig, ResponsesConfig


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ((32, 40, 256), "longest_row is 40"),
        ((48, 64, 256), "shortest_row is 48"),
        ((96, 64, 256), "shortest_row is 96, and longest_row is 64"),
        ((32, 64, 48), "tokens_per_batch is 48, and longest_row is 64"),
    ],
)
def test_rows_that_fit_nothing(rows: tuple[int, int, int], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        DllmConfig(Path("corpus"), FitConfig(1), *rows)


def test_rows_that_fill_a_batch() -> None:
    assert DllmConfig(Path("corpus"), FitConfig(1), 64, 64, 64).tokens_per_batch == 64


def test_a_batch_is_of_tokens_or_of_rows() -> None:
    def config(**batch: int) -> DllmConfig:
        return DllmConfig(Path("corpus"), FitConfig(1), **batch)

    assert (config().batch, config().rows_of(384), config().rows_of(64)) == (("tokens_per_batch", 4224), 11, 66)
    by_tokens, by_rows = config(tokens_per_batch=400), config(rows_per_batch=3)
    assert (by_tokens.batch, by_tokens.rows_of(64)) == (("tokens_per_batch", 400), 6)
    assert (by_rows.batch, by_rows.rows_of(64), by_rows.rows_of(384)) == (("rows_per_batch", 3), 3, 3)
    with pytest.raises(ConfigError, match="rows_per_batch is 3, and tokens_per_batch is 4224"):
        config(rows_per_batch=3, tokens_per_batch=4224)


def test_a_pass_fixes_no_more_than_it_sees() -> None:
    SamplesConfig(ResponsesConfig(), window=2, tokens_per_step=2)
    SamplesConfig(ResponsesConfig(), window=None, tokens_per_step=99)
    with pytest.raises(ConfigError, match="tokens_per_step is 3, and window is 2"):
        SamplesConfig(ResponsesConfig(), window=2, tokens_per_step=3)
