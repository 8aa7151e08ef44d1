"""Methods that take turns on the same prompts: the loop of every benchmark.

For each prompt the methods go one after the other (a, b, c, a, b, c, …), one answer at a time. Each answer is checked
by `identity`, outside the clock. Knows how to measure; what the figures mean stands in `figures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch

from paceline.bench.figures import Sample
from paceline.bench.identity import Verdict, certify, compare, ends_rightly
from paceline.bench.method import Method, Task
from paceline.bench.model_clock import ModelClock
from paceline.bench.options import Workload
from paceline.bench.scenarios import BenchPrompt
from paceline.decode.dflash import DFlash
from paceline.decode.noise import derive_seed
from paceline.decode.target import Target
from paceline.engine.loop import Decoder, Job, run
from paceline.llm import LLM
from paceline.request import Sampling

__all__ = [
    "Judge",
    "Outcome",
    "Race",
    "decode_with",
    "dtypes_in_effect",
    "joined",
    "know_costs",
    "sampling_of",
    "tasks_of",
    "threads",
]


@dataclass(frozen=True, slots=True)
class Judge:
    """What the answers of a method have to be: those of plain decoding in one precision.

    Attributes:
        target: decodes plainly, and certifies what differs.
        plain: the method of the race that gives its answers; None where there is none, and each answer is certified.
    """

    target: Target
    plain: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one method did, prompt by prompt: samples of all repeats, and a name and a verdict."""

    runs: list[list[Sample]]
    verdicts: list[tuple[str, Verdict]]

    def verdict(self) -> dict[str, Any]:
        """The figures of identity."""
        wrong = {name: verdict.first_wrong for name, verdict in self.verdicts if not verdict.identical}
        near_ties = sum(verdict.near_ties for _, verdict in self.verdicts)
        return {"identical": not wrong, "near_ties": near_ties, "mismatches": wrong}


def joined(name: str, outcomes: Sequence[Mapping[str, Outcome]]) -> Outcome:
    """What one method did in several scenarios."""
    return Outcome(
        [run for each in outcomes for run in each[name].runs],
        [verdict for each in outcomes for verdict in each[name].verdicts],
    )


class Race:
    """One set of methods, and who judges each.

    Args:
        methods: by name, in the order of their turns.
        judges: by the name of the method.
        llm: of any precision; says where answers end.
        sampling: of every request; each has a seed of its own.
        repeats: measurements of each prompt.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        judges: Mapping[str, Judge],
        llm: LLM,
        sampling: Sampling,
        repeats: int,
    ) -> None:
        self._methods, self._judges, self._sampling, self._repeats = methods, judges, sampling, repeats
        self._end_token_ids = llm.end_token_ids

    def warm_up(self, task: Task) -> None:
        """Let every method run once: memory, kernels and caches of the machine."""
        for method in self._methods.values():
            method.decode(task)

    def run(self, scenario: str, tasks: Sequence[Task], advance: Callable[[str], None]) -> dict[str, Outcome]:
        """What every method did; `advance` is told the speed of the first of them after each prompt."""
        outcomes = {name: Outcome([], []) for name in self._methods}
        for task in tasks:
            samples = self._measure(task)
            for name, repeats in samples.items():
                plain = self._judges[name].plain
                own = None if plain in (None, name) else samples[plain][0].tokens
                outcomes[name].runs.append(repeats)
                outcomes[name].verdicts.append((task.name, self._judge(name, task, own, repeats)))
            advance(f"{scenario} {next(iter(samples.values()))[-1].ms_per_token:.1f} ms per token")
        return outcomes

    def _measure(self, task: Task) -> dict[str, list[Sample]]:
        samples: dict[str, list[Sample]] = {method: [] for method in self._methods}
        for _ in range(self._repeats):
            for name, method in self._methods.items():
                samples[name].append(method.decode(task))
        return samples

    def _judge(self, name: str, task: Task, own: tuple[int, ...] | None, repeats: Sequence[Sample]) -> Verdict:
        """The first bad verdict over all repeats, else the first; without `own` answers, all are certified."""
        verdicts = []
        for tokens in dict.fromkeys(sample.tokens for sample in repeats):
            request = (self._judges[name].target, task.prompt, self._sampling, task.seed)
            verdict = certify(*request, tokens) if own is None else compare(*request, own=own, other=tokens)
            if verdict.identical and not ends_rightly(tokens, self._end_token_ids, task.max_tokens):
                verdict = Verdict(False, verdict.near_ties, len(tokens))
            verdicts.append(verdict)
        return next((verdict for verdict in verdicts if not verdict.identical), verdicts[0])


def decode_with(decoder: Decoder[Any], llm: LLM, clock: ModelClock, sampling: Sampling) -> Callable[[Task], Sample]:
    """A method of ours through the engine's own loop, alone in its batch; `clock` counts the passes of `llm`."""

    def decode(task: Task) -> Sample:
        job = Job(task.prompt, replace(sampling, max_tokens=task.max_tokens), task.seed)
        started = time.perf_counter()
        first_seconds = 0.0
        for answer, chunk in run(decoder, [job], llm.tokenizer, llm.end_token_ids, 1):
            if not first_seconds:
                first_seconds = time.perf_counter() - started
                clock.restart()
            if chunk.finish_reason is not None:
                seconds, rounds = time.perf_counter() - started, tuple(answer.rounds)
                spent = (first_seconds, clock.draft_seconds, clock.verify_seconds, seconds)
                committed = tuple(len(round.committed) for round in rounds)
                return Sample(tuple(answer.token_ids), committed, *spent, rounds, clock.draft_passes)
        raise AssertionError("the loop ended without a finish reason")

    return decode


def tasks_of(llm: LLM, sampling: Sampling, scenarios: Mapping[str, Sequence[BenchPrompt]]) -> dict[str, list[Task]]:
    """All prompts as token ids, each with a seed of its own.

    Raises:
        BadRequest: one cannot be served.
    """
    assert sampling.seed is not None
    first, numbers = sampling.seed, count()
    return {
        name: [_task(llm, sampling, each, derive_seed(first, next(numbers))) for each in found]
        for name, found in scenarios.items()
    }


def _task(llm: LLM, sampling: Sampling, prompt: BenchPrompt, seed: int) -> Task:
    ids = tuple(llm.encode(prompt.prompt))
    llm.target.check(ids, sampling)
    return Task(prompt.id, ids, min(sampling.max_tokens, llm.model.spec.context_tokens - len(ids)), seed)


def sampling_of(options: Workload, temperature: float) -> Sampling:
    """The settings of every request."""
    return Sampling(max_tokens=options.max_tokens, temperature=temperature, seed=options.seed)


def know_costs(decoders: Iterable[Decoder[Any]], prompts: Iterable[Sequence[int]], max_tokens: int) -> None:
    """Let controllers measure the machine beforehand, for every length that will come up."""
    sizes = [len(prompt) for prompt in prompts]
    for decoder in decoders:
        if isinstance(decoder, DFlash) and decoder.controller is not None:
            for length in range(min(sizes), max(sizes) + max_tokens + 1):
                decoder.controller.costs(length, True)


def dtypes_in_effect(llm: LLM) -> dict[str, str | None]:
    """In which precisions a pair computes (see `models.precision`), read from its weights."""
    draft = None if llm.drafter is None else llm.drafter.fc.dtype
    found = {"dtype": llm.model.product_dtype, "attention_dtype": llm.model.dtype, "draft_dtype": draft}
    return {name: None if dtype is None else str(dtype).removeprefix("torch.") for name, dtype in found.items()}


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Torch's threads inside the block; None leaves them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
