"""The problems of `paceline bench quality`, which the corpus holds out, and how long their answers may be.

They are the tasks of the held-out documents of `zoo.corpus`, from the first on, whose seeds training never uses. Knows
nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from paceline.errors import ConfigError
from paceline.request import Message
from paceline.zoo.documents import HELDOUT_FIRST_SEED
from paceline.zoo.tasks import TASK_KINDS, Task, task_of

__all__ = ["Problem", "answer_length", "held_out"]

_LENGTH_STEP = 8
"""Lengths of answers are multiples of this."""

_MOST_SEEDS_PER_PROBLEM = 1000
"""Behind which there are no more questions of these kinds."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A task and the seed it comes from."""

    seed: int
    task: Task

    @property
    def messages(self) -> list[Message]:
        """The chat that asks it."""
        return [{"role": "user", "content": self.task.question}]


def held_out(problems: int, kinds: Sequence[str] = ()) -> list[Problem]:
    """The first so many held-out problems of these kinds, no question twice; of all kinds without any.

    Raises:
        ConfigError: a kind that there is not, or more problems than there are questions.
    """
    unknown = [kind for kind in kinds if kind not in TASK_KINDS]
    if unknown:
        raise ConfigError(f"kind is {unknown[0]!r:.40}.", remedy=f"There are: {', '.join(TASK_KINDS)}.", param="kinds")
    found = list(islice(_distinct(kinds or TASK_KINDS, problems * _MOST_SEEDS_PER_PROBLEM), problems))
    if len(found) < problems:
        told = f"problems is {problems}, and there are {len(found)} different questions."
        raise ConfigError(told, remedy="Ask for fewer, or for more kinds.", param="problems")
    return found


def _distinct(kinds: Sequence[str], most_seeds: int) -> Iterator[Problem]:
    seen: set[str] = set()
    for seed in islice(count(HELDOUT_FIRST_SEED), most_seeds):
        found = task_of(seed)
        if found.kind in kinds and found.question not in seen:
            seen.add(found.question)
            yield Problem(seed, found)


def answer_length(problems: Sequence[Problem], encode: Callable[[str], Sequence[int]]) -> int:
    """Tokens that hold every right answer and its end token, rounded up."""
    longest = 1 + max(len(encode(problem.task.answer)) for problem in problems)
    return -(-longest // _LENGTH_STEP) * _LENGTH_STEP
