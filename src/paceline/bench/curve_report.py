"""The table of a quality-speed curve, and the lines that say where it stops paying.

Reads only the plain data that `bench_curve` returns, so older files can be shown again. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paceline.bench.titles import caption, company_notes, measured_models

__all__ = ["conclusions", "show_curve"]

Result = Mapping[str, Any]

_HEADINGS = ("block", "all", "median", "ms", "/round", "same", "agree", "nats", "4-gram", "own")


def show_curve(result: Result, console: Console | None = None) -> None:
    """Print the table over all prompts, what to conclude from it, and what a reader must know to trust it."""
    console = console or Console()
    title = f"{measured_models(result['settings'])}, temperature {result['settings']['temperature']:g}"
    told = (
        "all, median: speed against block 1 in exact, over all tokens and of the median prompt; ms: per token; same: "
        "answers equal to exact plain decoding; agree: tokens that exact itself chooses; "
        "nats: log-likelihood of a token under exact; own: all answers are plain decoding's in "
        f"their own precision. {caption(result)}"
    )
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=escape(title), caption=escape(told))
    table.caption_justify = "left"
    table.add_column("tier", no_wrap=True)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for precision, points in groupby(result["points"], lambda point: point["precision"]):
        for index, point in enumerate(points):
            table.add_row(precision if index == 0 else "", *_cells(point))
        table.add_section()
    console.print(table)
    for line in conclusions(result):
        console.print(line, markup=False)
    for note in [*_notes(result), *company_notes(result)]:
        console.print(note, style="yellow", markup=False)


def conclusions(result: Result) -> list[str]:
    """The best block of each precision and where larger ones lose, and the sweet spot (`bench.curve` defines both)."""
    lines = [f"{precision}: {_told(best)}" for precision, best in result["best"].items()]
    spot = result["sweet_spot"]
    return [*lines, f"Sweet spot: {spot['precision']}, {_told(spot)}"]


def _told(best: Result) -> str:
    beyond = best["loses_from"]
    return (
        f"block {best['block_size']} is as fast as any, {best['speedup']:.2f} times plain decoding in exact, "
        f"with {best['agreement']:.1%} of its tokens exact's own; "
        + ("no larger block that was measured loses." if beyond is None else f"from block {beyond} on, blocks lose.")
    )


def _cells(point: Result) -> tuple[str, ...]:
    grams = point["distinct_4gram_share"]
    return (
        str(point["block_size"]),
        f"{point['speedup']:.2f}",
        f"{point['speedup_vs_ar']:.2f}",
        f"{point['ms_per_token']:.2f}",
        f"{point['acceptance_length']:.2f}",
        f"{point['same_answers']:.0%}",
        f"{point['agreement']:.1%}",
        f"{point['log_likelihood']:.4f}",
        ("–" if grams is None else f"{grams:.2f}") + ("" if point["counts"] else " ✗"),
        "yes" if point["identical"] else "NO",
    )


def _notes(result: Result) -> list[str]:
    wrong = [point for point in result["points"] if not point["identical"]]
    ties = {
        precision: sum(point["near_ties"] for point in result["points"] if point["precision"] == precision)
        for precision in result["best"]
    }
    return [
        *(f"{precision}: {count} tokens are certified near-ties." for precision, count in ties.items() if count),
        *(f"NOT ITS OWN: {each['precision']}, block {each['block_size']}: {each['mismatches']}." for each in wrong),
    ]
