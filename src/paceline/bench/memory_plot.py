"""The picture of attention memory: bytes over length, both in powers, with a line of slope 2 to compare.

Needs matplotlib. Knows only the plain data of a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from paceline.bench.plot import tidy

__all__ = ["draw"]


def draw(result: Mapping[str, Any]) -> Figure:
    """One panel with a line for each kind of pass; its legend has the fitted exponents."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes, lengths = figure.subplots(), result["lengths"]
    for name, sizes in result["peak_bytes"].items():
        mebibytes = [size / (1 << 20) for size in sizes]
        axes.plot(lengths, mebibytes, marker="o", markersize=4, label=f"{name}: p = {result['exponents'][name]:.2f}")
    first = result["peak_bytes"]["prompt"][0] / (1 << 20)
    square = [first * (length / lengths[0]) ** 2 for length in lengths]
    axes.plot(lengths, square, "--", color="#8d99ae", label="what p = 2 would be")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel("peak MiB of attention in a pass")
    tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    figure.suptitle(f"{result['settings']['model']}: bytes grow as length to the power of p", fontsize=10)
    return figure
