"""The table of attention memory by length.

Reads only the plain data that `bench_memory` returns. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["show_memory"]

Result = Mapping[str, Any]

_MIB = 1 << 20


def show_memory(result: Result, console: Console | None = None) -> None:
    """Print a row for each kind of pass, a column for each length, and how the bytes grow."""
    settings, definitions = result["settings"], result["definitions"]
    dllm = settings["dllm"] or "a diffusion model of the same shape"
    told = ". ".join(f"{name}: {meaning}" for name, meaning in definitions.items())
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=escape(f"Peak MiB of attention in a pass, float32: {settings['model']} and {dllm}"),
        caption=escape(f"{told}. Keys and values of the model are told apart, for all its layers; growth: length^p."),
    )
    table.caption_justify = "left"
    table.add_column("pass", no_wrap=True)
    for length in result["lengths"]:
        table.add_column(str(length), justify="right", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    for name, sizes in result["peak_bytes"].items():
        table.add_row(escape(name), *_cells(sizes), f"{result['exponents'][name]:.2f}")
    table.add_section()
    table.add_row("keys and values", *_cells(result["kv_cache_bytes"]), "1.00")
    (console or Console()).print(table)


def _cells(sizes: list[int]) -> list[str]:
    return [f"{size / _MIB:.2f}" for size in sizes]
