"""How wide and how deep DFlash drafts: the settings of its proposals. They change speed, never text (docs/equality.md).

Numbers only; imports no torch. What they do is in `drafting` and `tree`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from paceline.errors import ConfigError
from paceline.plan import Plan
from paceline.settings import Setting, check_kinds, check_ranges

__all__ = ["PLAIN", "Plan", "Speculation", "TemperatureSchedule", "spread"]

TemperatureSchedule = Literal["off", "fixed", "adaptive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What a round of DFlash proposes.

    Raises:
        ConfigError: a value out of range, or values at odds; names them and what is allowed.
    """

    block_size: Annotated[
        int | Literal["auto"] | None,
        Setting(
            "DFlash: rows of a block; auto chooses it, and how many drafts are read, in every round by what pays; "
            "the drafter's own if left out.",
            least=1,
            most=64,
        ),
    ] = None
    candidate_num: Annotated[
        int, Setting("DFlash: candidates per round, in one tree; 1 is a chain.", least=1, most=64)
    ] = 1
    max_nodes: Annotated[
        int,
        Setting(
            "DFlash: drafted tokens that the target reads in a round at most, if it has candidates; 32.",
            least=1,
            most=256,
        ),
    ] = 32
    pruning_threshold: Annotated[
        float,
        Setting(
            "DFlash: drop drafts less probable than so many times the best of their depth; 0 keeps all.",
            least=0,
            most=1,
        ),
    ] = 0.0
    diffusion_steps: Annotated[
        int,
        Setting(
            "DFlash: passes of the drafter over a block at most; it fixes what is surest first; 1.", least=1, most=8
        ),
    ] = 1
    draft_temperature: Annotated[
        TemperatureSchedule,
        Setting("DFlash: how far candidates spread: as the drafter says, or on a schedule from initial to final."),
    ] = "off"
    initial_temperature: Annotated[float, Setting("DFlash: spread in the first pass; 1.1.", least=0.01, most=10)] = 1.1
    final_temperature: Annotated[float, Setting("DFlash: spread in the last pass; 0.4.", least=0.01, most=10)] = 0.4
    overlap: Annotated[
        int, Setting("DFlash: drafts behind a rejected one that the next block begins with; 0.", least=0, most=63)
    ] = 0

    rescorer: Annotated[
        str | Path | None,
        Setting("DFlash: a small autoregressive model, or a folder of `train ngram`, that weighs candidates anew."),
    ] = None
    rescorer_weight: Annotated[float, Setting("DFlash: the drafter's share beside it; 0.5.", least=0, most=1)] = 0.5

    def __post_init__(self) -> None:
        check_kinds(self)
        check_ranges(self)
        if self.final_temperature > self.initial_temperature:
            told = f"final_temperature is {self.final_temperature}, initial_temperature {self.initial_temperature}."
            raise ConfigError(told, remedy="It must not rise.", param="final_temperature")


PLAIN = Plan(1)
"""No drafts: a round of plain decoding."""


def spread(settings: Speculation, step: int, steps: int, perplexity: float) -> float:
    """By what the drafter's log probabilities are divided in pass `step` of `steps`: more than 1 spreads candidates.

    Falls evenly from the initial to the final temperature over the passes; the only pass has the final one. Where it
    adapts, candidates that were surprising in the pass before raise it again.

    Args:
        perplexity: of the tokens fixed so far, at least 1; 1 before the first.
    """
    if settings.draft_temperature == "off":
        return 1.0
    first, last = settings.initial_temperature, settings.final_temperature
    planned = last if steps == 1 else first + (last - first) * (step - 1) / (steps - 1)
    if settings.draft_temperature == "fixed":
        return planned
    return planned + (first - planned) * (1.0 - 1.0 / perplexity)
