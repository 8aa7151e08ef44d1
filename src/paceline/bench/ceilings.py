"""What a CPU can do at most, measured again and again in the course of a benchmark: reading, and arithmetic.

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
        factors: of products: float32, bfloat16, int8.
    """

    def __init__(self, read_bytes: Iterable[int] = (), factors: Iterable[str] = ("float32",)) -> None:
        self._numbers = torch.ones(MEMORY_BYTES // torch.float32.itemsize)
        self._squares = {name: _square(name) for name in dict.fromkeys(factors)}
        sizes = sorted({MEMORY_BYTES, *map(measured_bytes, read_bytes)})
        self._reads: dict[int, list[float]] = {size: [] for size in sizes}
        self._products: dict[str, list[float]] = {name: [] for name in self._squares}

    def measure(self) -> None:
        """One more sample of each; takes about 0.1 s."""
        for size, taken in self._reads.items():
            numbers = self._numbers[: size // self._numbers.itemsize]
            taken.append(numbers.nbytes / 1e9 / _seconds(numbers.sum))
        for name, square in self._squares.items():
            multiply = torch._int_mm if name == "int8" else torch.mm
            self._products[name].append(2e-9 * _MATRIX_ROWS**3 / _seconds(partial(multiply, square, square)))

    def read_gigabytes_per_second(self, read_bytes: int) -> float:
        """The median where so much memory is read again and again: one of the sizes that were asked for."""
        return median(self._reads[measured_bytes(read_bytes)])

    def gigaflops(self, factors: str = "float32") -> float:
        """The median of products of these, a multiplication and an addition counting as two."""
        return median(self._products[factors])

    def figures(self) -> dict[str, Any]:
        """Median, least and most of all samples, as plain data."""
        reads = [{"bytes": size, "gigabytes_per_second": _spread(taken)} for size, taken in self._reads.items()]
        return {"read": reads} | {f"{name}_gigaflops": _spread(taken) for name, taken in self._products.items()}


def _spread(samples: list[float]) -> dict[str, float]:
    return {"median": median(samples), "least": min(samples), "most": max(samples)}


def _square(factors: str) -> torch.Tensor:
    numbers = torch.rand(_MATRIX_ROWS, _MATRIX_ROWS)
    return (100 * numbers).to(torch.int8) if factors == "int8" else numbers.to(getattr(torch, factors))


def _seconds(work: Callable[[], object]) -> float:
    """The median of a few calls."""
    taken = []
    for _ in range(1 + _CALLS):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return median(taken[1:])
