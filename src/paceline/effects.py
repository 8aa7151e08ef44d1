"""Settings that can have no effect beside the others: what they need, as rules, and how their lack is told.

Knows no setting: a stage of configuration brings its own rules (`decode.effect`, `train.effect`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from paceline.errors import SettingError

__all__ = ["Limit", "Need", "check_limits", "check_needs"]


class Need(NamedTuple):
    """What some settings need to have an effect.

    Attributes:
        settings: which.
        others: the settings that it hangs on; the first that is set is told.
        met: whether it is so, of a configuration.
        remedy: how it gets so.
    """

    settings: tuple[str, ...]
    others: tuple[str, ...]
    met: Callable[[Any], bool]
    remedy: str


class Limit(NamedTuple):
    """Up to which value a number has an effect.

    Attributes:
        setting: which.
        other: the setting that it hangs on.
        most: the largest value of a configuration that has an effect; None where there is no such limit.
        nothing: the value that asks for nothing.
        remedy: what would give it more of one.
    """

    setting: str
    other: str
    most: Callable[[Any], int | None]
    nothing: int
    remedy: str


def check_needs(
    needs: Sequence[Need],
    own: Any,
    asked: Collection[str],
    inside: Collection[str] = (),
    nothing: Mapping[str, object] | None = None,
) -> None:
    """Refuse a setting that was asked for and can have no effect beside the others.

    Args:
        own: the configuration, or all of them together.
        asked: names of the settings that a user set outside of a section.
        inside: of those set in its section; one of them may lose its effect by what was asked for.
        nothing: values by name that ask for nothing: they may be said where nothing would come of them anyway.

    Raises:
        ConfigError: names the setting, that which it hangs on, and what would give it an effect.
    """
    for need in needs:
        given = _given(need.others, asked, inside)
        idle = [name for name in need.settings if name in given and not _asks_for_nothing(name, own, nothing or {})]
        if idle and not need.met(own):
            other = next((name for name in need.others if getattr(own, name) is not None), need.others[0])
            remedy = f"{need.remedy}, or leave {idle[0]} out."
            raise SettingError(_told(own, idle[0], other), ": it has no effect.", remedy=remedy)


def check_limits(limits: Sequence[Limit], own: Any, asked: Collection[str], inside: Collection[str] = ()) -> None:
    """Refuse a number that was asked for and is larger than what can have an effect beside the others.

    Args:
        own, asked, inside: as in `check_needs`.

    Raises:
        ConfigError: names the setting, that which it hangs on, and the largest value that has an effect.
    """
    for limit in limits:
        most, value = limit.most(own), getattr(own, limit.setting)
        if limit.setting not in _given((limit.other,), asked, inside) or most is None or value <= most:
            continue
        told = _told(own, limit.setting, limit.other)
        if most <= limit.nothing:
            remedy = f"{limit.remedy}, or leave {limit.setting} out."
            raise SettingError(told, ": it has no effect.", remedy=remedy)
        remedy = f"Give at most {most}, or {limit.remedy[0].lower()}{limit.remedy[1:]}."
        raise SettingError(told, f": the largest that has an effect is {most}.", remedy=remedy)


def _given(others: Collection[str], asked: Collection[str], inside: Collection[str]) -> list[str]:
    """What is answered for: not what stands in a section, where something said outside of it took its effect."""
    return [*asked, *(() if set(others) & set(asked) else inside)]


def _asks_for_nothing(name: str, own: Any, nothing: Mapping[str, object]) -> bool:
    return name in nothing and getattr(own, name) == nothing[name]


def _told(own: Any, *names: str) -> dict[str, str]:
    return {name: f"is {_word(getattr(own, name))}" for name in names}


def _word(value: object) -> str:
    return "not set" if value is None else f"{value if isinstance(value, int | float) else str(value)!r:.80}"
