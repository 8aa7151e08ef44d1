"""The picture of `paceline bench decode`: time per token of every method, and how many tokens its rounds gave.

Needs matplotlib. Knows only the plain data of a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.bench.figures import all_identical
from paceline.bench.titles import picture_title

__all__ = ["draw", "tidy"]

Result = Mapping[str, Any]

_COLOURS = (
    "#8d99ae",
    "#2a7de1",
    "#e07a1f",
    "#3a9d5d",
    "#a349a4",
    "#c0392b",
    "#7f6a4e",
    "#16a3a3",
    "#c9a227",
    "#5b6c2f",
)
_WIDTH = 0.8
"""Of all bars of one scenario together, in units of the axis."""


def draw(result: Result) -> Figure:
    """Two panels: milliseconds per token by scenario and method, and shares of rounds by the tokens they committed."""
    scenarios = result["scenarios"]
    methods = list(dict.fromkeys(method for figures in scenarios.values() for method in figures))
    colours = {method: _COLOURS[index % len(_COLOURS)] for index, method in enumerate(methods)}
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _times(left, scenarios, methods, colours)
    _rounds(right, scenarios, [method for method in methods if _drafts(scenarios, method)], colours)
    figure.suptitle(_title(result), fontsize=10)
    return figure


def _times(axes: Axes, scenarios: Result, methods: Sequence[str], colours: Mapping[str, str]) -> None:
    step = _WIDTH / len(methods)
    highest = max(figures["ms_per_token"] for found in scenarios.values() for figures in found.values())
    for index, method in enumerate(methods):
        figures = [found[method] for found in scenarios.values()]
        places = [place - _WIDTH / 2 + (index + 0.5) * step for place in range(len(figures))]
        heights = [each["ms_per_token"] for each in figures]
        axes.bar(places, heights, step * 0.92, color=colours[method], label=method)
        for place, height, each in zip(places, heights, figures, strict=True):
            size = 8 if len(methods) <= 3 else 6
            axes.text(place, height + 0.01 * highest, _label(method, each), ha="center", va="bottom", fontsize=size)
    axes.set_xticks(range(len(scenarios)), list(scenarios))
    axes.set_ylabel("ms per token, prompt pass included")
    axes.set_ylim(0, 1.35 * highest)  # room for labels and the legend
    axes.set_title("Time per token (lower is better)", fontsize=10)
    tidy(axes)
    axes.legend(frameon=False, fontsize=8, loc="upper center", ncols=len(methods))


def _label(method: str, figures: Result) -> str:
    """Time; speed-up where there is one; tokens per round where a drafter works."""
    lines = [f"{figures['ms_per_token']:.1f} ms"]
    if method != "ar":
        lines.insert(0, f"{figures['speedup_vs_ar']:.2f}×")
    if figures["acceptance_length"] > 1.0:
        lines.insert(1, f"{figures['acceptance_length']:.1f} tok/round")
    if not figures["counts"]:
        lines.append("(loops)")
    return "\n".join(lines)


def _drafts(scenarios: Result, method: str) -> bool:
    return any(figures[method]["acceptance_length"] > 1.0 for figures in scenarios.values())


def _rounds(axes: Axes, scenarios: Result, methods: Sequence[str], colours: Mapping[str, str]) -> None:
    """Over all scenarios: in which share of its rounds a method committed 1, 2, 3, … tokens."""
    sums = {method: _tokens_per_round(scenarios, method) for method in methods}
    most = max((count for found in sums.values() for count in found), default=1)
    step = _WIDTH / max(1, len(methods))
    for index, (method, found) in enumerate(sums.items()):
        total = sum(found.values()) or 1
        places = [count - _WIDTH / 2 + (index + 0.5) * step for count in range(1, most + 1)]
        shares = [found.get(count, 0) / total for count in range(1, most + 1)]
        mean = sum(count * times for count, times in found.items()) / total
        axes.bar(places, shares, step, color=colours[method], label=f"{method}, mean {mean:.2f}")
    axes.set_xticks(range(1, most + 1))
    axes.set_xlabel("tokens committed in one round, bonus token included")
    axes.set_ylabel("share of rounds")
    axes.set_title("Tokens per round, all scenarios", fontsize=10)
    tidy(axes)
    if methods:
        axes.legend(frameon=False, fontsize=8, loc="upper right")


def _tokens_per_round(scenarios: Result, method: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for figures in scenarios.values():
        for count, times in figures[method]["tokens_per_round"].items():
            found[int(count)] = found.get(int(count), 0) + times
    return found


def tidy(axes: Axes) -> None:
    """Horizontal lines behind the data, no box around it."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.grid(visible=True, alpha=0.3)
    axes.set_axisbelow(True)


def _title(result: Result) -> str:
    return picture_title(result, "identical output", all_identical(result["scenarios"]))
