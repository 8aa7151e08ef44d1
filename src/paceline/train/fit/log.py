"""The log of a run: one JSON object per step and line, in order, each step once. Knows only figures by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import TrainingError
from paceline.files import write_text

__all__ = ["append", "forget_after", "read_log"]


def append(path: Path, figures: Mapping[str, float]) -> None:
    """Add the line of a step."""
    with path.open("a", encoding="utf-8") as log:
        log.write(json.dumps({key: round(value, 6) for key, value in figures.items()}) + "\n")


def read_log(path: Path) -> list[dict[str, float]]:
    """The figures of every step; a line that is being written, or that a kill has cut, is not read.

    Raises:
        TrainingError: another line that is broken.
    """
    return [_figures(path, line) for line in _whole_lines(path)]


def forget_after(path: Path, step: int) -> None:
    """Drop the lines behind the checkpoint: a killed run had gone further than it had saved.

    Raises:
        TrainingError: as `read_log`.
    """
    if path.exists():
        kept = "".join(line for line in _whole_lines(path) if _figures(path, line)["step"] <= step)
        if kept != path.read_text(encoding="utf-8"):
            write_text(path, kept)


def _whole_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]


def _figures(path: Path, line: str) -> dict[str, float]:
    try:
        figures: dict[str, float] = json.loads(line)
        int(figures["step"])  # without it nothing can be said of a line
    except (ValueError, KeyError, TypeError) as error:
        told = f"{path} has a line that is none of a log: {line.strip()!r:.60}."
        raise TrainingError(told, remedy="Remove that line.") from error
    return figures
