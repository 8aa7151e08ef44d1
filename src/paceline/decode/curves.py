"""What passes cost, for any number of rows: lines between what was measured. Plain numbers."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.plan import Plan

__all__ = ["Costs"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, as measured.

    Attributes:
        read: of a pass of the target, by the rows of all sequences together.
        draft: of a pass of the drafter with all that makes trees of it, by the rows of all blocks together.
        chain: the same where nothing but chains is made of it; empty where that is not done.
    """

    read: dict[int, float]
    draft: dict[int, float]
    chain: dict[int, float] = field(default_factory=dict)
    _readings: dict[int, float] = field(default_factory=dict, compare=False, repr=False)
    _draftings: dict[int, float] = field(default_factory=dict, compare=False, repr=False)
    _chainings: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    def reading(self, rows: int) -> float:
        """Seconds of the target for so many rows."""
        return _looked_up(self._readings, self.read, rows)

    @property
    def row(self) -> float:
        """Seconds of the target for one more row, on average."""
        most = max(self.read)
        return max(0.0, self.reading(most) - self.reading(1)) / max(1, most - 1)

    def drafting(self, plans: Sequence[Plan]) -> float:
        """Seconds of the drafter for the blocks of all sequences, which make their passes together."""
        drawn = [plan for plan in plans if plan.drafts]
        if not drawn:
            return 0.0
        rows = sum(plan.block_size for plan in drawn)
        if all(plan.chain for plan in drawn):
            return _looked_up(self._chainings, self.chain or self.draft, rows)
        return max(plan.steps for plan in drawn) * _looked_up(self._draftings, self.draft, rows)


def _looked_up(known: dict[int, float], measured: Mapping[int, float], rows: int) -> float:
    """`_between`, worked out once: a round asks a hundred times."""
    if rows not in known:
        known[rows] = _between(measured, rows)
    return known[rows]


def _between(measured: Mapping[int, float], rows: int) -> float:
    """The cost for so many rows: on the line between the next ones measured; the line ahead is that of the upper half.

    Never less than that of the fewest rows.
    """
    known = sorted(measured)
    above = bisect.bisect_left(known, rows)
    if above == 0:
        return measured[known[0]]
    low, high = (known[above - 1], known[above]) if above < len(known) else (known[(len(known) - 1) // 2], known[-1])
    slope = (measured[high] - measured[low]) / max(1, high - low)
    return measured[high] + max(0.0, slope) * (rows - high)
