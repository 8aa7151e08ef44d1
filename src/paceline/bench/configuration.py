"""How one setting of a method is written, `apd,alpha=0.7,kv_window=16`: the method, and the words of its flags.

Imports no torch. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from paceline.decode.settings import EVERY_METHOD, Own, settings_of
from paceline.errors import ConfigError
from paceline.settings import canonical

__all__ = ["Configuration", "MethodName", "method_named", "read_configuration"]

MethodName = Literal["ar", "dflash", "verifier", "diffusion", "apd"]
"""Who answers: the target plainly or with its drafter, the verifier plainly, the diffusion model alone or with it."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A method with its settings, to be measured.

    Attributes:
        name: as it was written.
        settings: of the method, None where it has none.
    """

    name: str
    method: MethodName
    settings: Own | None = None


def method_named(text: str) -> str:
    """The first word of a setting, which names its method, whether there is one or not."""
    return text.partition(",")[0].strip()


def read_configuration(text: str) -> Configuration:
    """The setting that is written so.

    Raises:
        ConfigError: no such method or word, or a value that cannot be used; names all three.
    """
    method, words = method_named(text), [part.strip() for part in text.split(",")[1:]]
    try:
        if method not in get_args(MethodName):
            raise ConfigError(f"There is no method {method!r}.", remedy=f"Known: {', '.join(get_args(MethodName))}.")
        values = _values(words)
        return Configuration(text, cast(MethodName, method), settings_of(method, values))
    except ConfigError as error:
        raise ConfigError(f"setting {text!r:.80}: {error.message}", remedy=error.remedy, param="settings") from error


def _values(words: Sequence[str]) -> dict[str, Any]:
    """`name=value` as the settings of methods have them."""
    given: dict[str, Any] = {}
    for word in words:
        name, sign, value = (part.strip() for part in word.partition("="))
        if not sign or not name or not value or name in given:
            told = f"{name} is set twice." if name in given else f"{word!r:.40} is no setting."
            raise ConfigError(told, remedy="Write name=value, each name once, with commas between them.")
        given[name] = _said(value)
    values = canonical(given, EVERY_METHOD.fields)
    null_words = {field.name: field.setting.null_word for field in EVERY_METHOD.fields if field.setting.null_word}
    return {name: None if value == null_words.get(name) else value for name, value in values.items()}


def _said(word: str) -> int | float | str | bool:
    """The number that a word says, True or False for true or false, else the word."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
