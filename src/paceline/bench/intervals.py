"""How far a figure that was counted may be from the true one: shares of right answers, and how two means compare.

Pure arithmetic on counts; knows nothing of problems and models.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Pairs", "kept_share_low", "ratio_interval", "wilson"]

_TWO_SIDED, _ONE_SIDED = 1.959963984540054, 1.6448536269514722
"""Standard deviations that hold 95 % of a normal distribution: between both signs, and below."""

_HALVINGS = 60
"""Of an interval no longer than the ratio: down to rounding."""


_RESAMPLES = 2_000
"""Samples of the bootstrap: its percentiles are then steady to about a twentieth of the interval."""


class Pairs(NamedTuple):
    """How many problems two settings answered rightly, on the same problems."""

    both: int
    only_setting: int
    only_reference: int
    neither: int

    @property
    def share(self) -> float | None:
        """Right answers of the setting over those of the reference; None where the reference has none."""
        reference = self.both + self.only_reference
        return (self.both + self.only_setting) / reference if reference else None


def wilson(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score test (J. Am. Stat. Assoc. 22, 1927), within [0, 1].

    Args:
        total: at least 1.
    """
    share, square = right / total, _TWO_SIDED**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    spread = _TWO_SIDED / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total**2))
    return max(0.0, middle - spread), min(1.0, middle + spread)


def kept_share_low(pairs: Pairs) -> float | None:
    """What `pairs.share` is at least, with 95 % confidence (one side); None where the reference has no right answer.

    The least ratio that the score test of paired proportions does not reject (Nam and Blackwelder, Stat. Med. 21, 2002;
    Tang, Tang and Chan, Stat. Med. 22, 2003), found without random numbers. Problems that neither gets right do not
    count, those that both get right do: where the two never differ, it is both / (both + 2.71), 2.71 being 1.645².
    """
    high = pairs.share
    if high is None:
        return None
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _score(pairs, middle) > _ONE_SIDED else (low, middle)
    return low


def ratio_interval(
    own: Sequence[tuple[int, int]], reference: Sequence[tuple[int, int]]
) -> tuple[float | None, tuple[float, float] | None]:
    """The ratio of two means, and its 95 % interval: percentiles of the bootstrap over prompts (Efron, 1979), seeded.

    A mean is the sum of the first over the sum of the second; both are taken of the same prompts in every sample.

    Args:
        own, reference: sum and count of each prompt; one that counts nothing in either is left out.

    Returns:
        No ratio where no prompt is left, and no interval where there are fewer than two.
    """
    rows = [(*mine, *other) for mine, other in zip(own, reference, strict=True) if mine[1] and other[1]]
    if not rows:
        return None, None
    draw = random.Random(0)
    found = sorted(_ratio(draw.choices(rows, k=len(rows))) for _ in range(_RESAMPLES))
    tail = _RESAMPLES // 40
    return _ratio(rows), (found[tail], found[-1 - tail]) if len(rows) > 1 else None


def _ratio(rows: Sequence[tuple[int, int, int, int]]) -> float:
    total, count, other_total, other_count = map(sum, zip(*rows, strict=True))
    return total / count / (other_total / other_count)


def _score(pairs: Pairs, ratio: float) -> float:
    """Standard deviations by which the setting is better than `ratio` times the reference.

    The variance of right(setting) - ratio * right(reference) is that of the likeliest table with just this ratio, in
    which neither keeps its share, and the share of only_reference solves a quadratic equation.
    """
    both, mine, other, _ = pairs
    total, seen = sum(pairs), both + mine + other
    linear = both + mine + 2 * other - ratio**2 * (both + other)
    square = (1 + ratio) * seen
    root = math.sqrt(max(0.0, linear**2 + 4 * square * other * (ratio - 1)))
    only_reference = (linear + root) / (2 * square) * seen / total
    variance = (1 + ratio) * only_reference + (ratio - 1) * seen / total
    better = (both + mine - ratio * (both + other)) / math.sqrt(total)
    return better / math.sqrt(variance) if variance > 0.0 else math.copysign(math.inf, better)
