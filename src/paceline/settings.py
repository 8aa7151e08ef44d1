"""What the fields of a configuration mean to a user: flags, YAML keys, help and checks are made from it.

A field is declared as `steps: Annotated[int, Setting("Optimiser steps in all.", least=1)] = 100`. Knows neither what
a setting is for, nor the command line.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from paceline.errors import ConfigError
from paceline.yaml_file import read_mapping

__all__ = [
    "Either",
    "Field",
    "Setting",
    "assemble",
    "canonical",
    "check_kinds",
    "check_ranges",
    "fields_of",
    "read_settings",
    "words_of",
]

Config = TypeVar("Config")

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", Path: "a path", NoneType: "null"}


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What a user is told of a field, and the range of its values (of each of them, where it holds many).

    `flags` are its names on the command line where these are not the field's own: `("--block-size",)` of block_sizes.
    `null_word` says None on the command line and in YAML, where leaving the setting out says something else. `alias` is
    another name for it, in YAML and in Python; one with a dot is for YAML alone: `training.lr` is lr in a section.
    """

    help: str
    least: float | None = None
    most: float | None = None
    flags: tuple[str, ...] = ()
    null_word: str = ""
    alias: str = ""


class Field(NamedTuple):
    """A setting with its name, type and default (`dataclasses.MISSING` where it has to be given)."""

    name: str
    kind: Any
    setting: Setting
    default: Any = dataclasses.MISSING

    @property
    def other_names(self) -> tuple[str, ...]:
        """What else it may be called in a file: its alias, and its flags where they are not called as it is."""
        flags = [flag.removeprefix("--").replace("-", "_") for flag in self.setting.flags]
        return tuple(name for name in (self.setting.alias, *flags) if name not in ("", self.name))


