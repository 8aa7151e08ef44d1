"""Typed fields of a `config.json`: each has the promised type and range, or the error names the key and the value.

Sizes have upper limits, so that a file of a few bytes cannot ask for more memory than a machine has. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.errors import CheckpointError

__all__ = ["Config", "flag", "integer", "integers", "number", "section", "token_ids"]

Config = Mapping[str, Any]

_MAX_SIZE = 1 << 31


def integer(config: Config, key: str, default: int | None = None, low: int = 1, high: int = _MAX_SIZE) -> int:
    """An integer in [low, high]; `default` stands in for a missing or null one.

    Raises:
        CheckpointError: another value, or none and no default.
    """
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or not low <= value <= high:
        raise _refused(key, value, f"It must be an integer from {low} to {high}.")
    return value


def number(config: Config, key: str, default: float | None = None) -> float:
    """A number > 0; `default` stands in for a missing or null one.

    Raises:
        CheckpointError: another value, or none and no default.
    """
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:  # nan is refused, too
        raise _refused(key, value, "It must be a number > 0.")
    return float(value)


def flag(config: Config, key: str) -> bool:
    """True or false; false where it is missing or null.

    Raises:
        CheckpointError: another value.
    """
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise _refused(key, value, "It must be true or false.")
    return bool(value)


def section(config: Config, key: str) -> Config:
    """A JSON object; empty where it is missing or null.

    Raises:
        CheckpointError: another value.
    """
    value = config.get(key)
    if value is not None and not isinstance(value, dict):
        raise _refused(key, value, "It must be an object.")
    return value or {}


def integers(config: Config, key: str) -> tuple[int, ...]:
    """A list of integers >= 0; empty where it is missing or null.

    Raises:
        CheckpointError: another value.
    """
    value = config.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < _MAX_SIZE for item in value):
        raise _refused(key, value, "It must be a list of integers >= 0.")
    return tuple(value)


def token_ids(config: Config, key: str) -> tuple[int, ...]:
    """One token id or a list of them; empty where it is missing or null.

    Raises:
        CheckpointError: another value.
    """
    value = config.get(key)
    return integers(config, key) if value is None or isinstance(value, list) else (integer(config, key, low=0),)


def _refused(key: str, value: object, remedy: str) -> CheckpointError:
    return CheckpointError(f"config.json: {key} is {repr(value)[:200]}.", remedy=remedy, param=key)
