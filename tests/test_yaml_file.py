"""Files of settings as they are written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.yaml_file import read_mapping, yaml_word


def read(folder: Path, text: str) -> Any:
    (folder / "run.yaml").write_text(text, encoding="utf-8")
    return read_mapping(folder / "run.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("steps: 1\nseed: 2\n\nsteps: 3\n", "steps twice, in lines 1 and 4"),
        ("training:\n  lr: 1\ntraining:\n  steps: 3\n", "training twice, in lines 1 and 3"),
        ("training:\n  lr: 1\n  lr: 2\n", "lr twice, in lines 2 and 3"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"run\.yaml sets {told}\..*Leave one out"):
        read(tmp_path, text)


@pytest.mark.parametrize("text", [f"nodes: {'9' * 5000}\n", "a: " + "[" * 20_000])
def test_what_python_cannot_read_is_an_error_of_the_file(tmp_path: Path, text: str) -> None:
    """Numbers that are too long, and brackets without end."""
    with pytest.raises(ConfigError, match=r"run\.yaml cannot be read"):
        read(tmp_path, text)


def test_sections_and_numbers_without_a_point_are_read(tmp_path: Path) -> None:
    text = "base: &base {lr: 4e-3}\ntraining: {<<: *base, steps: 3}\nseed: 2\n"
    assert read(tmp_path, text) == {"base.lr": 4e-3, "training.lr": 4e-3, "training.steps": 3, "seed": 2}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *(("010", 10), ("0o10", 8), ("0x1F", 31), ("-7", -7), ("+7", 7), ("1e3", 1000.0), ("4e-3", 4e-3), (".5", 0.5)),
        *(("5.", 5.0), ("-.inf", -math.inf), ("true", True), ("no", False), ("~", None), ("'3'", "3")),
        *(("1:30", "1:30"), ("1_000", "1_000"), ("0b11", "0b11"), ("2024-02-30", "2024-02-30"), ("0x_", "0x_")),
    ],
)
def test_numbers_are_those_of_yaml_1_2(tmp_path: Path, word: str, value: object) -> None:
    """In YAML 1.1, 010 is 8 and 1:30 is 90. Words for true, false and null are as there."""
    found = read(tmp_path, f"seed: {word}\n")
    assert found == {"seed": value}
    assert type(found["seed"]) is type(value)


def test_values_are_told_as_they_are_written() -> None:
    told = {yaml_word(value) for value in (None, True, [1, None], {"a": False}, math.nan, -math.inf, "a", 1.5)}
    assert told == {"null", "true", "[1, null]", "{'a': false}", ".nan", "-.inf", "'a'", "1.5"}
