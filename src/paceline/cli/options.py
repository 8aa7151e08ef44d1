"""Options that several commands share: which model decodes, how its tokens are drawn; and the `LLM` they ask for.

Knows no command. Nothing imported here imports torch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.llm import LLM

__all__ = [
    "BlockSize",
    "Device",
    "Drafter",
    "MaxTokens",
    "Method",
    "MinP",
    "Model",
    "Precision",
    "Seed",
    "ShowBlocks",
    "Temperature",
    "Threads",
    "TopK",
    "TopP",
    "check_threads",
    "open_llm",
    "set_threads",
]

Model = Annotated[str | None, typer.Option(help="A folder, a hub id or a bundled model; the bundled pair if left out.")]
Drafter = Annotated[str | None, typer.Option(help="The same for a DFlash drafter of the model.")]
Method = Annotated[
    str, typer.Option(metavar="auto|ar|dflash", help="auto is dflash where there is a drafter; ar decodes plainly.")
]
BlockSize = Annotated[int | None, typer.Option(help="Rows of a block, 1 to 64; the drafter's own if left out.")]
MaxTokens = Annotated[int, typer.Option(help="Most new tokens.")]
Temperature = Annotated[float, typer.Option(help="0 takes the most probable token.")]
TopP = Annotated[float, typer.Option(help="Keep the most probable ids up to this probability mass.")]
TopK = Annotated[int, typer.Option(help="Keep so many of the most probable ids; 0 keeps all.")]
MinP = Annotated[float, typer.Option(help="Keep ids with this share of the best id's probability.")]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same text.")]
ShowBlocks = Annotated[bool, typer.Option("--show-blocks", help="Show what each round drafted.")]
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


def open_llm(
    model: str | None,
    drafter: str | None,
    *,
    method: str,
    block_size: int | None,
    precision: str,
    device: str,
    threads: int | None,
) -> LLM:
    """The model that the options name, and torch with so many threads.

    Raises:
        CheckpointError, ConfigError: as `LLM` does.
    """
    from paceline.llm import LLM

    set_threads(threads)
    how: Any = {"method": method, "precision": precision, "device": device}  # checked by LLM, not by types
    return LLM(model, drafter=drafter, block_size=block_size, **how)
