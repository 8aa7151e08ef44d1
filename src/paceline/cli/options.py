"""Options that several commands share: which model decodes, and how."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["BlockSize", "Device", "Drafter", "Method", "Model", "Precision", "Threads", "set_threads"]

Model = Annotated[str | None, typer.Option(help="A folder, a hub id or a bundled model; the bundled pair if left out.")]
Drafter = Annotated[str | None, typer.Option(help="The same for a DFlash drafter of the model.")]
Method = Annotated[
    str, typer.Option(metavar="auto|ar|dflash", help="auto is dflash where there is a drafter; ar decodes plainly.")
]
BlockSize = Annotated[int | None, typer.Option(help="Rows of a block, 1 to 64; the drafter's own if left out.")]
Precision = Annotated[str, typer.Option(metavar="exact|half", help="exact is float32, half is bfloat16.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads on a CPU.")]


def set_threads(count: int | None) -> None:
    """Let torch use so many threads; None leaves its own choice."""
    if count is not None:
        import torch

        torch.set_num_threads(count)
