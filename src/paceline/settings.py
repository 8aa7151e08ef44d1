"""What the fields of a configuration mean to a user: flags, YAML keys, help and checks are made from it.

A field is declared as `steps: Annotated[int, Setting("Optimiser steps in all.", least=1)] = 100`. Knows neither what
a setting is for, nor the command line; `given` reads the values of files.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from paceline.errors import ConfigError

__all__ = [
    "Either",
    "Field",
    "Setting",
    "assemble",
    "canonical",
    "check_kinds",
    "check_ranges",
    "described",
    "fields_of",
    "refusal",
    "section_fields_of",
    "suits",
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
    `section_alias` is another name in the section of its configuration (see `Either`) alone: `temperature.initial`.
    `presets` are settings by name, for a setting that is the name of some: they hold where nothing else is given.
    """

    help: str
    least: float | None = None
    most: float | None = None
    flags: tuple[str, ...] = ()
    null_word: str = ""
    alias: str = ""
    section_alias: str = ""
    presets: Mapping[str, Mapping[str, Any]] | None = None


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

    @property
    def plain_name(self) -> str:
        """Its name without that of its section."""
        return self.name.rpartition(".")[2]

    def inside(self, section: str) -> Field:
        """The same in a section: `dflash_params.overlap`."""
        alias = self.setting.section_alias or self.setting.alias
        setting = dataclasses.replace(self.setting, alias=alias and f"{section}.{alias}", flags=())
        return self._replace(name=f"{section}.{self.name}", setting=setting)


@dataclasses.dataclass(frozen=True, slots=True)
class Either:
    """Says of a mapping that it holds what was set of these configurations, one of which will be made of it later.

    `sections` are what files may call each of them: a setting in a section is for that configuration alone.
    """

    configs: tuple[type, ...]
    sections: tuple[str, ...] = ()

    @property
    def fields(self) -> list[Field]:
        """Their fields, each name once; None stands for what was left out."""
        found = {field.name: field._replace(default=None) for config in self.configs for field in fields_of(config)}
        return list(found.values())

    @property
    def section_fields(self) -> list[Field]:
        """Their fields in their sections."""
        pairs = zip(self.sections, self.configs[: len(self.sections)], strict=True)
        return [field.inside(section) for section, config in pairs for field in fields_of(config)]

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What was set, of `values` from the command line and below it; in a section, what is not also set outside."""
        outside = {field.name: value for field in self.fields if (value := values.get(field.name)) is not None}
        fields = [field for field in (*self.fields, *self.section_fields) if values.get(field.name) is not None]
        return {
            field.name: _spelled(field, values[field.name])
            for field in fields
            if field.name in outside or field.plain_name not in outside
        }


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


def section_fields_of(config: type) -> list[Field]:
    """What a file may set in sections, of one of several configurations that a dataclass holds."""
    told = [part for hint in get_type_hints(config, include_extras=True).values() for part in get_args(hint)]
    return [field for part in told if isinstance(part, Either) for field in part.section_fields]


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
            raise refusal(field, getattr(config, field.name))


def check_ranges(config: object) -> None:
    """Refuse a configuration with a number outside the range of its setting. One inside it checks its own.

    Raises:
        ConfigError: names the setting, its value and what is allowed.
    """
    for field in fields_of(type(config)):
        value = getattr(config, field.name, None)
        if not _in_range(value, field.setting):
            raise refusal(field, value)


def canonical(values: Mapping[Any, Any], fields: Sequence[Field]) -> dict[Any, Any]:
    """`values` by the names of the fields, where some may be set by another name.

    Raises:
        ConfigError: a setting by two of its names, or both in a section and outside.
    """
    names = {other: field.name for field in fields for other in field.other_names}
    given: dict[Any, Any] = {}
    for name in values:
        earlier = given.setdefault(names.get(name, name), name)
        if earlier != name:
            told = f"{earlier} is {values[earlier]!r:.40} and {name} is {values[name]!r:.40}."
            raise ConfigError(told, remedy=f"Leave one out: {name} is another name of it.", param=name)
    for field in fields:
        if field.plain_name != field.name and {field.name, field.plain_name} <= given.keys():
            told = " and ".join(
                f"{name} is {values[name]!r:.40}" for name in (given[field.name], given[field.plain_name])
            )
            raise ConfigError(f"{told}.", remedy="Leave one out: they are the same setting.", param=field.name)
    return {name: values[spelled] for name, spelled in given.items()}


def suits(value: object, field: Field) -> bool:
    """Whether a setting may have a value, as YAML gives it."""
    return _fits(value, field.kind) and _in_range(value, field.setting)


def refusal(field: Field, value: object, key: str = "", where: str = "") -> ConfigError:
    """That a setting has a value which it may not have; `key` is how it was named, `where` where it was set."""
    remedy = f"It must be {described(field)}."
    return ConfigError(f"{key or field.name} is {value!r:.80}{where}.", remedy=remedy, param=key or field.name)


def described(field: Field) -> str:
    """What values a setting may have, in words."""
    bounds = ((" of at least", field.setting.least), (" of at most", field.setting.most))
    told = " and".join(f"{words} {bound:.15g}" for words, bound in bounds if bound is not None)
    word = field.setting.null_word
    return _kind_described(field.kind) + told + (f"; null is {word}" if word else "")


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
        raise refusal(field, text) from None


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
