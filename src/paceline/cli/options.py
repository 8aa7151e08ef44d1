"""Options that several commands share: which model decodes, and how."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from paceline.errors import ConfigError

__all__ = ["BlockSize", "Device", "Drafter", "Method", "Model", "Precision", "Threads", "check_threads", "set_threads"]

Model = Annotated[str | None, typer.Option(help="A folder, a hub id or a bundled model; the bundled pair if left out.")]
Drafter = Annotated[str | None, typer.Option(help="The same for a DFlash drafter of the model.")]
Method = Annotated[
    str, typer.Option(metavar="auto|ar|dflash", help="auto is dflash where there is a drafter; ar decodes plainly.")
]
BlockSize = Annotated[int | None, typer.Option(help="Rows of a block, 1 to 64; the drafter's own if left out.")]
Precision = Annotated[str, typer.Option(metavar="exact|half", help="exact is float32, half is bfloat16.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads on a CPU.")]


def check_threads(count: int | None) -> None:
    """Refuse so many threads that they would starve the machine.

    Raises:
        ConfigError: more than four times the cores.
    """
    cores = os.cpu_count() or 1
    if count is not None and count > 4 * cores:
        raise ConfigError(f"threads is {count}.", remedy=f"This machine has {cores} cores; use at most {4 * cores}.")


def set_threads(count: int | None) -> None:
    """Let torch use so many threads; None leaves its own choice."""
    check_threads(count)
    if count is not None:
        import torch

        torch.set_num_threads(count)
