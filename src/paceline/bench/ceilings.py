"""What a CPU can do at most, measured again and again in the course of a benchmark: reading, and float32 arithmetic.

Reading is a sum over memory, also over as little of it as stays in the caches. Arithmetic is a product of two square
matrices, which comes to some 85 to 95 % of what the multipliers could do: shares of it are a little too high, alike for
everything that is held against it. Knows nothing of what is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median
from typing import Any

import torch

__all__ = ["MEMORY_BYTES", "Ceilings", "measured_bytes"]

MEMORY_BYTES = 1 << 29
"""Well beyond all caches."""

_MEBIBYTE = 1 << 20

_MATRIX_ROWS = 1024

_CALLS = 3
"""Of each, per measurement, behind one that does not count."""


def measured_bytes(read_bytes: int) -> int:
    """What is measured for so much memory: whole MiB, one at least, `MEMORY_BYTES` at most."""
    return min(max(1, round(read_bytes / _MEBIBYTE)) * _MEBIBYTE, MEMORY_BYTES)


class Ceilings:
    """Collects measurements, with torch's threads as they are.

    Args:
        read_bytes: how much memory is read again and again; `MEMORY_BYTES` is always measured.
    """

    def __init__(self, read_bytes: Iterable[int] = ()) -> None:
        self._numbers = torch.ones(MEMORY_BYTES // torch.float32.itemsize)
        self._matrix = torch.rand(_MATRIX_ROWS, _MATRIX_ROWS)
        sizes = sorted({MEMORY_BYTES, *map(measured_bytes, read_bytes)})
        self._reads: dict[int, list[float]] = {size: [] for size in sizes}
        self._products: list[float] = []

    def measure(self) -> None:
        """One more sample of each; takes about 0.1 s."""
        for size, taken in self._reads.items():
            numbers = self._numbers[: size // self._numbers.itemsize]
            taken.append(numbers.nbytes / 1e9 / _seconds(numbers.sum))
        product = partial(torch.mm, self._matrix, self._matrix)
        self._products.append(2e-9 * _MATRIX_ROWS**3 / _seconds(product))

    def read_gigabytes_per_second(self, read_bytes: int) -> float:
        """The median where so much memory is read again and again: one of the sizes that were asked for."""
        return median(self._reads[measured_bytes(read_bytes)])

    @property
    def gigaflops(self) -> float:
        """The median in float32, a multiplication and an addition counting as two."""
        return median(self._products)

    def figures(self) -> dict[str, Any]:
        """Median, least and most of all samples, as plain data."""
        reads = [{"bytes": size, "gigabytes_per_second": _spread(taken)} for size, taken in self._reads.items()]
        return {"read": reads, "float32_gigaflops": _spread(self._products)}


def _spread(samples: list[float]) -> dict[str, float]:
    return {"median": median(samples), "least": min(samples), "most": max(samples)}


def _seconds(work: Callable[[], object]) -> float:
    """The median of a few calls."""
    taken = []
    for _ in range(1 + _CALLS):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return median(taken[1:])
