"""What a controller remembers: how drafts and copies fared, how far to believe the drafter, how long rounds took.

Fading counts and means in plain numbers. Knows nothing of what is decided by them.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from paceline.plan import PLAIN, Plan

__all__ = [
    "SHORTEST_REST",
    "Acceptance",
    "Awaited",
    "Branching",
    "Calibration",
    "Copies",
    "Drift",
    "Habit",
    "Pace",
    "longer",
]

_PRIOR = 0.7
"""Conditional acceptance before anything was seen."""

_MEMORY = 0.9
"""What a count is worth a round later: some ten rounds are remembered."""
_HABIT = 0.98
"""The same of what is remembered of all answers."""
_KNOWN = 8
"""Rounds after which a habit is one."""
_GUESS_WEIGHT, _HABIT_WEIGHT = 1.0, 2.0
"""How many drafts of the sequence itself a mere guess is worth, and a habit."""

SHORTEST_REST, LONGEST_REST = 8, 64
"""Plain rounds after the first trial in vain, and at most; each time four times as many."""

_BINS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)

_NEWS = 0.2
"""What the newest round tells of branches: there are few that tell."""

_LENGTHS = (2, 4, 8, 16)
_COPY_MEMORY = 0.98


def longer(rest: int) -> int:
    """How long to rest after another trial in vain."""
    return min(4 * rest, LONGEST_REST)


@dataclass(slots=True)
class Acceptance:
    """Drafts that were judged, and those of them that were right: fading counts, by steps, then by depth."""

    memory: float = _MEMORY
    accepted: dict[int, list[float]] = field(default_factory=dict)
    checked: dict[int, list[float]] = field(default_factory=dict)

    def likely(self, steps: int, usual: Sequence[float], weight: float) -> list[float]:
        """How likely the draft at each depth is accepted where all before it were.

        What was seen so far, and with the weight of so many drafts what is usual at that depth, by as much better or
        worse as the place before was.
        """
        own = before = 1.0
        found = []
        accepted, checked = self.accepted.get(steps, []), self.checked.get(steps, [])
        for place, common in enumerate(usual):
            own = _shifted(common, own, before)
            if place < len(checked):
                own = (accepted[place] + weight * own) / (checked[place] + weight)
            elif own > common:
                own = (own + common) / 2  # that it goes better than usual is the less known the deeper it goes
            before = common
            found.append(own)
        return found

    def learn(self, steps: int, accepted: int, checked: int) -> None:
        """Count the drafts of a round: by depth, the first `checked` were judged, the first `accepted` were right."""
        for counts, count in ((self.accepted, accepted), (self.checked, checked)):
            own = [self.memory * value for value in counts.get(steps, [])]
            own += [0.0] * (checked - len(own))
            counts[steps] = [value + (place < count) for place, value in enumerate(own)]


@dataclass(slots=True)
class Habit:
    """How drafting has gone in all answers so far: what is expected of a new one.

    Attributes:
        rounds: that are remembered.
    """

    acceptance: Acceptance = field(default_factory=lambda: Acceptance(_HABIT))
    rounds: int = 0

    @property
    def known(self) -> bool:
        """Whether there is one."""
        return self.rounds >= _KNOWN

    def likely(self, own: Acceptance, steps: int, depths: int) -> list[float]:
        """As `Acceptance.likely`, of a sequence of which that is known; before anything was seen, a fixed guess."""
        usual = self.acceptance.likely(steps, [_PRIOR] * depths, _GUESS_WEIGHT)
        return own.likely(steps, usual, _HABIT_WEIGHT if self.known else _GUESS_WEIGHT)

    def learn(self, steps: int, accepted: int, checked: int) -> None:
        """Count the drafts of a round."""
        self.rounds += 1
        self.acceptance.learn(steps, accepted, checked)


class Awaited(NamedTuple):
    """Drafts of a round, whether they were read or not.

    Attributes:
        start: where in the text the first of them would stand.
        tokens: the likeliest in every place.
        steps: passes that they took.
    """

    start: int
    tokens: tuple[int, ...]
    steps: int


@dataclass(slots=True)
class Pace:
    """How drafting has gone for one sequence.

    Attributes:
        acceptance: of its drafts.
        drafted: rounds with drafts.
        latest: drafts that were accepted in the latest of them.
        resting: plain rounds left, and one for the trial behind them.
        rest: how long the next rest would be.
        width: drafts that were read for each place, a fading mean: more than 1 for trees.
        plan, held: the latest that was thought over, and for how many rounds more it stands.
        awaited: drafts that the text has not borne out or refuted yet.
    """

    acceptance: Acceptance = field(default_factory=Acceptance)
    drafted: int = 0
    latest: int = 0
    resting: int = 0
    rest: int = SHORTEST_REST
    width: float = 1.0
    plan: Plan = PLAIN
    held: int = 0
    awaited: list[Awaited] = field(default_factory=list)

    def pause(self) -> Plan:
        """The next plain round of a rest."""
        self.resting -= 1
        return Plan(1, 1, "rest", resting=self.resting - 1)

    def in_vain(self, rest: bool = True) -> None:
        """A round drafted, and nothing of that was worth reading: rest, longer each time.

        Args:
            rest: False where looked-up tokens took the rows, which says little of drafts in other rounds.
        """
        self.drafted, self.latest = self.drafted + 1, 0
        if not rest:
            return
        self.resting, self.rest = self.rest + 1, longer(self.rest)

    def count(self, accepted: int, width: float) -> None:
        """Count a round with drafts."""
        self.drafted, self.latest = self.drafted + 1, accepted
        self.width += (1.0 - _MEMORY) * (width - self.width)

    def judged(self, text: Sequence[int]) -> list[tuple[Awaited, int, int]]:
        """The drafts that the text tells of by now: how many of them it has, and how many it has judged."""
        found, left = [], []
        for each in self.awaited:
            known = text[each.start : each.start + len(each.tokens)]
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(each.tokens, known, strict=False)))
            if same < len(known):
                found.append((each, same, same + 1))
            elif same == len(each.tokens):
                found.append((each, same, same))
            else:
                left.append(each)
        self.awaited = left
        return found


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
class Branching:
    """What trees gain over chains, by tokens per second: a fading mean of what both are expected to give."""

    gain: float = 1.0

    def learn(self, gain: float) -> None:
        """Take in a round for which both are known."""
        self.gain += _NEWS * (gain - self.gain)


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


def _shifted(usual: float, found: float, common: float) -> float:
    """What is usual in a place, where in the place before `found` was found and `common` is usual.

    By the same factor less likely, or by the same factor less likely to fail.
    """
    if found <= common:
        return usual * found / common
    return 1.0 - (1.0 - usual) * (1.0 - found) / (1.0 - common)
