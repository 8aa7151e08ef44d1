"""What followed in a text where it stood as another text ends now: prompt lookup, with suffixes of many lengths.

A suffix array that grows: the places of the text are kept in the order of what stands before them, read backwards, so
those that have most in common with the end of a text are neighbours. A place costs one number, so that a file can be
indexed, too. Prompt lookup decoding is Saxena's (2023); that the longest suffix counts, and that what follows it is
trusted as far as it is long, is of SuffixDecoding (arXiv 2411.04975). Numbers only: knows nothing of models or trees.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["NOTHING", "Found", "Reach", "SuffixIndex"]

_PLACES = 32
"""How many places are looked at behind one suffix: there is no end of them in text that repeats one token."""


class Found(NamedTuple):
    """Continuations of a text, none the beginning of another: the longest first, of equally long ones the newest.

    Attributes:
        matched: how many tokens before each of them are as at the end of the text.
    """

    matched: int
    continuations: list[tuple[int, ...]]


NOTHING = Found(0, [])


class Reach(NamedTuple):
    """How long a continuation is at most: so many tokens, and `factor` for each token of the suffix before it."""

    tokens: int
    factor: float = math.inf

    def behind(self, matched: int) -> int:
        """Tokens behind a suffix of so many; at least 1 of them, if any."""
        return int(min(self.tokens, max(1.0, self.factor * matched)))


class SuffixIndex:
    """A text that may grow, and what follows in it.

    Args:
        tokens: the text so far.
        longest: so many tokens before a place are compared at most.
    """

    def __init__(self, tokens: Iterable[int], longest: int) -> None:
        self._tokens = list(tokens)
        self._longest = longest
        self._places = sorted(range(len(self._tokens)), key=self._before)  # equal ones: the newest last

    def extend(self, tokens: Iterable[int]) -> None:
        """The text goes on."""
        for token in tokens:
            insort_right(self._places, len(self._tokens), key=self._before)
            self._tokens.append(token)

    def find(self, text: Sequence[int], shortest: int, reach: Reach, count: int) -> Found:
        """What followed the longest suffix of `text` that is followed by anything.

        Where more than 32 places follow it, 32 of them count: the newest, if the suffix has `longest` tokens.

        Args:
            shortest: nothing is found behind a suffix that is shorter; at least 1.
            reach: how long a continuation is at most; it ends where the indexed text ends, too.
            count: continuations at most.
        """
        end = list(text[-self._longest :])[::-1]
        near = bisect_left(self._places, end, key=self._before)
        neighbours = self._places[max(0, near - 1) : near + 1]
        matched = max((_common(self._before(place), end) for place in neighbours), default=0)
        if matched < shortest:
            return NOTHING
        low = bisect_left(self._places, end[:matched], key=self._before)
        high = bisect_right(self._places, end[:matched], key=lambda place: self._before(place)[:matched])
        places = sorted(self._places[max(low, high - _PLACES) : high], reverse=True)
        length = reach.behind(matched)
        return Found(matched, _distinct([tuple(self._tokens[place : place + length]) for place in places], count))

    def _before(self, place: int) -> list[int]:
        """The tokens before a place, the nearest first."""
        return self._tokens[max(0, place - self._longest) : place][::-1]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _distinct(continuations: Iterable[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    """The first `count`, longest first, of those that are not the beginning of another."""
    kept: list[tuple[int, ...]] = []
    for each in sorted(continuations, key=len, reverse=True):
        if len(kept) == count:
            break
        if all(other[: len(each)] != each for other in kept):
            kept.append(each)
    return kept