@dataclasses.dataclass(frozen=True, slots=True)
class Either:
    """Says of a mapping that it holds what was set of these configurations, one of which will be made of it later."""

    configs: tuple[type, ...]

    @property
    def fields(self) -> list[Field]:
        """Their fields, each name once; None stands for what was left out."""
        found = {field.name: field._replace(default=None) for config in self.configs for field in fields_of(config)}
        return list(found.values())

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What was set, of `values` from the command line."""
        names = [field for field in self.fields if values.get(field.name) is not None]
        return {field.name: _spelled(field, values[field.name]) for field in names}


def fields_of(config: type) -> list[Field]:
    """The fields of a dataclass; a configuration inside it, or one of several, stands as its own fields."""
    found: list[Field] = []
    hints = get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            found += fields_of(hint)  # type: ignore[arg-type]
            continue
        kind, setting = get_args(hint)
        if isinstance(setting, Either):
            found += setting.fields
        else:
            found.append(Field(field.name, kind, setting, field.default))
    return found


def assemble(config: type[Config], values: Mapping[str, Any]) -> Config:
    """`config`, and the configurations in it, from `values` by the names of the fields; the rest has its default."""
    given: dict[str, Any] = {}
    hints = get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            given[field.name] = assemble(hint, values)  # type: ignore[arg-type]
        elif isinstance(get_args(hint)[1], Either):
            given[field.name] = get_args(hint)[1].given(values)
        elif field.name in values:
            given[field.name] = values[field.name]
    return config(**given)


def check_kinds(config: object) -> None:
    """Refuse a configuration of numbers, words and switches that holds something else, as Python code can give it.

    Raises:
        ConfigError: names the setting, its value and what is allowed.
    """
    for field in fields_of(type(config)):
        if not _fits(getattr(config, field.name), field.kind):
            raise _refusal(field, getattr(config, field.name))


def check_ranges(config: object) -> None:
    """Refuse a configuration with a number outside the range of its setting. One inside it checks its own.

    Raises:
        ConfigError: names the setting, its value and what is allowed.
    """
    for field in fields_of(type(config)):
        value = getattr(config, field.name, None)
        if not _in_range(value, field.setting):
            raise _refusal(field, value)


def read_settings(path: Path, allowed: Sequence[Field]) -> dict[str, Any]:
    """The settings of a YAML file by name, as YAML has them: paths are text, pairs are lists.

    Raises:
        ConfigError: no YAML mapping, an unknown key, or a value of the wrong type or outside its range; names key,
            value and what is allowed.
    """
    known = {name: field for field in allowed for name in (field.name, *field.other_names)}
    values = read_mapping(path)
    for key, value in values.items():
        if key not in known:
            guess = [f"Did you mean {name}?" for name in get_close_matches(str(key), known, 1)]
            remedy = " ".join([*guess, f"Allowed are: {', '.join(known)}."])
            raise ConfigError(f"{path} sets {key!r:.40} to {value!r:.40}: no such setting.", remedy=remedy, param=key)
        word = known[key].setting.null_word
        if word and value in (None, word):
            values[key] = word
        elif not _fits(value, known[key].kind) or not _in_range(value, known[key].setting):
            remedy = f"It must be {_described(known[key])}."
            raise ConfigError(f"{key} is {value!r:.80} in {path}.", remedy=remedy, param=key)
    return canonical(values, allowed)


def canonical(values: Mapping[Any, Any], fields: Sequence[Field]) -> dict[Any, Any]:
    """`values` by the names of the fields, where some may be set by another name.

    Raises:
        ConfigError: a setting by two of its names.
    """
    names = {other: field.name for field in fields for other in field.other_names}
    given: dict[Any, Any] = {}
    for name in values:
        earlier = given.setdefault(names.get(name, name), name)
        if earlier != name:
            told = f"{earlier} is {values[earlier]!r:.40} and {name} is {values[name]!r:.40}."
            raise ConfigError(told, remedy=f"Leave one out: {name} is another name of it.", param=name)
    return {name: values[spelled] for name, spelled in given.items()}


def words_of(kind: Any) -> tuple[str, ...]:
    """The words that may stand in place of a number, for a setting that takes both."""
    kinds = get_args(kind)
    return (
        tuple(word for each in kinds if get_origin(each) is Literal for word in get_args(each)) if int in kinds else ()
    )


def _spelled(field: Field, text: Any) -> Any:
    """The value of a setting that the command line takes as text, since it is a number or a word."""
    if not field.setting.null_word and not words_of(field.kind):
        return text
    if text == field.setting.null_word:
        return None
    if text in words_of(field.kind):
        return text
    try:
        return int(text)
    except ValueError:
        raise _refusal(field, text) from None


def _refusal(field: Field, value: object) -> ConfigError:
    remedy = f"It must be {_described(field)}."
    return ConfigError(f"{field.name} is {value!r:.80}.", remedy=remedy, param=field.name)


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) in (tuple, list):
        if not isinstance(value, list):
            return False
        kinds = _kinds_of(kind, len(value))
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    if get_args(kind):  # a union
        return any(_fits(value, each) for each in get_args(kind))
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    return isinstance(value, str | Path) if kind is Path else type(value) is kind  # True is no integer


def _kinds_of(kind: Any, length: int) -> tuple[Any, ...]:
    """The kinds of the elements of a tuple or a list; one of any length takes `length` of its kind."""
    kinds = get_args(kind)
    return kinds if get_origin(kind) is tuple and kinds[-1] is not Ellipsis else kinds[:1] * length


def _in_range(value: object, setting: Setting) -> bool:
    if isinstance(value, list | tuple):
        return all(_in_range(each, setting) for each in value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return True
    return (setting.least is None or value >= setting.least) and (setting.most is None or value <= setting.most)


def _described(field: Field) -> str:
    bounds = ((" of at least", field.setting.least), (" of at most", field.setting.most))
    told = " and".join(f"{words} {bound:.15g}" for words, bound in bounds if bound is not None)
    word = field.setting.null_word
    return _kind_described(field.kind) + told + (f"; null is {word}" if word else "")


def _kind_described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (tuple, list) and len(_kinds_of(kind, 0)) == 0:
        return f"a list, each {_kind_described(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        return f"a list of {len(get_args(kind))}: " + ", ".join(map(_kind_described, get_args(kind)))
    if get_args(kind):
        return " or ".join(map(_kind_described, get_args(kind)))
    return _WORDS[kind]
