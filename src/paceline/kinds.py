"""Of which kind a value is, in which range, and which words say so: `int | Literal["auto"]` as a check and as text.

Kinds are type hints of the fields of configurations. Knows nothing of settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

__all__ = ["Range", "fits", "from_word", "is_integer", "kind_described", "plain", "takes_one_text", "words_of"]

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", Path: "a path", NoneType: "null"}


class Range(NamedTuple):
    """Bounds of a number, `above` and `below` of them not within; None is no bound."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def holds(self, value: object) -> bool:
        """Whether a number, or each of a sequence, is within. Anything else always is."""
        if isinstance(value, list | tuple):
            return all(map(self.holds, value))
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return True
        if (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            return False
        return (self.above is None or value > self.above) and (self.below is None or value < self.below)

    @property
    def words(self) -> str:
        """What follows "a number": " from 0 to 1"; empty without a bound."""
        if self.least is not None and self.most is not None:
            return f" from {_written(self.least)} to {_written(self.most)}"
        words = ("of at least", "above", "of at most", "below")
        told = zip(words, (self.least, self.above, self.most, self.below), strict=True)
        return " and".join(f" {each} {_written(bound)}" for each, bound in told if bound is not None)


def words_of(kind: Any) -> tuple[str, ...]:
    """The words that may stand in place of a number, for a setting that takes both."""
    kinds = get_args(kind)
    return (
        tuple(word for each in kinds if get_origin(each) is Literal for word in get_args(each)) if int in kinds else ()
    )


def is_integer(value: object) -> bool:
    """Whether Python takes a value for an integer, as those of NumPy; True is none."""
    try:
        return type(value) is int or (not isinstance(value, bool) and index(value) is not None)  # type: ignore[arg-type]
    except TypeError:
        return False


def plain(value: Any) -> Any:
    """An integer of whatever library as one of Python's; anything else as it is."""
    return index(value) if is_integer(value) else value


def fits(value: object, kind: Any) -> bool:
    """Whether a value, as YAML or Python gives it, is of a kind."""
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) in (tuple, list):
        return isinstance(value, list | tuple) and _fit(value, _kinds_of(kind, len(value)))
    if get_args(kind):  # a union
        return any(fits(value, each) for each in get_args(kind))
    if kind is float:
        return (isinstance(value, float) or is_integer(value)) and _is_finite(value)
    if kind is int:
        return is_integer(value)
    return isinstance(value, str | Path) if kind is Path else type(value) is kind


def _fit(values: Sequence[object], kinds: Sequence[Any]) -> bool:
    return len(values) == len(kinds) and all(map(fits, values, kinds))


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # 10**400 is no float
        return False


def from_word(word: Any, kind: Any) -> Any:
    """What words of the command line say as a value of a kind; a word that says none of it, as it is."""
    if get_origin(kind) in (tuple, list) and isinstance(word, list | tuple):
        return tuple(map(from_word, word, _kinds_of(kind, len(word))))
    kinds = get_args(kind) or (kind,)
    if isinstance(word, str) and (int in kinds or float in kinds):
        for number in (int, float) if int in kinds else (float,):
            with suppress(ValueError):
                return number(word)
    return word


def takes_one_text(kind: Any) -> bool:
    """Whether a text stands for a list of it alone: a list of texts."""
    if get_origin(kind) in (tuple, list):
        return get_args(kind)[0] is str and len(_kinds_of(kind, 0)) == 0
    return any(map(takes_one_text, get_args(kind)))


def _kinds_of(kind: Any, length: int) -> tuple[Any, ...]:
    """The kinds of the elements of a tuple or a list; one of any length takes `length` of its kind."""
    kinds = get_args(kind)
    return kinds if get_origin(kind) is tuple and kinds[-1] is not Ellipsis else kinds[:1] * length


def kind_described(kind: Any, bounds: Range) -> str:
    """A kind in words, and the range of its numbers: "an integer from 1 to 9, or 'auto'"."""
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (tuple, list) and len(_kinds_of(kind, 0)) == 0:
        element = kind_described(get_args(kind)[0], bounds)
        return f"text, or a list, each {element}" if takes_one_text(kind) else f"a list, each {element}"
    if get_origin(kind) is tuple:
        return f"a list of {len(get_args(kind))}: " + ", ".join(kind_described(each, bounds) for each in get_args(kind))
    if get_args(kind):
        return (", or " if bounds.words else " or ").join(kind_described(each, bounds) for each in get_args(kind))
    return _WORDS[kind] + (bounds.words if kind in (int, float) else "")


def _written(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:.15g}"
