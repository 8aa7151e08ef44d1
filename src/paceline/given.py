"""What a user gives, in a file or as a mapping: sections taken apart, every key known, every value in its range.

Knows neither what a setting is for, nor the command line; what may be given is a list of fields of `settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.kinds import takes_one_text
from paceline.settings import Field, canonical, refusal, suits
from paceline.yaml_file import read_mapping, yaml_word

__all__ = ["checked", "read_settings"]


def read_settings(path: Path, allowed: Sequence[Field]) -> dict[str, Any]:
    """The settings of a YAML file by name, as YAML has them: paths are text, pairs are lists.

    Raises:
        ConfigError: no YAML mapping, or as `checked`; names the file, too.
    """
    return checked(read_mapping(path), allowed, path)


def checked(values: Mapping[Any, Any], allowed: Sequence[Field], path: Path | None = None) -> dict[str, Any]:
    """`values` by the names of the fields, those of sections as `section.name`; a word for null stands for it.

    Args:
        path: of the file they are from.

    Raises:
        ConfigError: an unknown key, a value of the wrong type or outside its range, or a setting by two names; names
            key, value and what is allowed.
    """
    where = f" in {path}" if path else ""
    known = {name: field for field in allowed for name in (field.name, *field.other_names)}
    given: dict[str, Any] = {}
    for key, value in _taken_apart(values, known):
        if key not in known:
            raise _unknown(key, value, known, path)
        if key in given:
            raise ConfigError(f"{key} is set twice{where}.", remedy="Leave one out.", param=key)
        said, word = _said(value, known[key]), known[key].setting.null_word
        if word and said in (None, word):
            given[key] = word
        elif suits(said, known[key]):
            given[key] = said
        else:
            raise refusal(known[key], said, key, where)
    return canonical(given, allowed, where)


def _said(value: object, field: Field) -> object:
    """The word `off` where YAML, which reads a bare one as false, hides it; a list of a single text."""
    if isinstance(value, str) and takes_one_text(field.kind):
        return [value]
    return "off" if value is False and suits("off", field) and not suits(value, field) else value


def _taken_apart(values: Mapping[Any, Any], known: Mapping[str, Field]) -> Iterator[tuple[Any, Any]]:
    """Keys and values; a mapping that is no setting itself, but holds some, as these. An empty one is null in YAML."""
    for key, value in values.items():
        if isinstance(value, Mapping | None) and key not in known and _names_in(key, known):
            yield from _taken_apart({f"{key}.{name}": each for name, each in (value or {}).items()}, known)
        else:
            yield key, value


def _names_in(section: object, known: Mapping[str, Field]) -> list[str]:
    """What may stand in a section."""
    return [name.removeprefix(f"{section}.") for name in known if name.startswith(f"{section}.")]


def _unknown(key: Any, value: object, known: Mapping[str, Field], path: Path | None) -> ConfigError:
    where, word = (f" in {path}", yaml_word(value)) if path else ("", repr(value))
    if inside := _names_in(key, known):
        remedy = f"It must be a mapping of any of: {', '.join(inside)}."
        return ConfigError(f"{key} is {word:.40}{where}.", remedy=remedy, param=key)
    section, _, rest = str(key).partition(".")
    begin = f"{section}." if rest and _names_in(section, known) else ""
    names = _names_in(section, known) if begin else _outermost(known)
    close = get_close_matches(rest if begin else str(key), names, 1, 0.5 if begin else 0.6)  # short names, or any
    guess = [f"Did you mean {begin}{name}?" for name in close]
    remedy = " ".join([*guess, f"Allowed are: {', '.join(begin + name for name in names)}."])
    told = f"{path} sets {key!r:.40} to {word:.40}" if path else f"{key} is {word:.40}"
    return ConfigError(f"{told}: no such setting.", remedy=remedy, param=key)


def _outermost(known: Mapping[str, Field]) -> list[str]:
    """What may be set; of a configuration's own section, its name."""
    inside = {name for name, field in known.items() if field.name != field.plain_name}
    return list(dict.fromkeys(name.partition(".")[0] if name in inside else name for name in known))
