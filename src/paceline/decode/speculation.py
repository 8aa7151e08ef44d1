"""What a round proposes: the settings of DFlash and of lookup. They change speed, never text (docs/equality.md).

Numbers only; imports no torch. What they do is in `drafting`, `retrieval` and `tree`. Lookup has the words of vLLM
(prompt_lookup_min, prompt_lookup_max) and of transformers (prompt_lookup_num_tokens); lookup_factor is vLLM's
suffix_decoding_max_spec_factor, and 1 there, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from paceline.errors import SettingError
from paceline.plan import PLAIN, Plan
from paceline.settings import Setting, check_kinds, check_ranges

__all__ = ["PLAIN", "Lookup", "Plan", "Speculation", "TemperatureSchedule", "spread"]

TemperatureSchedule = Literal["off", "fixed", "adaptive"]

Candidates = Annotated[
    int | None,
    Setting(
        "DFlash, lookup: candidates per round, in one tree; 1 is a chain; 2 with lookup, at most 16 with block_size "
        "auto, else 1.",
        least=1,
        most=64,
    ),
]
MaxNodes = Annotated[
    int,
    Setting(
        "DFlash, lookup: drafted tokens that the target reads in a round at most, if there are candidates; 32.",
        least=1,
        most=256,
    ),
]
ShortestSuffix = Annotated[
    int, Setting("Lookup: tokens that must stand as they stood before, at least; 1.", least=1, most=64)
]
LongestSuffix = Annotated[
    int, Setting("Lookup: tokens that are compared, at most: what has most in common counts; 16.", least=1, most=64)
]
Factor = Annotated[
    float, Setting("Lookup: tokens of a candidate for each that stood so before, at most; 1.", least=0.01, most=1000)
]
KnownFile = Annotated[
    str | Path | None, Setting("Lookup: a UTF-8 text file that answers may repeat, beside the prompt.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What a round of DFlash proposes. `effect` says which of these can have no effect beside the others.

    Raises:
        ConfigError: a value out of range, or values at odds; names them and what is allowed.
    """

    block_size: Annotated[
        int | Literal["auto"],
        Setting(
            "DFlash: rows of a block; auto, the default, chooses it, and how many drafts are read, in every round by "
            "what pays.",
            least=1,
            most=64,
        ),
    ] = "auto"
    candidate_num: Candidates = None
    max_nodes: MaxNodes = 32
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
        Setting(
            "DFlash: how far candidates spread: as the drafter says, or on a schedule from initial to final; off, or "
            "adaptive where one of these is given."
        ),
    ] = "off"
    initial_temperature: Annotated[
        float,
        Setting("DFlash: spread in the first pass; 1.1.", least=0.01, most=10, section_alias="temperature.initial"),
    ] = 1.1
    final_temperature: Annotated[
        float, Setting("DFlash: spread in the last pass; 0.4.", least=0.01, most=10, section_alias="temperature.final")
    ] = 0.4
    overlap: Annotated[
        int, Setting("DFlash: drafts behind a rejected one that the next block begins with; 0.", least=0, most=63)
    ] = 0
    lookup: Annotated[
        int,
        Setting(
            "DFlash: tokens that a round's tree gets from what followed earlier in the text; 0.", least=0, most=256
        ),
    ] = 0
    prompt_lookup_min: ShortestSuffix = 1
    prompt_lookup_max: LongestSuffix = 16
    lookup_factor: Factor = 1.0
    lookup_file: KnownFile = None
    rescorer: Annotated[
        str | Path | None,
        Setting("DFlash: a small autoregressive model, or a folder of `train ngram`, that weighs candidates anew."),
    ] = None
    rescorer_weight: Annotated[float, Setting("DFlash: the drafter's share beside it; 0.5.", least=0, most=1)] = 0.5

    def __post_init__(self) -> None:
        check_kinds(self)
        check_ranges(self)
        _check_suffixes(self)
        if self.diffusion_steps > 1 and self.final_temperature > self.initial_temperature:
            told = {name: f"is {getattr(self, name)}" for name in ("final_temperature", "initial_temperature")}
            remedy = "It must not rise: give a higher initial_temperature, 1.1 if left out, or a lower final one."
            raise SettingError(told, remedy=remedy)

    @property
    def candidates(self) -> int:
        """Candidates per round, at most where the machine chooses."""
        return self.candidate_num or (16 if self.block_size == "auto" else 1)

    @property
    def may_branch(self) -> bool:
        """True where more than one candidate may be drafted."""
        return self.block_size != 1 and self.candidates > 1

    @property
    def is_plain(self) -> bool:
        """True where one candidate is drafted as the drafter says, from nothing but masks."""
        return (self.candidates, self.overlap, self.draft_temperature) == (1, 0, "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What a round of lookup proposes.

    Raises:
        ConfigError: a value out of range, or values at odds; names them and what is allowed.
    """

    prompt_lookup_num_tokens: Annotated[
        int, Setting("Lookup: tokens of a candidate, at most; 16.", least=1, most=256)
    ] = 16
    prompt_lookup_min: ShortestSuffix = 1
    prompt_lookup_max: LongestSuffix = 16
    lookup_factor: Factor = 1.0
    candidate_num: Candidates = None
    max_nodes: MaxNodes = 32
    lookup_file: KnownFile = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_ranges(self)
        _check_suffixes(self)

    @property
    def candidates(self) -> int:
        """Candidates per round, at most."""
        return self.candidate_num or 2


def _check_suffixes(settings: Speculation | Lookup) -> None:
    if settings.prompt_lookup_min > settings.prompt_lookup_max:
        told = {name: f"is {getattr(settings, name)}" for name in ("prompt_lookup_min", "prompt_lookup_max")}
        raise SettingError(told, remedy="The first must not be greater.")


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
