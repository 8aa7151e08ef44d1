"""Settings that several commands share: which model decodes, how its tokens are drawn; and the `LLM` they ask for.

`cli.flags` makes flags of them. Knows no command. Nothing imported here imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any

from paceline.decode.profiles import ProfileSetting
from paceline.decode.settings import EVERY_METHOD
from paceline.errors import ConfigError
from paceline.models.options import Device, Drafter, MaxBatch, Method, Model, PrecisionSetting, Threads, Verifier
from paceline.request import Sampling
from paceline.settings import Setting

if TYPE_CHECKING:
    from paceline.llm import LLM

__all__ = ["Decoding", "Drawing", "Explain", "MaxTokens", "ShowBlocks", "check_threads", "set_threads"]

MaxTokens = Annotated[int, Setting("Most new tokens.")]
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
        apart = ("threads", "settings", "profile")  # what a profile says is in the others by now
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
    temperature: Annotated[float, Setting("0 takes the most probable token.")] = 0.0
    top_p: Annotated[float, Setting("Keep the most probable ids up to this probability mass.")] = 1.0
    top_k: Annotated[int, Setting("Keep so many of the most probable ids; 0 keeps all.")] = 0
    min_p: Annotated[float, Setting("Keep ids with this share of the best id's probability.")] = 0.0
    seed: Annotated[int | None, Setting("The same seed gives the same text.")] = None
    stop: Annotated[tuple[str, ...], Setting("A text that ends the answer; may be repeated.")] = ()
    repetition_penalty: Annotated[float, Setting("Over 1 discourages ids of prompt and answer.")] = 1.0
    presence_penalty: Annotated[float, Setting("Over 0 discourages ids of the answer, -2 to 2.")] = 0.0
    frequency_penalty: Annotated[float, Setting("The same per occurrence, -2 to 2.")] = 0.0

    def sampling(self) -> Sampling:
        """The settings of a request.

        Raises:
            BadRequest: as `Sampling` does.
        """
        return Sampling(**asdict(self))


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
