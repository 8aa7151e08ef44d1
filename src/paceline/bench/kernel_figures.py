"""From samples of `bench.kernel_sweeps` to figures: how close a product or a pass comes to its machine.

Knows nothing of models and clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from paceline.bench.ceilings import Ceilings, measured_bytes
from paceline.bench.kernel_sweeps import CALL, Sweep

__all__ = ["DEFINITIONS", "call_microseconds", "points"]

DEFINITIONS = {
    "points": "a product is timed in sweeps through all products of its model, in the order of a pass, so its weights "
    "come from where they come from in a pass; products of a name are taken together. A pass has 64 tokens before it, "
    "computes the logits of every row, and commits nothing",
    "microseconds": "of one product or pass: median over turns of the mean of a turn, the call from Python included",
    "quartiles": "first and third, of the same in microseconds; null where there was one turn only",
    "gigabytes_per_second": "weight_bytes / time: of weights, as the variant keeps them; nothing else is counted",
    "gigaflops": "of products alone, a multiplication and an addition counting as two: 2 x inputs x outputs x rows / "
    "time. Of a pass: of all its products, so that attention, norms and calls count as time and not as work",
    "share_of_reading": "gigabytes_per_second / what the machine reads where the bytes of one pass of the variant are "
    "read again and again (ceilings.read, its ceiling_bytes): the caches' rate where they fit, else the memory's",
    "share_of_arithmetic": "gigaflops / those of the ceilings for what the variant multiplies (factors: float32, "
    "bfloat16 or int8). Those of a product of 1024 x 1024 matrices, "
    "about 85 to 95 % of what the processor can multiply: a share a little over 1 is no error",
    "share": "the greater of the two: 1 is what no program on this machine can beat, with weights of these bytes",
    "roof": "which of the two that is, reading or arithmetic",
    "call_microseconds": "of a product of 16 x 16 numbers with one row: what a call costs, and every product above has",
}
"""Part of every result."""


def points(sweeps: Sequence[Sweep], samples: Sequence[Mapping[str, list[float]]], ceilings: Ceilings) -> list[Any]:
    """A point for each part of each sweep, the whole pass among them.

    Args:
        samples: of each sweep, seconds by part.
    """
    return [
        _point(sweep, part, taken[part], ceilings)
        for sweep, taken in zip(sweeps, samples, strict=True)
        if sweep.model != CALL
        for part in sweep.parts
    ]


def call_microseconds(sweeps: Sequence[Sweep], samples: Sequence[Mapping[str, list[float]]]) -> dict[str, float]:
    """What a call costs in each variant."""
    pairs = zip(sweeps, samples, strict=True)
    return {sweep.variant: 1e6 * median(taken[CALL]) for sweep, taken in pairs if sweep.model == CALL}


def _point(sweep: Sweep, name: str, taken: Sequence[float], ceilings: Ceilings) -> dict[str, Any]:
    part, seconds = sweep.parts[name], median(taken)
    read, computed = part.nbytes / seconds / 1e9, part.operations * sweep.rows / seconds / 1e9
    reading = read / ceilings.read_gigabytes_per_second(sweep.read_bytes)
    arithmetic = computed / ceilings.gigaflops(sweep.factors)
    quartiles = quantiles(taken, n=4)[::2] if len(taken) > 1 else None
    return {
        "model": sweep.model,
        "part": name,
        "count": part.count,
        "rows": sweep.rows,
        "variant": sweep.variant,
        "factors": sweep.factors,
        "microseconds": 1e6 * seconds,
        "quartiles": quartiles and [1e6 * each for each in quartiles],
        "weight_bytes": part.nbytes,
        "operations_per_row": part.operations,
        "gigabytes_per_second": read,
        "gigaflops": computed,
        "share_of_reading": reading,
        "share_of_arithmetic": arithmetic,
        "share": max(reading, arithmetic),
        "roof": "reading" if reading > arithmetic else "arithmetic",
        "ceiling_bytes": measured_bytes(sweep.read_bytes),
    }
