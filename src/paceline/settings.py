"""What the fields of a configuration mean to a user: flags, YAML keys, help and checks are made from it.

A field is declared as `steps: Annotated[int, Setting("Optimiser steps in all.", least=1)] = 100`. Knows neither what
a setting is for, nor the command line; `given` reads the values of files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from paceline.errors import ConfigError, SettingError
from paceline.kinds import Range, fits, kind_described, plain, words_of
from paceline.yaml_file import yaml_word

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
]

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What a user is told of a field, and the range of its values (of each of them, where it holds many; see `Range`).

    `flags` are its names on the command line where these are not the field's own: `("--block-size",)` of block_sizes.
    `null_word` says None on the command line and in YAML, where leaving the setting out says something else. `alias` is
    another name for it, in YAML and in Python; one with a dot is for YAML alone: `training.lr` is lr in a section.
    `section_alias` is another name in the section of its configuration (see `Either`) alone: `temperature.initial`.
    `presets` are settings by name, for a setting that is the name of some: they hold where nothing else is given. What
    they say in sections is left to whoever is given the name.
    """

    help: str
    least: float | None = None
    most: float | None = None
    flags: tuple[str, ...] = ()
    null_word: str = ""
    alias: str = ""
    section_alias: str = ""
    presets: Mapping[str, Mapping[str, Any]] | None = None
    above: float | None = None
    below: float | None = None

    @property
    def range(self) -> Range:
        """Of its numbers."""
        return Range(self.least, self.most, self.above, self.below)


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
        pairs = zip(self.sections, self.configs, strict=False)  # there may be none
        return [field.inside(section) for section, config in pairs for field in fields_of(config)]

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What was set, of `values` from the command line and below it; in a section, what is not also set outside."""
        outside = [field for field in self.fields if values.get(field.name) is not None]
        names = {field.name for field in outside}
        inside = [field for field in self.section_fields if field.name in values and field.plain_name not in names]
        return {field.name: _spelled(field, values[field.name]) for field in (*outside, *inside)}


def fields_of(config: type) -> tuple[Field, ...]:
    """The fields of a dataclass that are settings; a configuration inside it, or one of several, stands as its own.

    Found once for each: reading its annotations takes a millisecond, and every request makes a `Sampling`.
    """
    return _fields_of(config)


@cache
def _fields_of(config: Any) -> tuple[Field, ...]:
    found: list[Field] = []
    hints = get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            found += fields_of(hint)  # type: ignore[arg-type]
            continue
        kind, setting = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        if isinstance(setting, Either):
            found += setting.fields
        elif setting is not None:
            found.append(Field(field.name, kind, setting, field.default))
    return tuple(found)


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

    Integers of other libraries become Python's.

    Raises:
        ConfigError: names the setting, its value and what is allowed.
    """
    for field in fields_of(type(config)):
        value = getattr(config, field.name)
        if not fits(value, field.kind):
            raise refusal(field, value)
        object.__setattr__(config, field.name, plain(value))


def check_ranges(config: object) -> None:
    """Refuse a configuration with a number outside the range of its setting. One inside it checks its own.

    Raises:
        ConfigError: names the setting, its value and what is allowed.
    """
    for field in fields_of(type(config)):
        value = getattr(config, field.name, None)
        if not field.setting.range.holds(value):
            raise refusal(field, value)


def canonical(values: Mapping[Any, Any], fields: Sequence[Field], where: str = "") -> dict[Any, Any]:
    """`values` by the names of the fields, where some may be set by another name.

    Args:
        where: they were set, " in run.yaml".

    Raises:
        ConfigError: a setting by two of its names, or both in a section and outside.
    """
    names = {other: field.name for field in fields for other in field.other_names}
    given: dict[Any, Any] = {}
    for name in values:
        earlier = given.setdefault(names.get(name, name), name)
        if earlier != name:
            told = f"{earlier} is {values[earlier]!r:.40} and {name} is {values[name]!r:.40}{where}."
            raise ConfigError(told, remedy=f"Leave one out: {name} is another name of it.", param=name)
    for field in fields:
        if field.plain_name != field.name and {field.name, field.plain_name} <= given.keys():
            told = " and ".join(
                f"{name} is {values[name]!r:.40}" for name in (given[field.name], given[field.plain_name])
            )
            raise ConfigError(f"{told}{where}.", remedy="Leave one out: they are the same setting.", param=field.name)
    return {name: values[spelled] for name, spelled in given.items()}


def suits(value: object, field: Field) -> bool:
    """Whether a setting may have a value, as YAML gives it."""
    return fits(value, field.kind) and field.setting.range.holds(value)


def refusal(field: Field, value: object, key: str = "", where: str = "") -> SettingError:
    """That a setting has a value which it may not have.

    Args:
        key: how it was named; its name if empty.
        where: it was set, " in run.yaml"; the value is written as there.
    """
    word = yaml_word(value) if where else repr(value)
    return SettingError({key or field.name: f"is {word:.80}{where}"}, remedy=f"It must be {described(field)}.")


def described(field: Field) -> str:
    """What values a setting may have, in words."""
    word, bounds = field.setting.null_word, field.setting.range
    if not word:
        return kind_described(field.kind, bounds)
    others = " or ".join(kind_described(kind, bounds) for kind in get_args(field.kind) if kind is not NoneType)
    return f"{others}, or {word} (None in Python)"


def _spelled(field: Field, text: Any) -> Any:
    """The value of a setting that the command line takes as text, since it is a number or a word."""
    if text is None or (not field.setting.null_word and not words_of(field.kind)):
        return text
    if text == field.setting.null_word:
        return None
    if text in words_of(field.kind):
        return text
    try:
        return int(text)
    except ValueError:
        raise refusal(field, text) from None
