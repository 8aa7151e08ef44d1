"""The tables of `bench quality` and `bench frontier`: accuracy and speed, and published figures beside ours.

Reads only the plain data of a result. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paceline.bench.quality_options import REFERENCE
from paceline.bench.titles import company_notes, machine_told

__all__ = ["compared_models", "show_quality"]

Result = Mapping[str, Any]

_FEW_PROBLEMS = 100
"""Below this the interval of an accuracy may be more than 19 points wide."""

_WIDE = 100
"""Columns of a terminal that shows every kind of problem; on a narrower one, settings could not be read beside them."""


class _Published(NamedTuple):
    """What a web article about APD for dialogue claims, on hardware and models that it does not name.

    It is not the paper (arXiv 2506.00413).
    """

    method: str
    tokens_per_second: float
    perplexity: float
    gigabytes: float
    first_token_ms: float


_ARTICLE = {
    "ar": _Published("AR", 42.3, 12.7, 18.2, 120),
    REFERENCE: _Published("diffusion", 68.1, 15.2, 22.7, 85),
    "apd": _Published("APD", 178.5, 13.9, 20.3, 45),
}
"""By our setting of the same kind: autoregressive, standard diffusion decoding, and APD at its defaults."""


def show_quality(result: Result, console: Console | None = None) -> None:
    """Print the accuracy and speed of every setting, then cost and likelihood beside the article's."""
    console = console or Console()
    console.print(_accuracies(result, console.width))
    if "frontier" in result:
        console.print(f"Nothing is both as right and as fast as: {'; '.join(result['frontier'])}.", markup=False)
    measured = {point["setting"]: point for point in result["points"]}
    if measured.keys() & _ARTICLE.keys():
        console.print(_beside_the_article({name: measured[name] for name in _ARTICLE if name in measured}))
    for note in [*_notes(result), *company_notes(result)]:
        console.print(note, style="yellow", markup=False)


def compared_models(settings: Result) -> str:
    """The models of a result, from its settings, for a title."""
    target = Path(settings["target"]).name
    pair = " + ".join(Path(settings[name]).name for name in ("dllm", "verifier") if settings[name] is not None)
    return f"{pair} beside {target}" if pair else target


def _accuracies(result: Result, width: int) -> Table:
    settings = result["settings"]
    kinds = list(result["points"][0]["kinds"]) if width >= _WIDE else []
    told = (
        f"{result['points'][0]['problems']} held-out problems, {settings['max_tokens']} tokens at most, greedy, "
        f"{settings['batch']} at a time. right: of all kinds, and its 95 % interval; kept: of the accuracy of "
        f"{settings['reference']}, and (≥) what it is at least with 95 % confidence; /pass: tokens per pass; hit: "
        f"prefix tokens not computed anew. {machine_told(result)}"
    )
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=escape(compared_models(settings)), caption=escape(told))
    table.caption_justify = "left"
    table.add_column("setting", overflow="fold")  # on a narrow terminal names break, never numbers
    for heading in ("right", "95 %", *kinds, "kept", "≥", "tok/s", "/pass", "hit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in result["points"]:
        table.add_row(escape(point["setting"].replace(",", ", ")), *_cells(point, kinds, settings["reference"]))
    return table


def _cells(point: Result, kinds: Sequence[str], reference: str) -> tuple[str, ...]:
    low, high = point["accuracy_interval"]
    hit = point["prefix_hit_rate"]
    kept = None if point["setting"] == reference else point["kept_share"]
    return (
        f"{point['accuracy']:.1%}",
        f"{100 * low:.0f}-{100 * high:.0f}",
        *(f"{point['kinds'][kind]['accuracy']:.0%}" for kind in kinds),
        *(("–", "–") if kept is None else (f"{kept:.1%}", f"{point['kept_share_low']:.1%}")),
        f"{point['tokens_per_second']:.1f}",
        f"{point['tokens_per_forward']:.2f}",
        "–" if hit is None else f"{hit:.0%}",
    )


def _beside_the_article(points: Mapping[str, Result]) -> Table:
    told = (
        "diffusion: one token per pass. In brackets what a published article about APD (not the paper) claims, for "
        "other models on other hardware. generative perplexity: of the answers under the exact target; AR is that "
        "target, so low by construction: compare diffusion and APD with one another; memory: weights, and the most "
        "that tensors held beside them for the first batch; first token: median until one stays."
    )
    table = Table(
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Speed, likelihood, memory, first token", caption=escape(told)
    )
    table.caption_justify = "left"
    table.add_column()
    for name in points:
        table.add_column(_ARTICLE[name].method, justify="right", no_wrap=True)
    for heading, row in _ROWS.items():
        table.add_row(heading, *(row(point, _ARTICLE[name]) for name, point in points.items()))
    return table


_ROWS: dict[str, Callable[[Result, _Published], str]] = {
    "tokens per second": lambda point, theirs: f"{point['tokens_per_second']:.1f} [{theirs.tokens_per_second}]",
    "generative perplexity": lambda point, theirs: f"{point['generative_perplexity']:.2f} [{theirs.perplexity}]",
    "memory": lambda point, theirs: (
        f"{_megabytes(point['weight_bytes'] + point['working_bytes'])} MB [{theirs.gigabytes} GB]"
    ),
    "of it weights": lambda point, _: f"{_megabytes(point['weight_bytes'])} MB",
    "first token": lambda point, theirs: f"{point['first_token_ms']:.1f} ms [{theirs.first_token_ms:.0f} ms]",
}


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}"


def _notes(result: Result) -> list[str]:
    reference = next(each for each in result["points"] if each["setting"] == result["settings"]["reference"])
    notes = []
    if not reference["right"]:
        notes.append(f"{reference['setting']} has no right answer: what others keep of it cannot be said.")
    if reference["problems"] < _FEW_PROBLEMS:
        notes.append(f"{reference['problems']} problems tell little: look at the intervals.")
    return notes
