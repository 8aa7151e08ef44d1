"""The table of a throughput benchmark.

Reads only the plain data that `bench_throughput` returns. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paceline.bench.titles import company_notes, machine_told, measured_models

__all__ = ["show_throughput"]

Result = Mapping[str, Any]

_HEADS = ("method", "at once", "load", "req/s", "tok/s", "mean s", "p99", "first", "ms/tok", "same")


def show_throughput(result: Result, console: Console | None = None) -> None:
    """Print a row for each method, number of answers at once and load, and what is served while nobody waits longer."""
    settings, console = result["settings"], console or Console()
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=escape(f"{measured_models(settings)}, {settings['seconds']:g} s of arrivals at each load"),
        caption=escape(_caption(result)),
    )
    table.caption_justify = "left"
    for head in _HEADS:
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)
    before = None
    for point in result["points"]:
        if before not in (None, point["load"]):
            table.add_section()
        before = point["load"]
        table.add_row(*_cells(point))
    console.print(table)
    for good in result["goodput"]:
        console.print(_conclusion(good), markup=False)
    for note in company_notes(result):
        console.print(note, style="yellow", markup=False)


def _conclusion(good: Result) -> str:
    served = f"{good['requests_per_second']:.1f} requests/s"
    return (
        f"{good['method']}, {good['running']} at a time: {served} while the mean latency is at most 1.15 times that of "
        "an idle server."
    )


def _cells(point: Result) -> list[str]:
    latency, between = point["latency"], point["per_token"]
    return [
        escape(point["method"]),
        str(point["running"]),
        f"{point['load']:g}",
        f"{point['requests_per_second']:.1f}",
        f"{point['tokens_per_second']:.0f}",
        f"{latency['mean']:.3f}",
        f"{latency['p99']:.3f}",
        f"{point['first_token']['mean']:.3f}",
        "" if between is None else f"{1000 * between['mean']:.2f}",
        "yes" if point["same"] else "no",
    ]


def _caption(result: Result) -> str:
    plain = f"Load 1: {result['plain_requests_per_second']:.1f} requests/s, what plain decoding serves one at a time"
    told = "mean, p99 and first: seconds from when a request is due to its last and first token"
    same = "same: answers are those of the first row of the load"
    return f"{plain}; {told}; {same}. {machine_told(result)}"
