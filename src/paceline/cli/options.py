"""Settings that several commands share: which model decodes, how its tokens are drawn; and the `LLM` they ask for.

`cli.flags` makes flags of them. Knows no command. Nothing imported here imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paceline.decode.profiles import ProfileSetting
from paceline.decode.settings import EVERY_METHOD
from paceline.errors import ConfigError, SettingError
from paceline.models.options import Device, Drafter, MaxBatch, Method, Model, PrecisionSetting, Threads, Verifier
from paceline.request import (
    FrequencyPenalty,
    MaxTokens,
    MinP,
    PresencePenalty,
    RepetitionPenalty,
    Sampling,
    Seed,
    Temperature,
    TopK,
    TopP,
)
from paceline.settings import Setting

if TYPE_CHECKING:
    from paceline.llm import LLM

__all__ = ["Decoding", "Drawing", "Explain", "ShowBlocks", "check_threads", "place", "set_threads"]

ShowBlocks = Annotated[bool, Setting("Show what each round drafted.", flags=("--show-blocks",))]
Explain = Annotated[
    bool,
    Setting("Tell on stderr what each round drafted, and why; the answer comes last.", flags=("--explain",)),
]


@dataclass(frozen=True, slots=True)
class Decoding:
    """Which model decodes, by which method, how exactly, and where. `LLM` checks it."""

    model: Model = None
    drafter: Drafter = None
    verifier: Verifier = None
    method: Annotated[
        Method,
        Setting(
            "auto is apd where there is a verifier, dflash where there is a drafter, diffusion for other diffusion "
            "language models, else ar: plain. lookup needs no drafter: it proposes what followed earlier in the text."
        ),
    ] = "auto"
    settings: Annotated[Mapping[str, Any], EVERY_METHOD] = field(default_factory=dict)
    precision: PrecisionSetting = "exact"
    device: Device = "auto"
    threads: Threads = None
    max_batch: MaxBatch = 8
    profile: ProfileSetting = None

    def open(self, *, explain: bool = False) -> LLM:
        """The model, and torch with so many threads.

        Raises:
            CheckpointError, ConfigError: as `LLM` does.
            ConfigError: rounds of this method cannot be explained.
        """
        from paceline.llm import LLM

        set_threads(self.threads)
        apart = ("threads", "settings")
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in apart}
        llm = LLM(**own, **self.settings, explain=explain)
        if explain and llm.method in ("diffusion", "apd"):
            told = f"--explain is set, and the method is {llm.method!r}: no target reads what is proposed."
            raise ConfigError(told, remedy="Use --show-blocks.", param="explain")
        return llm


@dataclass(frozen=True, slots=True)
class Drawing:
    """How tokens are drawn. `Sampling` checks it."""

    max_tokens: MaxTokens = 256
    temperature: Temperature = 0.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: MinP = 0.0
    seed: Seed = None
    stop: Annotated[tuple[str, ...], Setting("A text that ends the answer; may be repeated.")] = ()
    repetition_penalty: RepetitionPenalty = 1.0
    presence_penalty: PresencePenalty = 0.0
    frequency_penalty: FrequencyPenalty = 0.0

    def sampling(self) -> Sampling:
        """The settings of a request.

        Raises:
            BadRequest: as `Sampling` does.
        """
        return Sampling(**asdict(self))


def place(
    kind: Literal["file", "folder"], *, exists: bool
) -> Callable[[typer.CallbackParam, Path | None], Path | None]:
    """A callback of Typer's options that refuses a path which is not of that kind, or not there if it has to be."""

    def checked(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
        if path is None or not (exists or path.exists()):
            return path
        if path.is_dir() is not (kind == "folder") or not path.exists():
            told = f": that is no {kind}." if path.exists() else f": there is no such {kind}."
            raise SettingError({str(parameter.name): f"is {str(path)!r:.80}"}, told, remedy=f"Name a {kind}.")
        return path

    return checked


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
