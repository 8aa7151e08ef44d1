"""An evaluation on problems that can be checked: every setting answers them in turns, some at a time, timed.

All get the same requests. Knows how to measure; what the figures mean stands in `accuracy`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from paceline.bench.footprint import TensorMemory
from paceline.bench.problems import Problem, answer_length
from paceline.bench.quality_options import QualityBench
from paceline.bench.systems import Models, System
from paceline.completion import Completion
from paceline.engine.loop import Job, run
from paceline.progress import progress
from paceline.request import Sampling

__all__ = ["Batch", "Evaluation", "answer_all", "answers_of", "evaluation_of", "seconds_of", "working_bytes"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What every setting is given: the problems, and the requests that ask them."""

    problems: list[Problem]
    jobs: list[Job]

    @property
    def sampling(self) -> Sampling:
        """The same for all of them."""
        return self.jobs[0].sampling


@dataclass(frozen=True, slots=True)
class Batch:
    """What one setting made of some problems: answers in their order, when each began, and when all were done."""

    answers: list[Completion]
    first_seconds: list[float]
    seconds: float


def evaluation_of(models: Models, problems: list[Problem], max_tokens: int | None) -> Evaluation:
    """Each problem as a request with a seed of its own, greedy, of one length for all."""
    tokenizer = models.target.tokenizer
    assert tokenizer is not None, "open_models refuses models without one"
    longest = max_tokens or answer_length(problems, lambda text: tokenizer.encode(text, whole=False))
    sampling = Sampling(max_tokens=longest)
    prompts = [tuple(models.asked.encode(problem.messages)) for problem in problems]
    return Evaluation(problems, [Job(ids, sampling, seed, prompt_index=seed) for seed, ids in enumerate(prompts)])


def working_bytes(system: System, jobs: Sequence[Job]) -> int:
    """Decode the first problems once, which warms the machine up, too, and count what that takes beside the weights."""
    memory = TensorMemory()
    with memory:
        _decode(system, jobs)
    return memory.peak_bytes


def answer_all(
    systems: Sequence[System], evaluation: Evaluation, options: QualityBench
) -> dict[str, list[list[Batch]]]:
    """By setting, for each batch of problems, its repeats. All settings take turns on a batch."""
    starts = range(0, len(evaluation.jobs), options.batch)
    found: dict[str, list[list[Batch]]] = {system.name: [] for system in systems}
    with progress("bench", len(starts)) as advance:
        for start in starts:
            jobs = evaluation.jobs[start : start + options.batch]
            turns = [[_decode(each, jobs) for each in systems] for _ in range(options.repeats)]
            for system, repeats in zip(systems, zip(*turns, strict=True), strict=True):
                found[system.name].append(list(repeats))
            advance(f"{sum(batch.seconds for batch in turns[-1]):.1f} s for {len(jobs)} problems")
    return found


def _decode(system: System, jobs: Sequence[Job]) -> Batch:
    """Answer these problems together, through the engine's own loop."""
    first: dict[int, float] = {}
    done: dict[int, Completion] = {}
    started = time.perf_counter()
    for answer, chunk in run(system.decoder, jobs, system.llm.tokenizer, system.llm.end_token_ids, max_batch=len(jobs)):
        if chunk.token_ids:
            first.setdefault(answer.job.prompt_index, time.perf_counter() - started)
        if chunk.completion is not None:
            done[chunk.completion.prompt_index] = chunk.completion
    seconds = time.perf_counter() - started
    return Batch([done[job.prompt_index] for job in jobs], [first[job.prompt_index] for job in jobs], seconds)


def answers_of(batches: Sequence[Sequence[Batch]]) -> list[Completion]:
    """Of all problems in order, from the first repeat."""
    return [answer for repeats in batches for answer in repeats[0].answers]


def seconds_of(batches: Sequence[Sequence[Batch]]) -> float:
    """Of all problems together, by the median over repeats of each batch."""
    return sum(median(batch.seconds for batch in repeats) for repeats in batches)
