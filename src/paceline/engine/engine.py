"""Many requests at once: one thread decodes, and whoever asked hears of it, in a thread or in asyncio.

In every round the thread lets in whose turn it is (`scheduler`), and gives each decoder that has work one step for all
of its answers. Whoever is in a batch, and comes and goes, each answer's tokens are its own (docs/equality.md).

    cancel     takes effect before the next round: the answer leaves, and its memory with it
    fault      what a decoder raises in a batch fails the answer that causes it, alone: the others begin anew, each by
               itself, which gives the same tokens, and go on where they were. What was heard is not told again
    drain      nobody is let in any more, and who is in is finished

Knows nothing of models, text and protocols.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import groupby
from types import TracebackType
from typing import Any, NamedTuple

from paceline.completion import Chunk, Round
from paceline.engine.loop import Answer, Decoder, Job, opened
from paceline.engine.scheduler import Limits, Scheduler
from paceline.engine.stream import Stream
from paceline.errors import Unavailable
from paceline.text import Tokenizer

__all__ = ["Engine", "Served"]


class Served(NamedTuple):
    """What decodes, and how its answers end."""

    decoder: Decoder[Any]
    tokenizer: Tokenizer | None
    end_token_ids: frozenset[int]


_Done = tuple[Many[int], Round | None]
"""What was committed to an answer, and by which round; None: by the prompt pass."""


@dataclass(slots=True, eq=False)
class _Task:
    """A request: waiting until it has an answer, which is then in the making."""

    job: Job
    name: str
    stream: Stream
    answer: Answer[Any] | None = None
    cancelled: bool = False

    @property
    def own(self) -> Answer[Any]:
        assert self.answer is not None, "it was let in"
        return self.answer


class Engine:
    """Decodes for anybody, until it is closed.

    Args:
        served: by the name that requests give.
    """

    def __init__(self, served: Mapping[str, Served], limits: Limits | None = None) -> None:
        self._served = dict(served)
        self._scheduler: Scheduler[_Task] = Scheduler(limits or Limits())
        self._changed = threading.Condition()  # guards the scheduler, the flags and the table of tasks
        self._tasks: dict[Stream, _Task] = {}
        self._active: list[_Task] = []  # of the thread alone
        self._draining = self._closed = False
        self._thread = threading.Thread(target=self._serve, name="paceline-engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # who forgets it would end the process in the middle of a round

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def load(self) -> tuple[int, int]:
        """Requests that wait, and answers that decode."""
        with self._changed:
            return self._scheduler.waiting, self._scheduler.running

    def submit(self, job: Job, name: str) -> Stream:
        """Ask for an answer of the model with that name.

        Raises:
            BadRequest: the job cannot be served. QueueFull: too many wait. Unavailable: it drains, or is closed.
        """
        self._served[name].decoder.check(job.prompt, job.sampling, job.suffix)
        task = _Task(job, name, Stream(self._cancel))
        prompt = len(job.prompt) + len(job.suffix)
        with self._changed:
            if self._draining or self._closed:
                raise Unavailable("The engine takes no more requests.", remedy="Ask another one, or start it again.")
            self._scheduler.submit(task, prompt, prompt + job.sampling.max_tokens)
            self._tasks[task.stream] = task
            self._changed.notify_all()
        return task.stream

    def drain(self, timeout: float | None = None) -> bool:
        """Take no more requests, and wait until all are answered; False where that took longer."""
        with self._changed:
            self._draining = True
            return self._changed.wait_for(lambda: not self._tasks, timeout)

    def close(self) -> None:
        """Cancel what is left, and end the thread. Safe to call again."""
        with self._changed:
            self._closed = True
            for task in self._tasks.values():
                task.cancelled = True
            self._changed.notify_all()
        self._thread.join()
        atexit.unregister(self.close)

    def _cancel(self, stream: Stream) -> None:
        with self._changed:
            if stream in self._tasks:
                self._tasks[stream].cancelled = True
                self._changed.notify_all()

    def _serve(self) -> None:
        try:
            while self._round():
                pass
        except BaseException as error:  # a fault of the engine's own: nobody may be left waiting
            with self._changed:
                self._closed = True
                for task in list(self._tasks.values()):
                    self._fail(task, error)
            raise

    def _round(self) -> bool:
        """Let in whose turn it is, and give every decoder one step; False where all is over."""
        with self._changed:
            admitted = self._admit()
            if self._closed and not self._tasks:
                return False
        for group in _by_model(admitted):
            self._attempt([task for task in group if self._open(task)], self._prefill)
        for group in _by_model(self._active):
            self._attempt(group, self._step)
        return True

    def _admit(self) -> list[_Task]:
        """Let cancelled ones go, and others in; wait where there is nothing to do."""
        while True:
            self._drop()
            now = time.monotonic()
            left = self._scheduler.seconds_left(now)
            if self._active or left == 0.0 or self._closed:
                return self._scheduler.admit(now)
            self._changed.wait(left)

    def _drop(self) -> None:
        for task in [task for task in self._tasks.values() if task.cancelled]:
            self._forget(task)
            task.stream.end()

    def _forget(self, task: _Task) -> None:
        with self._changed:
            if not self._scheduler.withdraw(task):
                self._scheduler.release(task)
            del self._tasks[task.stream]
            self._changed.notify_all()
        self._active = [each for each in self._active if each is not task]

    def _open(self, task: _Task) -> bool:
        try:
            task.answer = opened(self._served[task.name].decoder, task.job, *self._served[task.name][1:])
        except Exception as error:  # whatever it is, it is this request's own
            self._fail(task, error)
            return False
        self._active.append(task)
        return True

    def _attempt(self, tasks: list[_Task], work: Callable[[list[_Task]], list[_Done]]) -> None:
        """Do it for all together; where that raises, find out who is at fault, and do it for the others."""
        if not tasks:
            return
        try:
            done = work(tasks)
        except Exception as error:
            if len(tasks) == 1:
                self._fail(tasks[0], error)
                return
            for task in tasks:
                self._again(task)
            return
        for task, (committed, round) in zip(tasks, done, strict=True):
            self._take(task, committed, round)

    def _prefill(self, tasks: list[_Task]) -> list[_Done]:
        decoder = self._served[tasks[0].name].decoder
        return [(committed, None) for committed in decoder.prefill([task.own.state for task in tasks])]

    def _step(self, tasks: list[_Task]) -> list[_Done]:
        decoder = self._served[tasks[0].name].decoder
        return [(round.committed, round) for round in decoder.step([task.own.state for task in tasks])]

    def _take(self, task: _Task, committed: Many[int], round: Round | None) -> None:
        if not committed and round is None:
            return
        try:
            chunk = task.own.take(committed, round)
        except Exception as error:  # of its text
            self._fail(task, error)
            return
        self._tell(task, chunk)

    def _again(self, task: _Task) -> None:
        """From the beginning, alone: what raises now is this request's own fault."""
        before = task.own
        try:
            chunk = self._caught_up(task, len(before.token_ids))
        except Exception as error:
            self._fail(task, error)
            return
        text, tokens = task.own.text[len(before.text) :], tuple(task.own.token_ids[len(before.token_ids) :])
        self._tell(task, replace(chunk, text=text, token_ids=tokens))

    def _caught_up(self, task: _Task, known: int) -> Chunk:
        """A new answer to the task that has more than so many tokens, and what was heard last."""
        served = self._served[task.name]
        task.answer = answer = opened(served.decoder, task.job, *served[1:])
        (committed,) = served.decoder.prefill([answer.state])
        chunk = answer.take(committed, None)
        while answer.finish_reason is None and len(answer.token_ids) <= known:
            (round,) = served.decoder.step([answer.state])
            chunk = answer.take(round.committed, round)
        return chunk

    def _tell(self, task: _Task, chunk: Chunk) -> None:
        if chunk.completion is not None:
            self._forget(task)
        task.stream.put(chunk)

    def _fail(self, task: _Task, error: BaseException) -> None:
        self._forget(task)
        task.stream.end(error)


def _by_model(tasks: Many[_Task]) -> list[list[_Task]]:
    ordered = sorted(tasks, key=lambda task: task.name)
    return [list(group) for _, group in groupby(ordered, key=lambda task: task.name)]
