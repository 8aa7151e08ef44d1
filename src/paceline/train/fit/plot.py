"""The picture of a run: loss, held-out figures and learning rate over the steps.

Needs matplotlib, and does without a picture where that is missing. Knows only the lines of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "save_plot"]

Lines = Sequence[Mapping[str, float]]


def save_plot(path: Path, lines: Lines, heldout: Collection[str]) -> None:
    """Draw `lines` into a file; without matplotlib only the program's log says that there is no picture."""
    if find_spec("matplotlib") is None:
        logging.getLogger(__name__).info("%s is not drawn: matplotlib is not installed.", path)
        return
    figure = draw(lines, heldout)
    write_atomically(path, lambda draft: figure.savefig(draft, dpi=100))


def draw(lines: Lines, heldout: Collection[str]) -> Figure:
    """One panel for the loss, for each figure of `heldout`, and for the learning rate."""
    from matplotlib.figure import Figure

    panels = {"loss": "#8d99ae", **dict.fromkeys(heldout, "#2a7de1"), "learning_rate": "#e07a1f"}
    figure = Figure(figsize=(7, 2.2 * len(panels)), layout="constrained")
    for axes, (name, colour) in zip(figure.subplots(len(panels), sharex=True), panels.items(), strict=True):
        _panel(axes, [(line["step"], line[name]) for line in lines if name in line], name, colour)
    axes.set_xlabel("step")
    return figure


def _panel(axes: Axes, points: Sequence[tuple[float, float]], name: str, colour: str) -> None:
    marker = "." if len(points) < 50 else ""  # the first evaluations are points without a line
    axes.plot([step for step, _ in points], [value for _, value in points], color=colour, marker=marker, linewidth=1)
    axes.set_ylabel(name.replace("_", " "))
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.grid(visible=True, alpha=0.3)
