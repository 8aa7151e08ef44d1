"""Files of settings as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline.yaml_file import read_mapping


def read(folder: Path, text: str) -> object:
    (folder / "run.yaml").write_text(text, encoding="utf-8")
    return read_mapping(folder / "run.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("steps: 1\nseed: 2\n\nsteps: 3\n", "steps twice, in lines 1 and 4"),
        ("training:\n  lr: 1\ntraining:\n  steps: 3\n", "training twice, in lines 1 and 3"),
        ("training:\n  lr: 1\n  lr: 2\n", "lr twice, in lines 2 and 3"),
        ("training.lr: 1\ntraining: {lr: 2}\n", "training.lr twice"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"run\.yaml sets {told}\..*Leave one out"):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["seed: 2024-02-30\n", "seed: 0x_\n", f"nodes: {'9' * 5000}\n", "a: " + "[" * 20_000])
def test_what_python_cannot_read_is_an_error_of_the_file(tmp_path: Path, text: str) -> None:
    """Dates and numbers that are none, and brackets without end."""
    with pytest.raises(ConfigError, match=r"run\.yaml cannot be read"):
        read(tmp_path, text)


def test_sections_and_numbers_without_a_point_are_read(tmp_path: Path) -> None:
    text = "base: &base {lr: 4e-3}\ntraining: {<<: *base, steps: 3}\nseed: 2\n"
    assert read(tmp_path, text) == {"base.lr": 4e-3, "training.lr": 4e-3, "training.steps": 3, "seed": 2}
