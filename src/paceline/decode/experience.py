"""What a controller remembers: how drafts and copies fared, how far to believe the drafter, how long rounds took.

Fading counts and means in plain numbers. Knows nothing of what is decided by them.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

__all__ = ["SHORTEST_REST", "Calibration", "Copies", "Drift", "Pace", "longer"]

_PRIOR = 0.7
"""Conditional acceptance before anything was seen, and its weight in drafts."""
_PRIOR_WEIGHT = 1.0

_MEMORY = 0.9
"""What a count is worth a round later: some ten rounds are remembered."""

SHORTEST_REST, LONGEST_REST = 8, 64
"""Plain rounds after the first trial in vain, and at most; each time four times as many."""

_BINS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)

_LENGTHS = (2, 4, 8, 16)
_COPY_MEMORY = 0.98


def longer(rest: int) -> int:
    """How long to rest after another trial in vain."""
    return min(4 * rest, LONGEST_REST)


@dataclass(slots=True)
class Pace:
    """How drafting has gone for one sequence.

    Attributes:
        accepted, checked: by steps, then by depth: fading counts of drafts.
        drafted: rounds with drafts.
        resting: plain rounds left, and one for the trial behind them.
        rest: how long the next rest would be.
        width: drafts that were read for each place, a fading mean: more than 1 for trees.
    """

    accepted: dict[int, list[float]] = field(default_factory=dict)
    checked: dict[int, list[float]] = field(default_factory=dict)
    drafted: int = 0
    resting: int = 0
    rest: int = SHORTEST_REST
    width: float = 1.0

    def acceptances(self, steps: int, depths: int) -> list[float]:
        """How likely the draft at each depth is accepted where all before it were.

        What was seen so far, and a little of what was seen one place before: for the first, of a fixed prior.
        """
        likely, found = _PRIOR, []
        accepted, checked = self.accepted.get(steps, []), self.checked.get(steps, [])
        for place in range(depths):
            if place < len(checked):
                likely = (accepted[place] + _PRIOR_WEIGHT * likely) / (checked[place] + _PRIOR_WEIGHT)
            found.append(likely)
        return found

    def in_vain(self, rest: bool = True) -> None:
        """A round drafted, and nothing of that was worth reading: rest, longer each time.

        Args:
            rest: False where looked-up tokens took the rows, which says little of drafts in other rounds.
        """
        self.drafted += 1
        if not rest:
            return
        self.resting, self.rest = self.rest + 1, longer(self.rest)

    def learn(self, steps: int, accepted: int, checked: int, width: float = 1.0) -> None:
        """Count the drafts of a round: by depth, the first `checked` were judged, the first `accepted` were right."""
        self.drafted += 1
        self.width += (1.0 - _MEMORY) * (width - self.width)
        for counts, count in ((self.accepted, accepted), (self.checked, checked)):
            own = [_MEMORY * value for value in counts.get(steps, [])]
            own += [0.0] * (checked - len(own))
            counts[steps] = [value + (place < count) for place, value in enumerate(own)]


@dataclass(slots=True)
class Calibration:
    """How often a draft is right of which the drafter says that it is with some probability."""

    right: list[float] = field(default_factory=lambda: [0.0] * (len(_BINS) + 1))
    seen: list[float] = field(default_factory=lambda: [0.0] * (len(_BINS) + 1))

    def probability(self, said: float) -> float:
        """What is to be expected of a draft."""
        place = bisect.bisect(_BINS, said)
        return (self.right[place] + 8.0 * said) / (self.seen[place] + 8.0)

    def learn(self, said: float, right: bool) -> None:
        """Count a draft that was judged."""
        place = bisect.bisect(_BINS, said)
        self.right[place] = 0.999 * self.right[place] + right
        self.seen[place] = 0.999 * self.seen[place] + 1.0


@dataclass(slots=True)
class Copies:
    """How often a looked-up token is right where those before it were, by how many tokens were looked up in a row.

    As many as stood before them as they do now, at most: a long match is followed farther.
    """

    right: list[float] = field(default_factory=lambda: [1.0] * (len(_LENGTHS) + 1))
    seen: list[float] = field(default_factory=lambda: [2.0] * (len(_LENGTHS) + 1))

    def probability(self, length: int) -> float:
        """What is to be expected of each of so many tokens; a half before anything was seen."""
        place = bisect.bisect(_LENGTHS, length)
        return self.right[place] / self.seen[place]

    def learn(self, length: int, right: bool) -> None:
        """Count a token that was judged."""
        place = bisect.bisect(_LENGTHS, length)
        self.right[place] = _COPY_MEMORY * self.right[place] + right
        self.seen[place] = _COPY_MEMORY * self.seen[place] + 1.0


@dataclass(slots=True)
class Drift:
    """How much longer rounds take than was measured beforehand: what a round does beside its passes, and what else the
    machine does. Fading means of the quotient, of rounds with drafts and without."""

    drafted: float = 1.0
    plain: float = 1.0

    def learn(self, drafted: bool, quotient: float) -> None:
        """Take in a round; one that was held up for long counts as twice as long."""
        known = self.drafted if drafted else self.plain
        mean = known + (1.0 - _MEMORY) * (min(quotient, 2.0 * known) - known)
        if drafted:
            self.drafted = mean
        else:
            self.plain = mean
