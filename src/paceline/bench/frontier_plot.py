"""The picture of accuracy over speed, and of how many passes an answer takes by the level of its problem.

Needs matplotlib. Knows only the plain data of a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from paceline.bench.frontier import frontier
from paceline.bench.plot import tidy
from paceline.bench.quality_options import ADAPTIVE, REFERENCE
from paceline.bench.quality_report import compared_models

__all__ = ["draw"]

Result = Mapping[str, Any]

_FAMILIES = {
    "ar": ("autoregressive", "#8d99ae", "s"),
    "dflash": ("DFlash", "#3a9d5d", "D"),
    "diffusion": ("masked diffusion", "#e07a1f", "o"),
    "apd": ("APD", "#2a7de1", "^"),
}
"""By method: what it is called, its colour and its marker."""

_BY_LEVEL = {
    REFERENCE: ("diffusion, 1 token per pass", "#e07a1f", "--"),
    "diffusion,threshold=0.9": ("diffusion, threshold 0.9", "#c9a227", "-"),
    ADAPTIVE: ("APD, adaptive", "#7f6a4e", "--"),
    "apd": ("APD, fixed", "#2a7de1", "-"),
}
"""Settings of the second panel: those whose passes may follow the problem, beside those whose may not."""


_LABEL_LOG_SPEED, _LABEL_POINTS = math.log(1.25), 2.0
"""What a name takes: of the logarithm of the speed, and percentage points."""

_SHORT = {"tokens_per_step": "k", "strategy=": "", "kv_window": "kv", "block_length": "block"}
"""Words of settings in labels, which are many."""


def draw(result: Result) -> Figure:
    """Accuracy over tokens per second with its intervals and the line that nothing beats; passes by level."""
    figure = Figure(figsize=(14, 6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(5, 2))
    _accuracies(left, result["points"])
    _passes(right, {point["setting"]: point for point in result["points"]})
    settings, machine = result["settings"], result["machine"]
    figure.suptitle(
        f"{compared_models(settings)} · {result['points'][0]['problems']} held-out problems, {settings['batch']} at a "
        f"time · {machine['cores']} cores ({machine['cpu']})",
        fontsize=10,
    )
    return figure


def _accuracies(axes: Axes, points: Sequence[Result]) -> None:
    for method, (label, colour, marker) in _FAMILIES.items():
        own = [point for point in points if point["method"] == method]
        if own:
            x, y = zip(*map(_place, own), strict=True)
            axes.errorbar(
                x, y, _bars(own), fmt=marker, color=colour, label=label, markersize=5, elinewidth=0.6, alpha=0.9
            )
    line = frontier(points)
    for point in _told_apart(points, [*line, "apd"]):
        axes.annotate(_label(point), _place(point), (4, 3), textcoords="offset points", fontsize=6)
    best = sorted(_place(point) for point in points if point["setting"] in line)
    axes.plot(*zip(*best, strict=True), color="#c0392b", linewidth=1.0, zorder=0, label="nothing is better in both")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("answer tokens per second")
    axes.set_ylabel("right answers, %")
    axes.set_title("Accuracy over speed: up and right is better; bars are 95 % intervals", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="best")
    tidy(axes)


def _told_apart(points: Sequence[Result], first: Sequence[str]) -> list[Result]:
    """Points whose names can be read beside each other; the settings in `first` come first, in that order."""
    order = {setting: place for place, setting in enumerate(first)}
    told: list[Result] = []
    for point in sorted(points, key=lambda point: order.get(point["setting"], len(first))):
        x, y = _place(point)
        others = map(_place, told)
        if not any(abs(math.log(x / far)) < _LABEL_LOG_SPEED and abs(y - high) < _LABEL_POINTS for far, high in others):
            told.append(point)
    return told


def _place(point: Result) -> tuple[float, float]:
    return float(point["tokens_per_second"]), 100.0 * float(point["accuracy"])


def _bars(points: Sequence[Result]) -> list[list[float]]:
    """Down and up to the ends of the intervals."""
    pairs = [(point["accuracy"], *point["accuracy_interval"]) for point in points]
    down, up = [share - low for share, low, _ in pairs], [high - share for share, _, high in pairs]
    return [[100.0 * max(0.0, length) for length in lengths] for lengths in (down, up)]


def _label(point: Result) -> str:
    """What sets a point apart from others of its colour."""
    method, _, settings = str(point["setting"]).partition(",")
    for word, short in _SHORT.items():
        settings = settings.replace(word, short)
    return settings or method


def _passes(axes: Axes, points: Mapping[str, Result]) -> None:
    """Passes per answer; tokens per pass stand beside it, since harder problems have longer answers."""
    for setting, (label, colour, style) in _BY_LEVEL.items():
        if setting in points:
            levels = points[setting]["levels"]
            passes = [each["forwards_per_answer"] for each in levels.values()]
            axes.plot(list(levels), passes, style, color=colour, marker="o", markersize=4, label=label)
            for level, each in levels.items():
                told = f"{each['tokens_per_forward']:.1f}"
                place = (level, each["forwards_per_answer"])
                axes.annotate(told, place, (0, 5), textcoords="offset points", fontsize=6, ha="center")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("level of the problem (steps of thought)")
    axes.set_ylabel("passes per answer; beside each point: tokens per pass")
    axes.set_title("Fewer passes for easier problems?", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, loc="best")
    tidy(axes)
