"""On which machine a figure was taken, and what else that machine did meanwhile.

Knows nothing of what is measured.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

__all__ = ["machine_facts", "watch_machine"]


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Processor, cores this process may use, software, and torch's threads now."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": gpu,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


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


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
