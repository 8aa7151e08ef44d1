"""`paceline bench frontier`: accuracy against speed, over the settings of APD and of everything it is compared with.

The measurement is that of `quality`, of more settings; here stands which of them nothing else beats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.bench.quality import bench_quality
from paceline.bench.quality_options import FrontierBench

__all__ = ["bench_frontier", "frontier"]

_FRONTIER_DEFINITIONS = {
    "frontier": "settings that no other beats: none is both as accurate and as fast, and better in one of the two. "
    "Chance decides, too: compare two of them on the same problems, with --reference",
}


def bench_frontier(options: FrontierBench) -> dict[str, Any]:
    """Run the benchmark; the result of `bench_quality`, and `frontier`: the names of settings that nothing beats.

    Raises:
        PacelineError: settings or models that cannot be used; nothing has been measured then.
    """
    found = bench_quality(options)
    definitions = found["definitions"] | _FRONTIER_DEFINITIONS
    return found | {"bench": "frontier", "definitions": definitions, "frontier": frontier(found["points"])}


def frontier(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings on the Pareto line of accuracy and tokens per second, from the slowest to the fastest."""
    best, line = -1.0, []
    for point in sorted(points, key=lambda point: (-point["tokens_per_second"], -point["accuracy"])):
        if point["accuracy"] > best:
            best = point["accuracy"]
            line.append(point["setting"])
    return line[::-1]
