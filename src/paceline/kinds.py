"""Of which kind a value is, and which words say a kind: `int | Literal["auto"]` as a check and as text.

Kinds are type hints of the fields of configurations. Knows nothing of settings.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

__all__ = ["fits", "in_range", "kind_described", "words_of"]

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", Path: "a path", NoneType: "null"}


def words_of(kind: Any) -> tuple[str, ...]:
    """The words that may stand in place of a number, for a setting that takes both."""
    kinds = get_args(kind)
    return (
        tuple(word for each in kinds if get_origin(each) is Literal for word in get_args(each)) if int in kinds else ()
    )


def fits(value: object, kind: Any) -> bool:
    """Whether a value, as YAML or Python gives it, is of a kind; sequences are lists."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) in (tuple, list):
        if not isinstance(value, list):
            return False
        kinds = _kinds_of(kind, len(value))
        return len(value) == len(kinds) and all(map(fits, value, kinds))
    if get_args(kind):  # a union
        return any(fits(value, each) for each in get_args(kind))
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    return isinstance(value, str | Path) if kind is Path else type(value) is kind  # True is no integer


def _kinds_of(kind: Any, length: int) -> tuple[Any, ...]:
    """The kinds of the elements of a tuple or a list; one of any length takes `length` of its kind."""
    kinds = get_args(kind)
    return kinds if get_origin(kind) is tuple and kinds[-1] is not Ellipsis else kinds[:1] * length


def in_range(value: object, least: float | None, most: float | None) -> bool:
    """Whether a number, or each of a sequence, is within bounds; None is no bound. Anything else always is."""
    if isinstance(value, list | tuple):
        return all(in_range(each, least, most) for each in value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return True
    return (least is None or value >= least) and (most is None or value <= most)


def kind_described(kind: Any) -> str:
    """A kind in words: "an integer or 'auto'"."""
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (tuple, list) and len(_kinds_of(kind, 0)) == 0:
        return f"a list, each {kind_described(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        return f"a list of {len(get_args(kind))}: " + ", ".join(map(kind_described, get_args(kind)))
    if get_args(kind):
        return " or ".join(map(kind_described, get_args(kind)))
    return _WORDS[kind]
