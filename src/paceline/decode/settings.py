"""The settings of all decode methods: every word means one thing, and each method has its own of them, and defaults.

What was left out is not there; None is a value. A method's settings may stand in a section of its own, `apd_params`,
which does not count for another method; outside of it they are refused for another. Imports no torch. Knows nothing of
models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypedDict

from paceline.decode.adaptive import Adaptive, Schedule
from paceline.decode.effect import check_effects
from paceline.decode.remasking import Freeze, Remasking, StepSchedule, Strategy
from paceline.decode.speculation import Lookup, Speculation, TemperatureSchedule
from paceline.errors import ConfigError, SettingError
from paceline.given import checked
from paceline.settings import Either, canonical, fields_of

__all__ = ["EVERY_METHOD", "SWITCHED_BY", "MethodSettings", "Own", "section_of", "settings_of"]

Own = Remasking | Adaptive | Speculation | Lookup
"""The settings of one method."""

_METHODS: dict[str, type[Own]] = {"dflash": Speculation, "lookup": Lookup, "apd": Adaptive, "diffusion": Remasking}


def section_of(method: str) -> str:
    """What the section of a method's settings is called."""
    return f"{method}_params"


EVERY_METHOD = Either(tuple(_METHODS.values()), tuple(map(section_of, _METHODS)))
"""What may be set before the method is known."""

SWITCHED_BY = {"draft_temperature": ("initial_temperature", "final_temperature"), "schedule": ("tau",)}
"""A schedule is meant where its numbers are given: it is adaptive then, if nothing else is said of it."""


class MethodSettings(TypedDict, total=False):
    """The keywords of `LLM` that belong to a method.

    They are the fields of `Speculation` (dflash), `Lookup` (lookup), `Adaptive` (apd) and `Remasking` (diffusion), and
    the sections.
    """

    block_size: int | Literal["auto"]
    candidate_num: int | None
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
    dflash_params: Mapping[str, Any]
    lookup_params: Mapping[str, Any]
    apd_params: Mapping[str, Any]
    diffusion_params: Mapping[str, Any]


def settings_of(
    method: str, given: Mapping[str, Any], below: Mapping[str, Any] | None = None, where_below: str = ""
) -> Own | None:
    """The settings of a method, from what was given; None for a method that has none.

    Args:
        given: settings by name, and mappings by the names of sections, of which that of the method counts.
        below: sections that hold where nothing was given, as those of a profile.
        where_below: they are from, for messages: " in profile edge".

    Raises:
        ConfigError: a setting that is unknown, of another method, out of range, at odds with another, or that can have
            no effect (`effect`).
    """
    inside = _of_sections(given)
    outside = {name: value for name, value in given.items() if not _is_in_section(name)}
    canonical(
        {**outside, **inside}, [*EVERY_METHOD.fields, *EVERY_METHOD.section_fields]
    )  # not both inside and outside
    values = canonical(outside, EVERY_METHOD.fields)
    for name, value in values.items():
        _check_owner(name, value, method)
    for other in _METHODS.keys() - {method}:
        own = _own_section(other, inside)
        with _placed(_places(other, own)):
            _METHODS[other](**own)  # what does not count is checked all the same
    if method not in _METHODS:
        return None
    section, lowest = _own_section(method, inside), _own_section(method, _of_sections(below or {}))
    places = {**_places(method, lowest, where_below), **_places(method, section), **_places("", values)}
    with _placed(places):
        found = _METHODS[method](**_switched({**lowest, **section, **values}))
        check_effects(method, found, values, section)
    return found


def _places(method: str, names: Iterable[str], where: str = "") -> dict[str, tuple[str, str]]:
    """By which key settings were set, in the section of a method or outside of all, and where."""
    return {name: (f"{section_of(method)}.{name}" if method else name, where) for name in names}


@contextmanager
def _placed(places: Mapping[str, tuple[str, str]]) -> Iterator[None]:
    """Errors of settings name the keys that they were set by."""
    try:
        yield
    except SettingError as error:
        raise error.placed(places) from error


def _is_in_section(name: str) -> bool:
    return name.partition(".")[0] in EVERY_METHOD.sections


def _of_sections(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given in sections, as `apd_params.alpha`, values as configurations have them."""
    found = {name: value for name, value in given.items() if _is_in_section(name)}
    return EVERY_METHOD.given(checked(found, EVERY_METHOD.section_fields))


def _own_section(method: str, inside: Mapping[str, Any]) -> dict[str, Any]:
    begin = f"{section_of(method)}."
    return {name.removeprefix(begin): value for name, value in inside.items() if name.startswith(begin)}


def _switched(own: dict[str, Any]) -> dict[str, Any]:
    """With what is meant by it."""
    meant = {name: "adaptive" for name, ends in SWITCHED_BY.items() if own.keys() & set(ends)}
    return meant | own


def _check_owner(name: str, value: object, method: str) -> None:
    owners = [owner for owner, config in _METHODS.items() if name in {field.name for field in fields_of(config)}]
    if not owners:
        raise _unknown(name, value)
    if method not in owners:
        so = f", and the method is {method!r}: it is a setting of {' and '.join(owners)}."
        raise SettingError({name: "is set"}, so, remedy="Leave it out, or change the method.")


def _unknown(name: str, value: object) -> ConfigError:
    known = [*(field.name for field in EVERY_METHOD.fields), *EVERY_METHOD.sections]
    guess = [f"Did you mean {close}?" for close in get_close_matches(name, known, 1)]
    remedy = " ".join([*guess, f"Methods have: {', '.join(known)}."])
    return ConfigError(f"{name} is {value!r:.40}: no such setting.", remedy=remedy, param=name)
