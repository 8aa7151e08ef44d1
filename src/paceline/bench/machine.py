"""On which machine a figure was taken, what that machine can do at most, and what else it did meanwhile.

Knows nothing of what is measured.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from paceline import native
from paceline.hardware import cpu_name

__all__ = ["machine_ceilings", "machine_facts", "watch_machine"]

_READ_NUMBERS = 1 << 27
"""float32 numbers that are summed for the bandwidth: 512 MiB, well beyond caches."""

_REPEATS, _ENOUGH_SECONDS = 5, 1.0


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Processor, cores this process may use, software, torch's threads now; what native passes use, or why none are."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": gpu,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "native": native.in_use(),
    }


def machine_ceilings(device: torch.device) -> dict[str, float]:
    """What decoding cannot beat on `device`, with torch's threads as they are; takes about a second.

    Returns:
        `read_gigabytes_per_second`: a sum over memory beyond the caches. `float32_gigaflops` and `bfloat16_gigaflops`:
        a product of two square matrices, a multiplication and an addition counting as two. Medians of a few repeats.
    """
    numbers = torch.ones(_READ_NUMBERS, device=device)
    ceilings = {"read_gigabytes_per_second": numbers.nbytes / 1e9 / _seconds(numbers.sum, device)}
    del numbers
    rows = 1024 if device.type == "cpu" else 8192
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.rand(rows, rows, device=device).to(dtype)
        name = str(dtype).removeprefix("torch.")
        ceilings[f"{name}_gigaflops"] = 2e-9 * rows**3 / _seconds(partial(torch.mm, matrix, matrix), device)
    return ceilings


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Median time of `work`, after a first call that does not count; fewer calls where they take long."""
    taken: list[float] = []
    while len(taken) <= _REPEATS and sum(taken) < _ENOUGH_SECONDS:
        started = time.perf_counter()
        work()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        taken.append(time.perf_counter() - started)
    return median(taken[1:] or taken)


@contextmanager
def watch_machine() -> Iterator[dict[str, Any]]:
    """Fill the dictionary it yields with the load before and after the block, and the cores others kept busy.

    `busy_cores_elsewhere` is their mean over the block, time stolen by a hypervisor included; None where the system
    does not tell. Anything far above 0 competes with the measurement.
    """
    seen: dict[str, Any] = {"load_average_before": _load_average()}
    started, busy, own = time.perf_counter(), _busy_seconds(), time.process_time()
    yield seen
    elapsed, busy_after = time.perf_counter() - started, _busy_seconds()
    seen["load_average_after"] = _load_average()
    others = None if busy is None or busy_after is None else busy_after - busy - (time.process_time() - own)
    seen["busy_cores_elsewhere"] = None if others is None else max(0.0, others / elapsed)


def _load_average() -> list[float] | None:
    return [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _busy_seconds() -> float | None:
    """Seconds that all cores together were busy since the start (Linux: man 5 proc_stat)."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
