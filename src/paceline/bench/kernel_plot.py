"""The picture of `paceline bench kernels`: time by rows of each product and pass, over the two roofs of the machine.

A roof is the time that reading the weights takes at the machine's rate, and that the arithmetic takes at its; no
program is below either. Needs matplotlib. Knows only the plain data of a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.bench.kernel_report import of_part
from paceline.bench.plot import tidy
from paceline.bench.titles import measured_models

__all__ = ["draw"]

_COLOURS = {
    "native": "#2a7de1",
    "native mixed": "#1b4f91",
    "native half": "#6ca6e8",
    "native int8": "#7b5ea7",
    "native int8-32": "#b39ddb",
    "native w8a8": "#4c4c4c",
    "torch": "#e07a1f",
    "F.linear": "#8d99ae",
}
_PEER_COLOURS = ("#3a9d5d", "#a349a4", "#c0392b", "#c9a227")


def draw(result: Mapping[str, Any]) -> Figure:
    """A line of panels for each model: the pass, then each of its products."""
    found = of_part(result)
    lines = [_panels(found, model) for model in dict.fromkeys(model for model, _ in found)]
    columns = max(map(len, lines))
    figure = Figure(figsize=(2.6 * columns, 2.8 * len(lines) + 0.9), layout="constrained")
    grid = figure.subplots(len(lines), columns, squeeze=False)
    colours = _colours(result)
    for places, keys in zip(grid, lines, strict=True):
        for axes in places[len(keys) :]:
            axes.axis("off")
        for axes, key in zip(places, keys, strict=False):
            _panel(axes, found[key], colours)
            axes.set_title(" ".join(key), fontsize=10)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    machine = result["machine"]
    where = f"{machine['cpu']}, {machine['threads']} threads"
    figure.suptitle(f"{measured_models(result['settings'])} · {where}: time by rows", fontsize=10)
    return figure


def _panels(found: Mapping[tuple[str, str], Any], model: str) -> list[tuple[str, str]]:
    own = [key for key in found if key[0] == model]
    return sorted(own, key=lambda key: key[1] != "pass")


def _colours(result: Mapping[str, Any]) -> dict[str, str]:
    names = dict.fromkeys(point["variant"] for point in result["points"])
    peers = [name for name in names if name not in _COLOURS]
    return _COLOURS | dict(zip(peers, _PEER_COLOURS, strict=False))


def _panel(axes: Axes, points: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> None:
    for variant in dict.fromkeys(point["variant"] for point in points):
        own = [point for point in points if point["variant"] == variant]
        rows, times = [point["rows"] for point in own], [point["microseconds"] for point in own]
        axes.plot(rows, times, marker="o", markersize=3, color=colours[variant], label=variant)
    first = [point for point in points if point["variant"] == points[0]["variant"]]
    rows = [point["rows"] for point in first]
    for roof, style in (("reading", "--"), ("arithmetic", ":")):
        least = [point["microseconds"] * point[f"share_of_{roof}"] for point in first]
        axes.plot(rows, least, style, color="#333333", label=f"{roof}, the limit of {points[0]['variant']}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(rows, [str(each) for each in rows])
    axes.set_xlabel("rows")
    axes.set_ylabel("µs")
    tidy(axes)
