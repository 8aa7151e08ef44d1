"""The settings of all decode methods: every word means one thing, and each method has its own of them, and defaults.

What was left out is not there; None is a value. Imports no torch. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypedDict

from paceline.decode.adaptive import Adaptive, Schedule
from paceline.decode.remasking import Freeze, Remasking, StepSchedule, Strategy
from paceline.decode.speculation import Lookup, Speculation, TemperatureSchedule
from paceline.errors import ConfigError
from paceline.settings import Either, canonical, fields_of

__all__ = ["EVERY_METHOD", "MethodSettings", "Own", "settings_of"]

Own = Remasking | Adaptive | Speculation | Lookup
"""The settings of one method."""

_METHODS: dict[str, type[Own]] = {"dflash": Speculation, "lookup": Lookup, "apd": Adaptive, "diffusion": Remasking}

EVERY_METHOD = Either(tuple(_METHODS.values()))
"""What may be set before the method is known."""


class MethodSettings(TypedDict, total=False):
    """The keywords of `LLM` that belong to a method.

    They are the fields of `Speculation` (dflash), `Lookup` (lookup), `Adaptive` (apd) and `Remasking` (diffusion).
    """

    block_size: int | Literal["auto"] | None
    candidate_num: int
    max_nodes: int
    pruning_threshold: float
    diffusion_steps: int
    draft_temperature: TemperatureSchedule
    initial_temperature: float
    final_temperature: float
    overlap: int
    rescorer: str | Path | None
    rescorer_weight: float
    lookup: int
    prompt_lookup_num_tokens: int
    prompt_lookup_min: int
    prompt_lookup_max: int
    lookup_factor: float
    lookup_file: str | Path | None
    alpha: float
    tau: float
    schedule: Schedule
    window: int | None
    window_size: int | None
    kv_window: int | None
    ngrams: str | Path | None
    strategy: Strategy
    steps: int | None
    threshold: float | None
    factor: float | None
    tokens_per_step: int | None
    step_schedule: StepSchedule
    eps: float
    block_length: int | None
    cache: Freeze
    end_last: bool


def settings_of(method: str, given: Mapping[str, Any]) -> Own | None:
    """The settings of a method, from what was given; None for a method that has none.

    Raises:
        ConfigError: a setting that is unknown, of another method, out of range or at odds with another.
    """
    values = canonical(given, EVERY_METHOD.fields)
    for name in values:
        owners = [owner for owner, config in _METHODS.items() if name in {field.name for field in fields_of(config)}]
        if not owners:
            raise _unknown(name, values[name])
        if method not in owners:
            told = f"{name} is set, and the method is {method!r}: it is a setting of {' and '.join(owners)}."
            raise ConfigError(told, remedy="Leave it out, or change the method.", param=name)
    return _METHODS[method](**values) if method in _METHODS else None


def _unknown(name: str, value: object) -> ConfigError:
    known = [field.name for field in EVERY_METHOD.fields]
    guess = [f"Did you mean {close}?" for close in get_close_matches(name, known, 1)]
    remedy = " ".join([*guess, f"Methods have: {', '.join(known)}."])
    return ConfigError(f"{name} is {value!r:.40}: no such setting.", remedy=remedy, param=name)
