"""Who decodes next: a bounded queue, groups of like length, and a bound on how often anybody is passed over.

    idle      whoever comes is admitted at once
    busy      a window of 50 ms after each admission gathers those who come; then the oldest goes, and with it as many
              as there is room for, those first whose prompts are as long as its own: these are read together
    room      so many answers at a time, and so many tokens of prompts and answers together

Where the oldest finds no room for its tokens, others may pass, `most_passes` times; then nobody does until it has gone.
So a request waits, at most, for the answers that run when its passes are used up, and for those before it in the same
position. Time is told by the caller. Knows nothing of models, threads and tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from paceline.errors import QueueFull

__all__ = ["Limits", "Scheduler"]

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scheduler allows.

    Attributes:
        running: answers that decode together.
        waiting: requests in the queue.
        tokens: of prompts and answers that decode together, at most; one that is larger alone runs alone.
        window_seconds: between two admissions while others decode.
        passes: how often others may be admitted before a request that came earlier.
    """

    running: int = 8
    waiting: int = 1024
    tokens: int = 65_536
    window_seconds: float = 0.05
    passes: int = 16


@dataclass(slots=True)
class _Waiting(Generic[Item]):
    item: Item
    prompt_tokens: int
    tokens: int
    passed: int = 0


@dataclass(slots=True)
class Scheduler(Generic[Item]):
    """Queue and running set. Items are compared by identity.

    Attributes:
        limits: of both.
    """

    limits: Limits = field(default_factory=Limits)
    _queue: list[_Waiting[Item]] = field(default_factory=list)
    _running: dict[int, int] = field(default_factory=dict)
    _opens: float = -math.inf

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Answers that decode."""
        return len(self._running)

    def submit(self, item: Item, prompt_tokens: int, tokens: int) -> None:
        """Queue a request: so long is its prompt, so many tokens may it come to, the prompt among them.

        Raises:
            QueueFull: as many wait as may.
        """
        if len(self._queue) >= self.limits.waiting:
            raise QueueFull(len(self._queue))
        self._queue.append(_Waiting(item, prompt_tokens, tokens))

    def withdraw(self, item: Item) -> bool:
        """Take a request out of the queue; False where it does not wait."""
        left = [each for each in self._queue if each.item is not item]
        found = len(left) < len(self._queue)
        self._queue = left
        return found

    def release(self, item: Item) -> None:
        """An answer that decoded has ended."""
        del self._running[id(item)]

    def seconds_left(self, now: float) -> float | None:
        """Until somebody may be admitted; None where only the end of an answer changes that, or nobody waits."""
        if not self._queue or len(self._running) >= self.limits.running:
            return None
        return max(0.0, self._opens - now) if self._running else 0.0

    def admit(self, now: float) -> list[Item]:
        """Whose turn it is at this moment; they run until they are released."""
        if self.seconds_left(now) != 0.0:
            return []
        admitted: list[_Waiting[Item]] = []
        for each in self._in_turn():
            if len(self._running) == self.limits.running:
                break
            if self._fits(each):
                self._running[id(each.item)] = each.tokens
                admitted.append(each)
            elif each.passed >= self.limits.passes:
                break
        self._note(admitted)
        if admitted:
            self._opens = now + self.limits.window_seconds
        return [each.item for each in admitted]

    def _in_turn(self) -> list[_Waiting[Item]]:
        """Those who may not be passed again, and the oldest; then the others, the nearest in length first."""
        oldest = self._queue[0]
        urgent = [each for each in self._queue if each is oldest or each.passed >= self.limits.passes]
        others = [each for each in self._queue if not any(each is one for one in urgent)]
        return urgent + sorted(
            others, key=lambda each: abs(math.log((each.prompt_tokens + 1) / (oldest.prompt_tokens + 1)))
        )

    def _fits(self, waiting: _Waiting[Item]) -> bool:
        return not self._running or sum(self._running.values()) + waiting.tokens <= self.limits.tokens

    def _note(self, admitted: list[_Waiting[Item]]) -> None:
        """Take them out of the queue, and count whom they passed."""
        if not admitted:
            return
        gone = {id(each) for each in admitted}
        last = max(index for index, each in enumerate(self._queue) if id(each) in gone)
        for each in self._queue[:last]:
            each.passed += id(each) not in gone
        self._queue = [each for each in self._queue if id(each) not in gone]
