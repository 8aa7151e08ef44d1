"""`paceline bench decode`: plain decoding, DFlash, lookup and peers on the same prompts, on one copy of our weights.

Puts together prompts, models and methods; `race` measures, `coupling` judges drafts above temperature 0, `figures` says
what the figures mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from paceline import __version__
from paceline.bench.coupling import Coupling, recompute
from paceline.bench.figures import DEFINITIONS, Sample, figures, other_share, share_of_bandwidth
from paceline.bench.machine import machine_ceilings, machine_facts, watch_machine
from paceline.bench.method import Method, Task, pass_bytes
from paceline.bench.model_clock import ModelClock, timed
from paceline.bench.options import DecodeBench, as_plain_data
from paceline.bench.pair import measured_pair
from paceline.bench.peers import Given, open_peers
from paceline.bench.race import (
    Judge,
    Outcome,
    Race,
    decode_with,
    dtypes_in_effect,
    know_costs,
    sampling_of,
    tasks_of,
    threads,
)
from paceline.bench.scenarios import read_scenarios
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.dflash import DFlash
from paceline.decode.lookup import PromptLookup
from paceline.decode.methods import Parts, decoder_of
from paceline.decode.sampling import is_greedy
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.engine.loop import Decoder
from paceline.llm import LLM
from paceline.models.resolve import resolve
from paceline.progress import progress
from paceline.request import Sampling
from paceline.zoo.catalog import BUNDLED_DRAFTER, BUNDLED_TARGET

__all__ = ["bench_decode"]


def bench_decode(options: DecodeBench) -> dict[str, Any]:
    """Run the benchmark; the result is plain data, ready for JSON (docs/benchmarks.md says what is in it).

    `scenarios.<name>.<method>` holds the figures; methods are "ar", "dflash" (or "dflash-8", … for several block
    sizes), "lookup" where it is asked for, and the peers. Shows a progress bar on a terminal.

    Raises:
        PacelineError: settings, prompts or models that cannot be used; nothing has been measured then.
    """
    scenarios = read_scenarios(options)
    sampling = sampling_of(options, options.temperature)
    with threads(options.threads), measured_pair(options) as (model, drafter):
        llm = _opened(options, model, drafter)
        plain = replace(llm.target, taps=())
        tasks = tasks_of(llm, sampling, scenarios)
        given = _given(llm, model, drafter, options, tasks)
        ceilings, decoders = machine_ceilings(plain.device), _decoders(llm, plain, options)
        know_costs(decoders.values(), [task.prompt for own in tasks.values() for task in own], options.max_tokens)
        with timed(llm.model, llm.drafter) as clock:
            methods = _ours(decoders, llm, clock, sampling) | open_peers(options.peers, given)
            race = Race(methods, dict.fromkeys(methods, Judge(plain, "ar")), llm, sampling, options.repeats)
            with watch_machine() as others, progress("bench", sum(map(len, tasks.values()))) as advance:
                race.warm_up(next(iter(tasks.values()))[0])
                outcomes = {name: race.run(name, found, advance) for name, found in tasks.items()}
        read_bytes = 1e9 * ceilings["read_gigabytes_per_second"]
        return {
            "bench": "decode",
            "paceline": __version__,
            "settings": _settings(llm, options),
            "machine": machine_facts(plain.device) | ceilings,
            "what_else_ran": others,
            "definitions": DEFINITIONS,
            "scenarios": {name: _scenario(methods, tasks[name], found, read_bytes) for name, found in outcomes.items()},
        }


def _scenario(
    methods: Mapping[str, Method],
    tasks: Sequence[Task],
    outcomes: Mapping[str, Outcome],
    read_bytes_per_second: float,
) -> dict[str, Any]:
    """Figures of every method, on a machine that reads so many bytes per second."""
    baseline = outcomes["ar"].runs
    return {
        name: figures(outcome.runs, baseline)
        | _limits(methods[name], outcome, read_bytes_per_second)
        | _law(methods[name], tasks, outcome)
        | outcome.verdict()
        for name, outcome in outcomes.items()
    }


def _limits(method: Method, outcome: Outcome, read_bytes_per_second: float) -> dict[str, Any]:
    return {
        "lossless": method.lossless,
        "other_share": other_share(outcome.runs) if method.splits_time else None,
        "bytes_per_pass": method.pass_bytes,
        "share_of_bandwidth": share_of_bandwidth(outcome.runs, method.pass_bytes, read_bytes_per_second),
    }


def _law(method: Method, tasks: Sequence[Task], outcome: Outcome) -> dict[str, Any]:
    """Of one answer to each prompt: repeats draw the same noise."""
    if method.law is None:
        return {}
    judged = (method.law(task, samples[0]) for task, samples in zip(tasks, outcome.runs, strict=True))
    return {"law": sum(judged, Coupling()).figures()}


def _given(
    llm: LLM,
    model: str | Path,
    drafter: str | Path | None,
    options: DecodeBench,
    tasks: Mapping[str, Sequence[Task]],
) -> Given:
    return Given(
        folder=resolve(model),
        drafter_folder=None if drafter is None else resolve(drafter, "drafter"),
        assistant_folder=None if options.assistant is None else resolve(options.assistant, "assistant"),
        dtype=llm.model.dtype,
        device=llm.target.device,
        exact=options.precision == "exact",
        end_token_ids=llm.end_token_ids,
        most_tokens=max(len(task.prompt) for found in tasks.values() for task in found) + options.max_tokens,
        temperature=options.temperature,
    )


def _opened(options: DecodeBench, model: str | Path, drafter: str | Path | None) -> LLM:
    """The pair; the target alone where no drafter is used."""
    if options.methods and "dflash" not in options.methods:
        return LLM(model, method="ar", precision=options.precision, device=options.device)
    method: Literal["dflash", "auto"] = "dflash" if options.methods else "auto"
    return LLM(model, drafter=drafter, method=method, precision=options.precision, device=options.device)


def _decoders(llm: LLM, plain: Target, options: DecodeBench) -> dict[str, Decoder[Any]]:
    decoders: dict[str, Decoder[Any]] = {"ar": Autoregressive(plain)}
    sizes: tuple[int | Literal["auto"], ...] = options.block_sizes or ("auto",)
    for size in sizes if llm.drafter is not None else ():
        name = f"dflash-{size}" if len(options.block_sizes) > 1 else "dflash"
        parts = Parts(model=llm.model, partner=llm.drafter, usable_tokens=plain.usable_tokens)
        decoders[name] = decoder_of("dflash", replace(parts, settings=Speculation(block_size=size)))
    if "lookup" in options.methods:
        decoders["lookup"] = PromptLookup(plain)
    return decoders


def _ours(decoders: Mapping[str, Decoder[Any]], llm: LLM, clock: ModelClock, sampling: Sampling) -> dict[str, Method]:
    read_bytes = pass_bytes(llm.model)
    return {
        name: Method(
            decode_with(decoder, llm, clock, sampling), read_bytes, splits_time=True, law=_law_of(decoder, sampling)
        )
        for name, decoder in decoders.items()
    }


def _law_of(decoder: Decoder[Any], sampling: Sampling) -> Callable[[Task, Sample], Coupling] | None:
    """Of chains of a drafter that draws the tokens of its slots; None where drafts are no matter of chance."""
    if is_greedy(sampling) or not isinstance(decoder, DFlash) or decoder.controller is not None:
        return None
    if decoder.settings.block_size == 1 or decoder.drafter.selector is not None:
        return None
    return lambda task, sample: recompute(decoder, task.prompt, sampling, task.seed, sample.tokens, sample.rounds)


def _settings(llm: LLM, options: DecodeBench) -> dict[str, Any]:
    """The settings in effect, as plain data."""
    own = () if llm.drafter is None else ("auto",)
    drafter = None if llm.drafter is None else options.drafter or BUNDLED_DRAFTER
    return (
        as_plain_data(options)
        | {
            "model": str(options.model or BUNDLED_TARGET),
            "drafter": drafter and str(drafter),
            "block_sizes": list(options.block_sizes or own),
            "temperature": options.temperature,
        }
        | dtypes_in_effect(llm)
    )
