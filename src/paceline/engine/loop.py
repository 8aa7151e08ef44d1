"""Runs answers to their end: admit, prefill, step, cut, release.

A fixed number of answers decode together; when one ends, the next takes its place. Whoever is in the batch, each
answer's tokens are its own (docs/equality.md). Knows nothing of models; a decoder is anything with `check`, `open`,
`prefill` and `step`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from paceline.completion import Chunk, Completion, FinishReason, Round, Stats, Usage
from paceline.engine.stop import Stopper
from paceline.request import Sampling
from paceline.text import Detokenizer, Tokenizer

__all__ = ["Answer", "Decoder", "Job", "State", "opened", "run"]


class State(Protocol):
    """What the loop knows of an answer in the making: a `Sequence` of an AR target, a `Canvas` of a diffusion model."""

    @property
    def remaining_tokens(self) -> int:
        """How many tokens may still be committed."""


Own = TypeVar("Own", bound=State)


class Decoder(Protocol[Own]):
    """A method of decode/, with the kind of state that it opens: see `Autoregressive` and its neighbours."""

    name: str

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded."""

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Own:
        """A new state for a request that `check` let pass."""

    def prefill(self, states: Many[Own], /) -> list[tuple[int, ...]]:
        """Read the prompts: what that committed to each answer, which may be nothing."""

    def step(self, states: Many[Own], /) -> list[Round]:
        """One round for every answer: what was committed to each, which may be nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to produce: what follows `prompt`, or fills the hole between it and `suffix`."""

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    prompt_index: int = 0
    choice_index: int = 0
    suffix: tuple[int, ...] = ()


@dataclass(slots=True)
class Answer(Generic[Own]):
    """An answer in the making: its state, where it ends, and what has been said."""

    job: Job
    method: str
    state: Own
    stopper: Stopper
    started: float
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def take(self, tokens: Many[int], round: Round | None) -> Chunk:
        """Cut a committed run, and say what of it may be streamed."""
        cut = self.stopper.feed(tokens)
        kept = tuple(tokens[: cut.kept])
        if round is not None:
            round = round if cut.finish_reason is None else round.cut(cut.kept)
            self.rounds.append(round)
        self.token_ids.extend(kept)
        self.text += cut.text
        self.finish_reason = cut.finish_reason
        whole = None if cut.finish_reason is None else self.completion()
        return Chunk(cut.text, kept, round, cut.finish_reason, whole)

    def completion(self) -> Completion:
        """The finished answer."""
        assert self.finish_reason is not None
        return Completion(
            text=self.text,
            token_ids=self.token_ids,
            finish_reason=self.finish_reason,
            usage=Usage(len(self.job.prompt) + len(self.job.suffix), len(self.token_ids)),
            stats=Stats.of(self.method, self.rounds, len(self.token_ids), time.perf_counter() - self.started),
            seed=self.job.seed,
            prompt_index=self.job.prompt_index,
            choice_index=self.job.choice_index,
            rounds=tuple(self.rounds),
        )


def run(
    decoder: Decoder[Own],
    jobs: Iterable[Job],
    tokenizer: Tokenizer | None,
    end_token_ids: frozenset[int],
    max_batch: int,
) -> Iterator[tuple[Answer[Own], Chunk]]:
    """Decode all jobs, at most `max_batch` at a time; yields every chunk with the answer it belongs to.

    An answer is finished when its `finish_reason` is set. Abandoning the iterator releases everything.
    """
    waiting = deque(jobs)
    active: list[Answer[Own]] = []
    while waiting or active:
        admitted = [
            opened(decoder, waiting.popleft(), tokenizer, end_token_ids)
            for _ in range(min(max_batch - len(active), len(waiting)))
        ]
        if admitted:
            first = decoder.prefill([answer.state for answer in admitted])
            for answer, committed in zip(admitted, first, strict=True):
                if committed:
                    yield answer, answer.take(committed, None)
            active = [answer for answer in (*active, *admitted) if answer.finish_reason is None]
        if active:
            rounds = decoder.step([answer.state for answer in active])
            for answer, round in zip(active, rounds, strict=True):
                yield answer, answer.take(round.committed, round)
            active = [answer for answer in active if answer.finish_reason is None]


def opened(decoder: Decoder[Own], job: Job, tokenizer: Tokenizer | None, end_token_ids: frozenset[int]) -> Answer[Own]:
    """A new answer to a job that `check` let pass; nothing has been read yet."""
    started = time.perf_counter()
    state = decoder.open(job.prompt, job.sampling, job.seed, job.suffix)
    stopper = Stopper(job.sampling, end_token_ids, state.remaining_tokens, Detokenizer(tokenizer))
    return Answer(job, decoder.name, state, stopper, started)
