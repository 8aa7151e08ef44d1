"""The decoding benchmark: every method on the same prompts, one at a time, back to back.

For each prompt the methods take turns (ar, dflash, …, ar, dflash, …), after a warm-up, on one copy of the weights. Each
answer is checked by `identity` outside the clock. Knows how to measure; what the figures mean stands in `figures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from paceline import __version__
from paceline.bench.figures import DEFINITIONS, Sample, figures, share_of_bandwidth
from paceline.bench.identity import Verdict, certify, compare, ends_rightly
from paceline.bench.machine import machine_ceilings, machine_facts, watch_machine
from paceline.bench.method import Decode, Method, pass_bytes
from paceline.bench.options import DecodeBench
from paceline.bench.pair import measured_pair
from paceline.bench.peers import Given, open_peers
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

Admitted = tuple[str, tuple[int, ...]]
"""Name and token ids of a prompt that can be served."""


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
        prompts = {name: [_admit(llm, plain, options, each) for each in found] for name, found in scenarios.items()}
        longest = max(len(ids) for found in prompts.values() for _, ids in found)
        given = _given(llm, model, drafter, options, longest + options.max_tokens)
        methods = _ours(llm, plain, options) | open_peers(options.peers, given)
        ceilings = machine_ceilings(plain.device)
        bench = _Bench(llm, plain, options, methods, 1e9 * ceilings["read_gigabytes_per_second"])
        with watch_machine() as others, progress("bench", sum(map(len, prompts.values()))) as advance:
            bench.warm_up(next(iter(prompts.values()))[0][1])
            results = {name: bench.scenario(name, found, advance) for name, found in prompts.items()}
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

    def warm_up(self, prompt: tuple[int, ...]) -> None:
        """Let every method run once: memory, kernels and caches of the machine."""
        for method in self._methods.values():
            method.decode(prompt, self._limit(prompt))

    def scenario(self, name: str, prompts: Sequence[Admitted], advance: Callable[[str], None]) -> dict[str, Any]:
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
        return {
            method: figures(runs[method], runs["ar"]) | self._limits(method, runs[method]) | _verdict(verdicts[method])
            for method in self._methods
        }

    def _limits(self, method: str, runs: list[list[Sample]]) -> dict[str, Any]:
        found = self._methods[method]
        return {
            "lossless": found.lossless,
            "bytes_per_pass": found.pass_bytes,
            "share_of_bandwidth": share_of_bandwidth(runs, found.pass_bytes, self._read_bytes_per_second),
        }

    def _measure(self, prompt: tuple[int, ...]) -> dict[str, list[Sample]]:
        samples: dict[str, list[Sample]] = {method: [] for method in self._methods}
        for _ in range(self._options.repeats):
            for name, method in self._methods.items():
                samples[name].append(method.decode(prompt, self._limit(prompt)))
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


def _admit(llm: LLM, target: Target, options: DecodeBench, prompt: BenchPrompt) -> Admitted:
    ids = tuple(llm.encode(prompt.prompt))
    target.check(ids, _sampling(options))
    return prompt.id, ids


def _given(llm: LLM, model: str | Path, drafter: str | Path | None, options: DecodeBench, most_tokens: int) -> Given:
    return Given(
        folder=resolve(model),
        drafter_folder=None if drafter is None else resolve(drafter),
        assistant_folder=None if options.assistant is None else resolve(options.assistant),
        dtype=llm.model.embed.weight.dtype,
        device=llm.model.embed.weight.device,
        end_token_ids=llm.end_token_ids,
        most_tokens=most_tokens,
    )


def _ours(llm: LLM, plain: Target, options: DecodeBench) -> dict[str, Method]:
    decoders: dict[str, Decoder] = {"ar": Autoregressive(plain)}
    if llm.drafter is not None:
        for size in options.block_sizes or (llm.drafter.spec.block_size,):
            name = f"dflash-{size}" if len(options.block_sizes) > 1 else "dflash"
            decoders[name] = DFlash(llm.target, llm.drafter, size)
    read_bytes = pass_bytes(llm.model)
    return {name: Method(_decode_with(decoder, llm, options), read_bytes) for name, decoder in decoders.items()}


def _decode_with(decoder: Decoder, llm: LLM, options: DecodeBench) -> Decode:
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
