"""The picture of a throughput benchmark: what requests wait, over how many arrive.

Needs matplotlib. Knows only the plain data of a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from paceline.bench.plot import tidy
from paceline.bench.titles import measured_models

__all__ = ["draw"]


def draw(result: Mapping[str, Any]) -> Figure:
    """Mean latency on the left, the 99th percentile on the right; a line for each method and number at once."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), ("mean", "p99"), strict=True):
        for good in result["goodput"]:
            asked = good["method"], good["running"]
            own = [each for each in result["points"] if (each["method"], each["running"]) == asked]
            label = f"{good['method']}, {good['running']} at a time"
            loads = [each["load"] for each in own]
            axes.plot(loads, [each["latency"][name] for each in own], marker="o", markersize=4, label=label)
        axes.set_yscale("log")
        axes.set_xlabel("load: 1 is what plain decoding serves one at a time")
        axes.set_ylabel(f"latency in seconds, {name}")
        tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    models = measured_models(result["settings"])
    figure.suptitle(f"{models}: what requests wait, over how many arrive", fontsize=10)
    return figure
