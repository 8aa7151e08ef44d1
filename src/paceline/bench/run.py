"""The decoding benchmark: every method on the same prompts, one at a time, back to back.

For each prompt the methods take turns (ar, dflash, …, ar, dflash, …), after a warm-up, on one copy of the weights.
Outside the clock each answer is checked by `identity`, and its drafts by `coupling`. Knows how to measure; what the
figures mean stands in `figures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch

from paceline import __version__
from paceline.bench.coupling import Coupling, recompute
from paceline.bench.figures import DEFINITIONS, Sample, figures, other_share, share_of_bandwidth
from paceline.bench.identity import Verdict, certify, compare, ends_rightly
from paceline.bench.machine import machine_ceilings, machine_facts, watch_machine
from paceline.bench.method import Method, Task, pass_bytes
from paceline.bench.model_clock import ModelClock, timed
from paceline.bench.options import DecodeBench
from paceline.bench.pair import measured_pair
from paceline.bench.peers import Given, open_peers
from paceline.bench.scenarios import BenchPrompt, read_scenarios
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.dflash import DFlash
from paceline.decode.noise import derive_seed
from paceline.decode.sampling import is_greedy
from paceline.decode.target import Target
from paceline.engine.loop import Decoder, Job, run
from paceline.llm import LLM
from paceline.models.load import resolve
from paceline.progress import progress
from paceline.request import Sampling
from paceline.zoo.catalog import BUNDLED_DRAFTER, BUNDLED_TARGET

__all__ = ["bench_decode"]


def bench_decode(options: DecodeBench) -> dict[str, Any]:
    """Run the benchmark; the result is plain data, ready for JSON (docs/benchmarks.md says what is in it).

    `scenarios.<name>.<method>` holds the figures; methods are "ar", "dflash" (or "dflash-8", … for several block
    sizes) and the peers. Shows a progress bar on a terminal.

    Raises:
        PacelineError: settings, prompts or models that cannot be used; nothing has been measured then.
    """
    scenarios = read_scenarios(options)
    with _threads(options.threads), measured_pair(options) as (model, drafter):
        llm = LLM(model, drafter=drafter, precision=options.precision, device=options.device)
        plain = replace(llm.target, taps=())
        tasks = _tasks(llm, plain, options, scenarios)
        given = _given(llm, model, drafter, options, tasks)
        ceilings = machine_ceilings(plain.device)
        with timed(llm.model, llm.drafter) as clock:
            methods = _ours(llm, plain, clock, options) | open_peers(options.peers, given)
            bench = _Bench(llm, plain, options, methods, 1e9 * ceilings["read_gigabytes_per_second"])
            with watch_machine() as others, progress("bench", sum(map(len, tasks.values()))) as advance:
                bench.warm_up(next(iter(tasks.values()))[0])
                results = {name: bench.scenario(name, found, advance) for name, found in tasks.items()}
        return {
            "bench": "decode",
            "paceline": __version__,
            "settings": _settings(llm, options),
            "machine": machine_facts(plain.device) | ceilings,
            "what_else_ran": others,
            "definitions": DEFINITIONS,
            "scenarios": results,
        }


class _Bench:
    """One run of some methods on a machine that reads so many bytes per second."""

    def __init__(
        self,
        llm: LLM,
        target: Target,
        options: DecodeBench,
        methods: Mapping[str, Method],
        read_bytes_per_second: float,
    ) -> None:
        self._llm, self._target, self._options, self._methods = llm, target, options, methods
        self._sampling, self._read_bytes_per_second = _sampling(options), read_bytes_per_second

    def warm_up(self, task: Task) -> None:
        """Let every method run once: memory, kernels and caches of the machine."""
        for method in self._methods.values():
            method.decode(task)

    def scenario(self, name: str, tasks: Sequence[Task], advance: Callable[[str], None]) -> dict[str, Any]:
        """Figures of every method."""
        runs: dict[str, list[list[Sample]]] = {method: [] for method in self._methods}
        verdicts: dict[str, dict[str, Verdict]] = {method: {} for method in self._methods}
        for task in tasks:
            samples = self._measure(task)
            own = samples["ar"][0].tokens
            for method, repeats in samples.items():
                runs[method].append(repeats)
                verdicts[method][task.name] = self._judge(task, None if method == "ar" else own, repeats)
            advance(f"{name} {runs['ar'][-1][-1].ms_per_token:.1f} ms per token")
        return {
            method: figures(found, runs["ar"])
            | self._limits(method, found)
            | self._law(method, tasks, found)
            | _verdict(verdicts[method])
            for method, found in runs.items()
        }

    def _limits(self, method: str, runs: list[list[Sample]]) -> dict[str, Any]:
        found = self._methods[method]
        return {
            "lossless": found.lossless,
            "other_share": other_share(runs) if found.splits_time else None,
            "bytes_per_pass": found.pass_bytes,
            "share_of_bandwidth": share_of_bandwidth(runs, found.pass_bytes, self._read_bytes_per_second),
        }

    def _law(self, method: str, tasks: Sequence[Task], runs: list[list[Sample]]) -> dict[str, Any]:
        """Of one answer to each prompt: repeats draw the same noise."""
        law = self._methods[method].law
        if law is None:
            return {}
        found = sum((law(task, samples[0]) for task, samples in zip(tasks, runs, strict=True)), Coupling())
        return {"law": found.figures()}

    def _measure(self, task: Task) -> dict[str, list[Sample]]:
        samples: dict[str, list[Sample]] = {method: [] for method in self._methods}
        for _ in range(self._options.repeats):
            for name, method in self._methods.items():
                samples[name].append(method.decode(task))
        return samples

    def _judge(self, task: Task, own: tuple[int, ...] | None, repeats: Sequence[Sample]) -> Verdict:
        """The first bad verdict over all repeats, else the first; plain decoding (`own` None) is certified."""
        verdicts = []
        for tokens in dict.fromkeys(sample.tokens for sample in repeats):
            request = (self._target, task.prompt, self._sampling, task.seed)
            verdict = certify(*request, tokens) if own is None else compare(*request, own=own, other=tokens)
            if verdict.identical and not ends_rightly(tokens, self._llm.end_token_ids, task.max_tokens):
                verdict = Verdict(False, verdict.near_ties, len(tokens))
            verdicts.append(verdict)
        return next((verdict for verdict in verdicts if not verdict.identical), verdicts[0])


def _tasks(
    llm: LLM, target: Target, options: DecodeBench, scenarios: Mapping[str, Sequence[BenchPrompt]]
) -> dict[str, list[Task]]:
    """All prompts, as token ids that can be served, each with a seed of its own."""
    numbers = count()
    return {
        name: [_task(llm, target, options, each, derive_seed(options.seed, next(numbers))) for each in found]
        for name, found in scenarios.items()
    }


def _task(llm: LLM, target: Target, options: DecodeBench, prompt: BenchPrompt, seed: int) -> Task:
    ids = tuple(llm.encode(prompt.prompt))
    target.check(ids, _sampling(options))
    return Task(prompt.id, ids, min(options.max_tokens, llm.model.spec.context_tokens - len(ids)), seed)


def _given(
    llm: LLM,
    model: str | Path,
    drafter: str | Path | None,
    options: DecodeBench,
    tasks: Mapping[str, Sequence[Task]],
) -> Given:
    return Given(
        folder=resolve(model),
        drafter_folder=None if drafter is None else resolve(drafter),
        assistant_folder=None if options.assistant is None else resolve(options.assistant),
        dtype=llm.model.embed.weight.dtype,
        device=llm.model.embed.weight.device,
        end_token_ids=llm.end_token_ids,
        most_tokens=max(len(task.prompt) for found in tasks.values() for task in found) + options.max_tokens,
        temperature=options.temperature,
    )


def _ours(llm: LLM, plain: Target, clock: ModelClock, options: DecodeBench) -> dict[str, Method]:
    read_bytes = pass_bytes(llm.model)
    methods = {"ar": Method(_decode_with(Autoregressive(plain), llm, clock, options), read_bytes, splits_time=True)}
    if llm.drafter is not None:
        for size in options.block_sizes or (llm.drafter.spec.block_size,):
            name = f"dflash-{size}" if len(options.block_sizes) > 1 else "dflash"
            decoder = DFlash(llm.target, llm.drafter, size)
            law = None if size == 1 or is_greedy(_sampling(options)) else _law_of(decoder, _sampling(options))
            decode = _decode_with(decoder, llm, clock, options)
            methods[name] = Method(decode, read_bytes, splits_time=True, law=law)
    return methods


def _law_of(decoder: DFlash, sampling: Sampling) -> Callable[[Task, Sample], Coupling]:
    return lambda task, sample: recompute(decoder, task.prompt, sampling, task.seed, sample.tokens, sample.rounds)


def _decode_with(decoder: Decoder, llm: LLM, clock: ModelClock, options: DecodeBench) -> Callable[[Task], Sample]:
    """A method of ours through the engine's own loop, alone in its batch."""

    def decode(task: Task) -> Sample:
        job = Job(task.prompt, replace(_sampling(options), max_tokens=task.max_tokens), task.seed)
        started = time.perf_counter()
        first_seconds = 0.0
        for answer, chunk in run(decoder, [job], llm.tokenizer, llm.end_token_ids, 1):
            if not first_seconds:
                first_seconds = time.perf_counter() - started
                clock.restart()
            if chunk.finish_reason is not None:
                seconds, rounds = time.perf_counter() - started, tuple(answer.rounds)
                spent = (first_seconds, clock.draft_seconds, clock.verify_seconds, seconds)
                return Sample(tuple(answer.token_ids), tuple(len(r.committed) for r in rounds), *spent, rounds)
        raise AssertionError("the loop ended without a finish reason")

    return decode


def _sampling(options: DecodeBench) -> Sampling:
    return Sampling(max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed)


def _verdict(verdicts: dict[str, Verdict]) -> dict[str, Any]:
    wrong = {prompt: verdict.first_wrong for prompt, verdict in verdicts.items() if not verdict.identical}
    near_ties = sum(verdict.near_ties for verdict in verdicts.values())
    return {"identical": not wrong, "near_ties": near_ties, "mismatches": wrong}


def _settings(llm: LLM, options: DecodeBench) -> dict[str, Any]:
    """The settings in effect, as plain data."""
    own = () if llm.drafter is None else (llm.drafter.spec.block_size,)
    drafter = options.drafter or (BUNDLED_DRAFTER if llm.drafter is not None else None)
    return asdict(options) | {
        "model": str(options.model or BUNDLED_TARGET),
        "drafter": drafter and str(drafter),
        "prompts": options.prompts and str(options.prompts),
        "scenarios": list(options.scenarios),
        "block_sizes": list(options.block_sizes or own),
        "peers": list(options.peers),
        "assistant": options.assistant and str(options.assistant),
        "dtype": str(llm.model.embed.weight.dtype).removeprefix("torch."),
    }


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Torch's threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
