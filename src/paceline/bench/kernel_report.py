"""The tables of `paceline bench kernels`: products, passes, and the ceilings they are held against.

Reads only the plain data that `bench_kernels` returns, so older files can be shown again. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paceline.bench.titles import company_notes, machine_told, measured_models

__all__ = ["conclusions", "of_part", "show_kernels", "told_ceilings"]

Result = Mapping[str, Any]
Point = Mapping[str, Any]

_MEBIBYTE = 1 << 20
_CACHED = 1.25
"""Memory that is read so many times as fast as the largest that was measured is taken to lie in a cache."""


def show_kernels(result: Result, console: Console | None = None) -> None:
    """Print a table for the products of each model and one for the passes, and what to conclude from them."""
    console = console or Console()
    for line in (f"{measured_models(result['settings'])}. {machine_told(result)}.", *told_ceilings(result)):
        console.print(line, markup=False, highlight=False)
    found = result["points"]
    for model in dict.fromkeys(point["model"] for point in found):
        own = [point for point in found if point["model"] == model]
        products = [point for point in own if point["part"] != "pass"]
        console.print(_table(f"One product of the {model}", products))
        console.print(_table(f"A pass of the {model}", [point for point in own if point["part"] == "pass"]))
    for line in conclusions(result):
        console.print(line, markup=False, highlight=False)
    for note in company_notes(result):
        console.print(note, style="yellow", markup=False)


def of_part(result: Result) -> dict[tuple[str, str], list[Point]]:
    """The points of each part of each model, in the order of the result."""
    found: dict[tuple[str, str], list[Point]] = {}
    for point in result["points"]:
        found.setdefault((point["model"], point["part"]), []).append(point)
    return found


def told_ceilings(result: Result) -> list[str]:
    """What the machine can do, and which rate of reading holds for which model and variant."""
    ceilings, reads = result["ceilings"], result["ceilings"]["read"]
    beyond = reads[-1]["gigabytes_per_second"]["median"]
    rates = {name.removesuffix("_gigaflops"): rate for name, rate in ceilings.items() if name != "read"}
    products = ", ".join(f"{_spread(rate)} in {name}" for name, rate in rates.items())
    lines = [f"It multiplies, in GFLOP/s, {products} (median, least and most of all turns)."]
    for read in reads:
        rate, users = read["gigabytes_per_second"], _users(result, read["bytes"])
        place = ", in a cache" if rate["median"] > _CACHED * beyond else ""
        lines.append(
            f"It reads {read['bytes'] / _MEBIBYTE:.0f} MiB at {_spread(rate)} GB/s{place}"
            + (f": the ceiling of {', '.join(users)}." if users else ".")
        )
    return lines


def conclusions(result: Result) -> list[str]:
    """For each native pass: how near it is to the roofs; and what calls cost that products have."""
    lines = []
    for (model, part), found in of_part(result).items():
        for variant in dict.fromkeys(point["variant"] for point in found if part == "pass"):
            own = [point for point in found if point["variant"] == variant]
            if variant == found[0]["variant"] or variant.startswith("native"):
                lines.append(f"{model}, {variant}: {'; '.join(_told_roof(each) for each in _by_roof(own))}.")
    calls = ", ".join(f"{name} {cost:.1f}" for name, cost in result["call_microseconds"].items())
    return [*lines, f"Microseconds of a call, which every product above has: {calls}."]


def _by_roof(points: Sequence[Point]) -> list[list[Point]]:
    return [list(each) for _, each in groupby(points, lambda point: point["roof"])]


def _told_roof(points: Sequence[Point]) -> str:
    first, last = points[0]["rows"], points[-1]["rows"]
    rows = f"{first} row{'s'[: first != 1]}" if len(points) == 1 else f"{first} to {last} rows"
    shares = dict.fromkeys(f"{share:.0%}" for share in sorted(point["share"] for point in points))
    least, *others = shares
    told = f"{least} to {others[-1]}" if others else least
    return f"at {rows} the roof is {points[0]['roof']}, used to {told}"


def _users(result: Result, ceiling_bytes: int) -> list[str]:
    own = (point for point in result["points"] if point["ceiling_bytes"] == ceiling_bytes)
    return list(dict.fromkeys(f"{point['model']} {point['variant']}" for point in own))


def _spread(rate: Mapping[str, float]) -> str:
    return f"{rate['median']:.0f} ({rate['least']:.0f} to {rate['most']:.0f})"


def _table(title: str, points: Sequence[Point]) -> Table:
    """A line for each part and number of rows, a column for each variant."""
    variants = list(dict.fromkeys(point["variant"] for point in points))
    told = f"µs and share of the nearer roof; GB/s, GFLOP/s: of {variants[0]}"
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=escape(title), caption=escape(told))
    table.add_column("part" if points[0]["part"] != "pass" else "", no_wrap=True)
    for heading in ("rows", "GB/s", "GFLOP/s"):
        table.add_column(heading, justify="right", overflow="fold", no_wrap=heading == "rows")
    for variant in variants:
        table.add_column(escape(variant), justify="right", overflow="fold")
    for part, own in groupby(_in_order(points), lambda point: point["part"]):
        for index, (rows, found) in enumerate(groupby(own, lambda point: point["rows"])):
            table.add_row(part if index == 0 else "", str(rows), *_cells(list(found), variants))
        table.add_section()
    return table


def _in_order(points: Sequence[Point]) -> list[Point]:
    """By part, in the order of a pass, then by rows."""
    parts = list(dict.fromkeys(point["part"] for point in points))
    return sorted(points, key=lambda point: (parts.index(point["part"]), point["rows"]))


def _cells(points: Sequence[Point], variants: Sequence[str]) -> list[str]:
    by_variant = {point["variant"]: point for point in points}
    first = by_variant[variants[0]]
    times = [f"{by_variant[name]['microseconds']:.{_digits(by_variant[name])}f}" for name in variants]
    shares = [f"{by_variant[name]['share']:.0%}" for name in variants]
    told = [f"{time} {share:>4}" for time, share in zip(times, shares, strict=True)]
    return [f"{first['gigabytes_per_second']:.0f}", f"{first['gigaflops']:.0f}", *told]


def _digits(point: Point) -> int:
    return 1 if point["microseconds"] < 1000.0 else 0
