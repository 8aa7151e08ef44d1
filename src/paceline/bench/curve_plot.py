"""The picture of a quality-speed curve: quality over speed, and speed over the block size.

Needs matplotlib. Knows only the plain data of a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.bench.plot import tidy
from paceline.bench.titles import picture_title

__all__ = ["draw"]

Result = Mapping[str, Any]

_COLOURS = {
    "exact": "#2a7de1",
    "mixed": "#3a9d5d",
    "half": "#e07a1f",
    "int8": "#b0413e",
    "int8-32": "#7b5ea7",
    "w8a8": "#4c4c4c",
}


def draw(result: Result) -> Figure:
    """Two panels with a line for each precision; a ring is the sweet spot, dashes lead to blocks that gain nothing."""
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for precision, best in result["best"].items():
        points = sorted(
            (point for point in result["points"] if point["precision"] == precision),
            key=lambda point: int(point["block_size"]),
        )
        _line(left, points, best, "speedup", "agreement")
        _line(right, points, best, "block_size", "speedup")
    spot = result["sweet_spot"]
    for axes, place in (
        (left, (spot["speedup"], 100.0 * spot["agreement"])),
        (right, (spot["block_size"], spot["speedup"])),
    ):
        axes.scatter(*place, s=220, facecolors="none", edgecolors="#c0392b", linewidths=1.8, label="sweet spot")
        axes.legend(frameon=False, fontsize=8, loc="best")
        tidy(axes)
    span = 100.0 - min(99.0, *(_value(point, "agreement") for point in result["points"]))
    left.set_ylim(100.0 - 1.15 * span, 100.0 + 0.15 * span)
    left.set_xlabel("speed-up over plain decoding in exact; numbers are block sizes")
    left.set_ylabel("tokens that exact itself chooses, %")
    left.set_title("Quality over speed: up and right is better", fontsize=10)
    right.set_xlabel("block size")
    right.set_ylabel("speed-up over plain decoding in exact")
    right.set_title("Where larger blocks stop paying", fontsize=10)
    figure.suptitle(_title(result), fontsize=10)
    return figure


def _line(axes: Axes, points: Sequence[Result], best: Result, x: str, y: str) -> None:
    """One precision: solid up to its best block, dashed beyond."""
    precision = points[0]["precision"]
    colour = _COLOURS[precision]
    turn = next(index for index, point in enumerate(points) if point["block_size"] == best["block_size"])
    places = [(_value(point, x), _value(point, y)) for point in points]
    for part, style, label in ((places[: turn + 1], "-", precision), (places[turn:], "--", None)):
        axes.plot(*zip(*part, strict=True), style, color=colour, marker="o", markersize=4, label=label)
    if x == "speedup":
        for point, place in zip(points, places, strict=True):
            axes.annotate(str(point["block_size"]), place, (0, 5), textcoords="offset points", fontsize=7, color=colour)


def _value(point: Result, name: str) -> float:
    return float(point[name]) * (100.0 if name == "agreement" else 1.0)


def _title(result: Result) -> str:
    own = all(point["identical"] for point in result["points"])
    return picture_title(result, "every answer plain decoding's in its own precision", own)
