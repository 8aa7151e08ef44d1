"""The picture of a sweep: tokens per round and speed of every setting, at every temperature.

Needs matplotlib. Knows only the plain data of a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.bench.titles import picture_title

__all__ = ["draw"]

Result = Mapping[str, Any]
Points = Mapping[float, Mapping[str, Result]]
"""By temperature, then by setting."""

_COLOURS = ("#2a7de1", "#e07a1f", "#3a9d5d", "#a349a4")
_WIDTH = 0.8
"""Of the bars of one setting together, in units of the axis."""


def draw(result: Result) -> Figure:
    """Two panels with a row for each setting; dotted lines continue the chain of the drafter's own block."""
    points: dict[float, dict[str, Result]] = {}
    for point in result["points"]:
        points.setdefault(point["temperature"], {})[point["setting"]] = point
    rows = [(point["part"], name) for name, point in next(iter(points.values())).items() if point["part"] != "plain"]
    figure = Figure(figsize=(12.5, 1.6 + 0.3 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _panel(left, points, rows, result["chain"], "acceptance_length")
    _panel(right, points, rows, result["chain"], "speedup")
    left.set_yticks(range(len(rows)), [name for _, name in rows], fontsize=8)
    left.set_ylim(len(rows) - 0.5, -0.5)
    gain = f"lines: 95 % intervals of the gain over {result['chain']}"
    left.set_xlabel(f"tokens per round, the bonus token included\n({gain})", fontsize=9)
    right.set_xlabel("speed-up over plain decoding at the same temperature,\nall tokens together", fontsize=9)
    left.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(points))
    figure.suptitle(_title(result), fontsize=10)
    return figure


def _panel(axes: Axes, points: Points, rows: Sequence[tuple[str, str]], chain: str, figure: str) -> None:
    step = _WIDTH / len(points)
    highest = max(found[name][figure] for found in points.values() for _, name in rows)
    for index, (heat, found) in enumerate(points.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        places = [row - _WIDTH / 2 + (index + 0.5) * step for row in range(len(rows))]
        values = [float(found[name][figure]) for _, name in rows]
        whiskers = [_whiskers(found[name], found[chain]) for _, name in rows] if figure != "speedup" else None
        bars = None if whiskers is None else list(zip(*whiskers, strict=True))
        axes.barh(
            places, values, 0.9 * step, color=colour, xerr=bars, error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
            label=f"temperature {heat:g}",
        )  # fmt: skip
        axes.axvline(float(found[chain][figure]), color=colour, linestyle=":", linewidth=1.0)
        for place, value, (_, name) in zip(places, values, rows, strict=True):
            text = f"{value:.2f}" + ("" if found[name]["identical"] else " NOT IDENTICAL")
            axes.text(0.01 * highest, place, text, va="center", fontsize=6.5, color="white")
    if figure == "speedup":
        axes.axvline(1.0, color="#333333", linewidth=0.8)
    _tidy(axes, [part for part, _ in rows])


def _whiskers(point: Result, chain: Result) -> tuple[float, float]:
    """From a bar to both ends of the interval of its gain, in tokens; none where it has no interval."""
    if point["gain_interval"] is None:
        return 0.0, 0.0
    low, high = ((1.0 + end) * chain["acceptance_length"] for end in point["gain_interval"])
    return max(0.0, point["acceptance_length"] - low), max(0.0, high - point["acceptance_length"])


def _tidy(axes: Axes, parts: Sequence[str]) -> None:
    """Vertical lines behind the data, a band behind every other part, no box around it."""
    first = 0
    for number, (_, group) in enumerate(groupby(parts)):
        count = len(list(group))
        if number % 2:
            axes.axhspan(first - 0.5, first + count - 0.5, color="#f0f2f5", zorder=-1)
        first += count
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.grid(visible=True, alpha=0.3)
    axes.set_axisbelow(True)


def _title(result: Result) -> str:
    same = all(point["identical"] for point in result["points"])
    return picture_title(result, "every answer plain decoding's", same)
