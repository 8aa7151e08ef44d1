"""Out of memory, told as the setting to lower. Knows how torch and NumPy say it, not who asked for how much.

A machine whose kernel ends the process (Linux does, where memory was promised and is not there) leaves nothing to tell.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from paceline.errors import TrainingError

__all__ = ["is_out_of_memory", "machine_bytes", "memory_is_set_by", "same_work"]


def machine_bytes() -> int:
    """The memory of this machine, in use or not."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def same_work(recomputed: bool) -> str:
    """What makes up for smaller micro batches, or takes their place where the layers are not `recomputed` yet."""
    told = "raise micro_batches by as much, and a step learns from as many"
    return told if recomputed else f"{told}; or set gradient_checkpointing, with which the same run goes on"


@contextmanager
def memory_is_set_by(setting: str, value: object = None, instead: str = "") -> Iterator[None]:
    """What runs inside takes memory in proportion to `setting`.

    Args:
        value: of the setting, where it is known.
        instead: what makes up for a lower one.

    Raises:
        TrainingError: there was not enough.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        told = f", with {setting} {value}" if value is not None else ""
        remedy = f"Lower {setting}{f'; {instead}' if instead else ''}."
        raise TrainingError(f"Out of memory{told}.", remedy=remedy, param=setting) from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says so."""
    # torch has an error of its own for accelerators, and only a sentence for the CPU.
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
