"""Shows and keeps the result of a benchmark: a table on the terminal, a JSON file, a picture.

Reads only the plain data that `bench_decode` returns, so older files can be shown again; the tables of other benchmarks
are made in `curve_report`, `sweep_report` and `quality_report`. Measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paceline.bench.titles import caption, company_notes, measured_models, told_dtypes
from paceline.errors import ConfigError
from paceline.files import check_writable, write_atomically

__all__ = ["check_place", "check_plot", "save_json", "save_plot", "show"]

Result = Mapping[str, Any]

_UNLIKELY_Z = 3.0
"""Standard deviations from which on a reader should look twice."""


def show(result: Result, console: Console | None = None) -> None:
    """Print the table, and below it what a reader must know to trust it."""
    console = console or Console()
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=escape(_title(result)), caption=escape(caption(result)))
    table.caption_justify = "left"
    table.add_column("scenario", no_wrap=True)
    table.add_column("method", overflow="fold")  # on a narrow terminal names break, never numbers
    for heading in ("ms/tok", "/round", "× plain", "draft", "read", "4-gram", "same"):
        table.add_column(heading, justify="right", no_wrap=True)
    for scenario, methods in result["scenarios"].items():
        for index, (method, figures) in enumerate(methods.items()):
            table.add_row(escape(scenario) if index == 0 else "", method, *_cells(figures))
        table.add_section()
    console.print(table)
    for line in _drafts(result):
        console.print(line, markup=False, highlight=False)
    for note in _notes(result):
        console.print(note, style="yellow", markup=False)


def check_place(path: Path) -> None:
    """Refuse a file that could not be written, before anything is measured for it.

    Raises:
        ConfigError: it could not.
    """
    with _told_of(path):
        check_writable(path)


def save_json(result: Result, path: Path) -> None:
    """Write the result; the file appears whole or not at all.

    Raises:
        ConfigError: the file cannot be written.
    """
    _replace(path, lambda draft: draft.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8"))


def save_plot(result: Result, path: Path) -> None:
    """Draw the result as .png or .svg, by the ending of `path`.

    Raises:
        ConfigError: as `check_plot`, or the file cannot be written.
    """
    check_plot(path)
    if result["bench"] == "curve":
        from paceline.bench.curve_plot import draw
    elif result["bench"] == "sweep":
        from paceline.bench.sweep_plot import draw
    elif result["bench"] == "memory":
        from paceline.bench.memory_plot import draw
    elif result["bench"] == "kernels":
        from paceline.bench.kernel_plot import draw
    elif result["bench"] == "throughput":
        from paceline.bench.throughput_plot import draw
    elif result["bench"] in ("quality", "frontier"):
        from paceline.bench.frontier_plot import draw
    else:
        from paceline.bench.plot import draw
    figure = draw(result)
    _replace(path, lambda draft: figure.savefig(draft, format=_ending(path), dpi=150))


def check_plot(path: Path) -> None:
    """Refuse a plot that could not be drawn, before anything is measured for it.

    Raises:
        ConfigError: matplotlib is not installed, the ending is neither .png nor .svg, or as `check_place`.
    """
    if _ending(path) not in ("png", "svg"):
        raise ConfigError(f"The plot {str(path)!r} has no known ending.", remedy="Use .png or .svg.", param="plot")
    if find_spec("matplotlib") is None:
        remedy = "Install it: pip install 'paceline[bench]'."
        raise ConfigError("matplotlib, which draws plots, is not installed.", remedy=remedy, param="plot")
    check_place(path)


def _ending(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def _title(result: Result) -> str:
    settings = result["settings"]
    return f"{measured_models(settings)}, {told_dtypes(settings)}, temperature {settings['temperature']:g}"


def _cells(figures: Result) -> tuple[str, ...]:
    total = sum(figures[f"{part}_seconds"] for part in ("prompt", "draft", "verify", "other"))
    grams, share = figures["distinct_4gram_share"], figures.get("share_of_bandwidth")
    return (
        f"{figures['ms_per_token']:.2f}",
        f"{figures['acceptance_length']:.2f}",
        f"{figures['speedup_vs_ar']:.2f}",
        f"{figures['draft_seconds'] / total:.0%}",
        "–" if share is None else f"{share:.0%}",
        ("–" if grams is None else f"{grams:.2f}") + ("" if figures["counts"] else " ✗"),
        "yes" if figures["identical"] else "NO" if figures.get("lossless", True) else "no",
    )


def _drafts(result: Result) -> Iterator[str]:
    """How many drafts were accepted by chance, beside what the laws of sampling say."""
    for scenario, methods in result["scenarios"].items():
        for method, figures in methods.items():
            law = figures.get("law")
            if law:
                yield (
                    f"{scenario}, {method}: {law['accepted_per_round']:.2f} drafts accepted per round, by the law of "
                    f"shared noise {law['expected_per_round']:.2f} (z {law['z']:+.1f}), "
                    f"by rejection sampling {law['rejection_per_round']:.2f}."
                )
            elif result["settings"]["temperature"] > 0.0 and figures["acceptance_length"] > 1.0:
                yield f"{scenario}, {method}: {figures['acceptance_length'] - 1.0:.2f} drafts accepted per round."


def _notes(result: Result) -> list[str]:
    notes = []
    for scenario, methods in result["scenarios"].items():
        looping = [method for method, figures in methods.items() if not figures["counts"]]
        if looping:
            notes.append(f"✗ {scenario}: the text of {', '.join(looping)} loops; these figures do not count.")
        for method, figures in methods.items():
            if figures["near_ties"]:
                notes.append(f"{scenario}, {method}: {figures['near_ties']} tokens are certified near-ties.")
            if abs((figures.get("law") or {}).get("z", 0.0)) > _UNLIKELY_Z:
                notes.append(f"{scenario}, {method}: accepted drafts this far off the law are seen once in 370 runs.")
            if not figures["identical"] and (figures.get("lossless", True) or result["settings"]["temperature"] == 0.0):
                where = ", ".join(f"{prompt} at token {index}" for prompt, index in figures["mismatches"].items())
                promised = figures.get("lossless", True)
                what = "NOT IDENTICAL" if promised else "Not identical, nor promised (other weights or rounding)"
                notes.append(f"{what}: {scenario}, {method}: {where}.")
    return [*notes, *company_notes(result)]


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    with _told_of(path):
        write_atomically(path, write)


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """That a file cannot be written is an error of who named it."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be written: {error.strerror or error}.", remedy="Name another file."
        ) from error
