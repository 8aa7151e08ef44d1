"""The tables of a sweep, one for each temperature, and the lines that say what paid.

Reads only the plain data that `bench_sweep` returns, so older files can be shown again. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paceline.bench.titles import caption, company_notes, measured_models, told_dtypes

__all__ = ["sentences", "show_sweep"]

Result = Mapping[str, Any]

_HEADINGS = ("/round", "gain", "95 %", "nodes", "passes", "ms", "all", "median", "same")


def show_sweep(result: Result, console: Console | None = None) -> None:
    """Print the tables over all prompts, what to conclude from them, and what a reader must know to trust them."""
    console = console or Console()
    for heat, points in groupby(result["points"], lambda point: point["temperature"]):
        title = f"{measured_models(result['settings'])}, {told_dtypes(result['settings'])}, temperature {heat:g}"
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=escape(title))
        table.add_column("setting", overflow="fold")
        for heading in _HEADINGS:
            table.add_column(heading, justify="right", no_wrap=True)
        for _, group in groupby(points, lambda point: point["part"]):
            for point in group:
                table.add_row(escape(point["setting"]), *_cells(point))
            table.add_section()
        console.print(table)
    for line in [_legend(result), *sentences(result)]:
        console.print(line, markup=False, highlight=False)
    for note in [*_notes(result), *company_notes(result)]:
        console.print(note, style="yellow", markup=False)


def sentences(result: Result) -> list[str]:
    """At every temperature, the fastest setting beside the chain of the drafter's own block."""
    lines = []
    for heat, found in groupby(result["points"], lambda point: point["temperature"]):
        points = {point["setting"]: point for point in found}
        chain, best = points[result["chain"]], max(points.values(), key=lambda point: point["speedup"])
        lines.append(
            f"Temperature {heat:g}: {best['setting']} is the fastest, {best['speedup']:.2f} times plain decoding; "
            f"{result['chain']} is {chain['speedup']:.2f} times."
        )
    return lines


def _legend(result: Result) -> str:
    return (
        f"/round: tokens; gain: of these over {result['chain']}, with its interval; nodes: drafts read in a round; "
        "passes: of the drafter in a round; ms: per token; all, median: speed against ar (plain decoding), over all "
        f"tokens and of the median prompt; same: all answers are plain decoding's. {caption(result)}."
    )


def _cells(point: Result) -> tuple[str, ...]:
    gain, interval = point["gain"], point["gain_interval"]
    return (
        f"{point['acceptance_length']:.2f}",
        "" if gain is None else f"{gain:+.1%}",
        "" if interval is None else " to ".join(f"{100 * end:+.0f}" for end in interval),
        f"{point['nodes_per_round']:.1f}",
        f"{point['passes_per_round']:.2f}",
        f"{point['ms_per_token']:.2f}",
        f"{point['speedup']:.2f}",
        f"{point['speedup_vs_ar']:.2f}",
        "yes" if point["identical"] else "NO",
    )


def _notes(result: Result) -> list[str]:
    notes = []
    for heat, found in groupby(result["points"], lambda point: point["temperature"]):
        points = list(found)
        ties = sum(point["near_ties"] for point in points)
        if ties:
            notes.append(f"Temperature {heat:g}: {ties} tokens are certified near-ties, of all settings together.")
        if not points[0]["counts"]:
            share = points[0]["distinct_4gram_share"]
            told = "is too short to tell" if share is None else f"loops (distinct 4-grams {share:.2f})"
            notes.append(f"Temperature {heat:g}: the text {told}; these figures do not count.")
        wrong = [point for point in points if not point["identical"]]
        notes += [f"NOT IDENTICAL: temperature {heat:g}, {each['setting']}: {each['mismatches']}." for each in wrong]
    return notes
