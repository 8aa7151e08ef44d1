"""Methods that take turns on the same prompts: the loop of every benchmark.

For each prompt the methods go one after the other (a, b, c, a, b, c, …), one answer at a time. Each answer is checked
by `identity`, outside the clock. Knows how to measure; what the figures mean stands in `figures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from paceline.bench.figures import Sample
from paceline.bench.identity import Verdict, certify, compare, ends_rightly
from paceline.bench.method import Decode, Method
from paceline.bench.options import Workload
from paceline.bench.scenarios import BenchPrompt
from paceline.decode.target import Target
from paceline.engine.loop import Decoder, Job, run
from paceline.llm import LLM
from paceline.request import Sampling

__all__ = [
    "Admitted",
    "Judge",
    "Outcome",
    "Race",
    "admit",
    "decode_with",
    "dtypes_in_effect",
    "sampling_of",
    "threads",
]

Admitted = tuple[str, tuple[int, ...]]
"""Name and token ids of a prompt that can be served."""


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


class Race:
    """One set of methods, and who judges each.

    Args:
        methods: by name, in the order of their turns.
        judges: by the name of the method.
        llm: of any precision; says where answers end.
    """

    def __init__(self, methods: Mapping[str, Method], judges: Mapping[str, Judge], llm: LLM, options: Workload) -> None:
        self._methods, self._judges, self._options = methods, judges, options
        self._end_token_ids, self._context_tokens = llm.end_token_ids, llm.model.spec.context_tokens

    def warm_up(self, prompt: tuple[int, ...]) -> None:
        """Let every method run once: memory, kernels and caches of the machine."""
        for method in self._methods.values():
            method.decode(prompt, self._limit(prompt))

    def run(self, scenario: str, prompts: Sequence[Admitted], advance: Callable[[str], None]) -> dict[str, Outcome]:
        """What every method did; `advance` is told the speed of the first of them after each prompt."""
        outcomes = {name: Outcome([], []) for name in self._methods}
        for prompt_id, prompt in prompts:
            samples = self._measure(prompt)
            for name, repeats in samples.items():
                plain = self._judges[name].plain
                own = None if plain in (None, name) else samples[plain][0].tokens
                outcomes[name].runs.append(repeats)
                outcomes[name].verdicts.append((prompt_id, self._judge(name, prompt, own, repeats)))
            advance(f"{scenario} {next(iter(samples.values()))[-1].ms_per_token:.1f} ms per token")
        return outcomes

    def _measure(self, prompt: tuple[int, ...]) -> dict[str, list[Sample]]:
        samples: dict[str, list[Sample]] = {method: [] for method in self._methods}
        for _ in range(self._options.repeats):
            for name, method in self._methods.items():
                samples[name].append(method.decode(prompt, self._limit(prompt)))
        return samples

    def _judge(
        self, name: str, prompt: tuple[int, ...], own: tuple[int, ...] | None, repeats: Sequence[Sample]
    ) -> Verdict:
        """The first bad verdict over all repeats, else the first; without `own` answers, all are certified."""
        verdicts = []
        for tokens in dict.fromkeys(sample.tokens for sample in repeats):
            request = (self._judges[name].target, prompt, sampling_of(self._options), self._options.seed)
            verdict = certify(*request, tokens) if own is None else compare(*request, own=own, other=tokens)
            if verdict.identical and not ends_rightly(tokens, self._end_token_ids, self._limit(prompt)):
                verdict = Verdict(False, verdict.near_ties, len(tokens))
            verdicts.append(verdict)
        return next((verdict for verdict in verdicts if not verdict.identical), verdicts[0])

    def _limit(self, prompt: tuple[int, ...]) -> int:
        return min(self._options.max_tokens, self._context_tokens - len(prompt))


def decode_with(decoder: Decoder, llm: LLM, options: Workload) -> Decode:
    """A method of ours through the engine's own loop, alone in its batch."""

    def decode(prompt: tuple[int, ...], max_tokens: int) -> Sample:
        job = Job(prompt, sampling_of(options), options.seed)
        started = time.perf_counter()
        first_seconds = 0.0
        for answer, chunk in run(decoder, [job], llm.tokenizer, llm.end_token_ids, 1):
            first_seconds = first_seconds or time.perf_counter() - started
            if chunk.finish_reason is not None:
                seconds, stats = time.perf_counter() - started, answer.completion().stats
                spent = (first_seconds, stats.draft_seconds, stats.verify_seconds, seconds)
                return Sample(tuple(answer.token_ids), stats.accepted_per_round, *spent)
        raise AssertionError("the loop ended without a finish reason")

    return decode


def admit(llm: LLM, options: Workload, prompt: BenchPrompt) -> Admitted:
    """A prompt as token ids.

    Raises:
        BadRequest: it cannot be served.
    """
    ids = tuple(llm.encode(prompt.prompt))
    llm.target.check(ids, sampling_of(options))
    return prompt.id, ids


def sampling_of(options: Workload) -> Sampling:
    """The settings of every request."""
    return Sampling(max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed)


def dtypes_in_effect(llm: LLM) -> dict[str, str | None]:
    """In which precisions a pair computes (see `models.precision`), read from its weights."""
    draft = None if llm.drafter is None else llm.drafter.fc.weight.dtype
    found = {"dtype": llm.model.head.weight.dtype, "attention_dtype": llm.model.dtype, "draft_dtype": draft}
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
