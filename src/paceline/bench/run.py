"""The decoding benchmark: every method on the same prompts, one at a time, back to back.

For each prompt the methods take turns (ar, dflash, …, ar, dflash, …), after a warm-up, on one copy of the weights. Each
answer is checked by `identity` outside the clock. Knows how to measure; what the figures mean stands in `figures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from paceline import __version__
from paceline.bench.figures import DEFINITIONS, Sample, figures
from paceline.bench.identity import Verdict, certify, compare, ends_rightly
from paceline.bench.machine import machine_facts, watch_machine
from paceline.bench.options import DecodeBench
from paceline.bench.pair import measured_pair
from paceline.bench.peers import transformers_decode
from paceline.bench.scenarios import BenchPrompt, read_scenarios
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.dflash import DFlash
from paceline.decode.target import Target
from paceline.engine.loop import Decoder, Job, run
from paceline.llm import LLM
from paceline.models.load import resolve
from paceline.progress import progress
from paceline.request import Sampling
from paceline.zoo.catalog import BUNDLED_DRAFTER, BUNDLED_TARGET

__all__ = ["bench_decode"]

Decode = Callable[[tuple[int, ...], int], Sample]
"""(prompt ids, most new tokens) -> one measurement."""


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
        bench = _Bench(llm, plain, options, _methods(llm, plain, options, resolve(model)))
        prompts = {name: [bench.admit(prompt) for prompt in found] for name, found in scenarios.items()}
        with watch_machine() as others, progress("bench", sum(map(len, prompts.values()))) as advance:
            bench.warm_up(next(iter(prompts.values()))[0][1])
            results = {name: bench.scenario(name, found, advance) for name, found in prompts.items()}
        return {
            "bench": "decode",
            "paceline": __version__,
            "settings": _settings(llm, options),
            "machine": machine_facts(plain.device),
            "what_else_ran": others,
            "definitions": DEFINITIONS,
            "scenarios": results,
        }


class _Bench:
    """One run: the methods, and the prompts they share."""

    def __init__(self, llm: LLM, target: Target, options: DecodeBench, methods: dict[str, Decode]) -> None:
        self._llm, self._target, self._options, self._methods = llm, target, options, methods
        self._sampling = _sampling(options)

    def admit(self, prompt: BenchPrompt) -> tuple[str, tuple[int, ...]]:
        """Name and token ids of a prompt that can be served."""
        ids = tuple(self._llm.encode(prompt.prompt))
        self._target.check(ids, self._sampling)
        return prompt.id, ids

    def warm_up(self, prompt: tuple[int, ...]) -> None:
        """Let every method run once: memory, kernels and caches of the machine."""
        for decode in self._methods.values():
            decode(prompt, self._limit(prompt))

    def scenario(
        self, name: str, prompts: Sequence[tuple[str, tuple[int, ...]]], advance: Callable[[str], None]
    ) -> dict[str, Any]:
        """Figures of every method."""
        runs: dict[str, list[list[Sample]]] = {method: [] for method in self._methods}
        verdicts: dict[str, dict[str, Verdict]] = {method: {} for method in self._methods}
        for prompt_id, prompt in prompts:
            samples = self._measure(prompt)
            own = samples["ar"][0].tokens
            for method, repeats in samples.items():
                runs[method].append(repeats)
                verdicts[method][prompt_id] = self._judge(prompt, None if method == "ar" else own, repeats)
            advance(f"{name} {runs['ar'][-1][-1].ms_per_token:.1f} ms per token")
        return {method: figures(runs[method], runs["ar"]) | _verdict(verdicts[method]) for method in self._methods}

    def _measure(self, prompt: tuple[int, ...]) -> dict[str, list[Sample]]:
        samples: dict[str, list[Sample]] = {method: [] for method in self._methods}
        for _ in range(self._options.repeats):
            for method, decode in self._methods.items():
                samples[method].append(decode(prompt, self._limit(prompt)))
        return samples

    def _judge(self, prompt: tuple[int, ...], own: tuple[int, ...] | None, repeats: Sequence[Sample]) -> Verdict:
        """The first bad verdict over all repeats, else the first; plain decoding (`own` None) is certified."""
        verdicts = []
        for tokens in dict.fromkeys(sample.tokens for sample in repeats):
            request = (self._target, prompt, self._sampling, self._options.seed)
            verdict = certify(*request, tokens) if own is None else compare(*request, own=own, other=tokens)
            if verdict.identical and not ends_rightly(tokens, self._llm.end_token_ids, self._limit(prompt)):
                verdict = Verdict(False, verdict.near_ties, len(tokens))
            verdicts.append(verdict)
        return next((verdict for verdict in verdicts if not verdict.identical), verdicts[0])

    def _limit(self, prompt: tuple[int, ...]) -> int:
        return min(self._options.max_tokens, self._llm.model.spec.context_tokens - len(prompt))


def _methods(llm: LLM, plain: Target, options: DecodeBench, folder: Path) -> dict[str, Decode]:
    methods = {"ar": _ours(Autoregressive(plain), llm, options)}
    if llm.drafter is not None:
        for size in options.block_sizes or (llm.drafter.spec.block_size,):
            name = f"dflash-{size}" if len(options.block_sizes) > 1 else "dflash"
            methods[name] = _ours(DFlash(llm.target, llm.drafter, size), llm, options)
    if "transformers" in options.peers:
        methods["transformers"] = transformers_decode(
            folder, llm.model.embed.weight.dtype, plain.device, llm.end_token_ids
        )
    return methods


def _ours(decoder: Decoder, llm: LLM, options: DecodeBench) -> Decode:
    """A method of ours through the engine's own loop, alone in its batch."""

    def decode(prompt: tuple[int, ...], max_tokens: int) -> Sample:
        job = Job(prompt, _sampling(options), options.seed)
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
