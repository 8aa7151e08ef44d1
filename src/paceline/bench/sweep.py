"""`paceline bench decode --sweep`: what each part of DFlash buys, in tokens per round and in time.

All of `variants` and plain decoding take turns on the same prompts (`race`), at every temperature, and every answer is
checked. Puts together models, variants and figures; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from paceline import __version__
from paceline.bench.figures import DEFINITIONS, Sample, figures
from paceline.bench.intervals import ratio_interval
from paceline.bench.machine import machine_facts, watch_machine
from paceline.bench.method import Method, Task, pass_bytes
from paceline.bench.model_clock import ModelClock, timed
from paceline.bench.options import DecodeBench, as_plain_data
from paceline.bench.pair import measured_pair
from paceline.bench.race import (
    Judge,
    Outcome,
    Race,
    decode_with,
    dtypes_in_effect,
    joined,
    know_costs,
    sampling_of,
    tasks_of,
    threads,
)
from paceline.bench.scenarios import read_scenarios
from paceline.bench.variants import Variant, asked_variants, chain_name, sweep_variants
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.dflash import DFlash
from paceline.decode.methods import Parts, decoder_of
from paceline.decode.named import check_files
from paceline.decode.ngram_table import NgramTable
from paceline.decode.rescoring import rescorer_for
from paceline.decode.retrieval import read_known
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.engine.loop import Decoder
from paceline.errors import ConfigError
from paceline.llm import LLM
from paceline.models.transformer import Transformer
from paceline.progress import progress

__all__ = ["bench_sweep"]

_TEMPERATURES = (0.0, 1.0)
"""Where the user names none."""

_PLAIN = "ar"

_SWEEP_DEFINITIONS = {
    "speedup": "over all tokens: ms_per_token of plain decoding / ms_per_token of the setting, at the same temperature",
    "nodes_per_round": "drafts that the target read, over rounds",
    "passes_per_round": "passes of the drafter over a block, over rounds; those of a small model do not count",
    "gain": "acceptance_length over that of the chain of the drafter's own block, minus 1; null for plain decoding",
    "gain_interval": "its 95 % interval: percentiles of 2,000 seeded bootstrap samples of the prompts, both settings "
    "on the same ones; null for fewer than two prompts that have rounds",
}


class _Field(NamedTuple):
    """Who takes part at every temperature, and who judges."""

    llm: LLM
    plain: Target
    decoders: Mapping[str, Decoder[Any]]
    clock: ModelClock
    options: DecodeBench


def bench_sweep(options: DecodeBench) -> dict[str, Any]:
    """Run the benchmark; the result is plain data, ready for JSON (docs/benchmarks.md says what is in it).

    `points` holds the figures of every setting at every temperature over all prompts, `scenarios.<name>` those of one.
    Shows a progress bar on a terminal.

    Raises:
        PacelineError: settings, prompts or models that cannot be used; nothing has been measured then.
    """
    scenarios, heats = read_scenarios(options), options.temperatures or _TEMPERATURES
    _check_files(options)
    with threads(options.threads), measured_pair(options) as (model, drafter):
        if drafter is None:
            raise ConfigError("A sweep needs a drafter.", remedy="Name one with --drafter.", param="drafter")
        llm = LLM(model, drafter=drafter, precision=options.precision, device=options.device)
        variants, plain = _variants(llm, options), replace(llm.target, taps=())
        decoders = {_PLAIN: Autoregressive(plain)} | _decoders(llm, variants)
        tasks = {heat: tasks_of(llm, sampling_of(options, heat), scenarios) for heat in heats}
        count = sum(len(own) for found in tasks.values() for own in found.values())
        know_costs(
            decoders.values(), [task.prompt for own in tasks[heats[0]].values() for task in own], options.max_tokens
        )
        with timed(llm.model, llm.drafter) as clock, watch_machine() as others, progress("bench", count) as advance:
            field = _Field(llm, plain, decoders, clock, options)
            outcomes = {heat: _raced(field, heat, tasks[heat], advance) for heat in heats}
        chain = chain_name(_block_size(llm))
        parts = {_PLAIN: "plain"} | {variant.name: variant.part for variant in variants}
        return {
            "bench": "sweep",
            "paceline": __version__,
            "settings": as_plain_data(options)
            | {"model": str(model), "drafter": str(drafter), "temperatures": list(heats)}
            | dtypes_in_effect(llm),
            "machine": machine_facts(plain.device),
            "what_else_ran": others,
            "definitions": DEFINITIONS | _SWEEP_DEFINITIONS,
            "chain": chain,
            "points": _points(parts, chain, {heat: list(found.values()) for heat, found in outcomes.items()}),
            "scenarios": {
                name: _points(parts, chain, {heat: [found[name]] for heat, found in outcomes.items()})
                for name in scenarios
            },
        }


def _check_files(options: DecodeBench) -> None:
    """Refuse what variants name and is not there, before any weights are read."""
    for each in options.configurations:
        check_files(each.settings)
    if options.rescorer is not None:
        check_files(Speculation(rescorer=options.rescorer))


def _block_size(llm: LLM) -> int:
    assert llm.drafter is not None, "a sweep has a drafter"
    return llm.drafter.spec.block_size


def _variants(llm: LLM, options: DecodeBench) -> list[Variant]:
    """The user's own, where there are any."""
    assert llm.drafter is not None, "a sweep has a drafter"
    if options.settings:
        return asked_variants(options.configurations, _block_size(llm))
    return sweep_variants(_block_size(llm), llm.drafter.selector is not None, options.rescorer)


def _decoders(llm: LLM, variants: Sequence[Variant]) -> dict[str, Decoder[Any]]:
    """One for each, on one copy of the weights; what weighs anew is loaded once."""
    usable, loaded = llm.target.usable_tokens, dict[str, Transformer | NgramTable | None]()
    found: dict[str, Decoder[Any]] = {}
    for variant in variants:
        named = str(variant.settings.rescorer)
        if named not in loaded:
            loaded[named] = rescorer_for(variant.settings, llm.model.spec, llm.tokenizer, usable, llm.target.device)
        parts = Parts(
            model=llm.model,
            partner=llm.drafter,
            usable_tokens=usable,
            end_token_ids=llm.end_token_ids,
            settings=variant.settings,
            rescorer=loaded[named],
            known=read_known(variant.settings, llm.tokenizer, usable),
        )
        decoder = decoder_of("dflash", parts)
        assert isinstance(decoder, DFlash)
        found[variant.name] = replace(decoder, noisy=variant.noisy, selecting=variant.selecting)
    return found


def _raced(
    field: _Field, heat: float, tasks: Mapping[str, Sequence[Task]], advance: Callable[[str], None]
) -> dict[str, dict[str, Outcome]]:
    """What everybody did at one temperature, by scenario."""
    llm, sampling = field.llm, sampling_of(field.options, heat)
    methods = {
        name: Method(decode_with(decoder, llm, field.clock, sampling), pass_bytes(llm.model), splits_time=True)
        for name, decoder in field.decoders.items()
    }
    race = Race(methods, dict.fromkeys(methods, Judge(field.plain, _PLAIN)), llm, sampling, field.options.repeats)
    race.warm_up(next(iter(tasks.values()))[0])
    return {name: race.run(f"temperature {heat:g}, {name}", found, advance) for name, found in tasks.items()}


def _points(
    parts: Mapping[str, str], chain: str, outcomes: Mapping[float, Sequence[Mapping[str, Outcome]]]
) -> list[dict[str, Any]]:
    """The figures of every setting at every temperature, over the prompts of these scenarios together."""
    points = []
    for heat, found in outcomes.items():
        baseline, reference = joined(_PLAIN, found).runs, joined(chain, found).runs
        plain_ms = figures(baseline, baseline)["ms_per_token"]
        for name, part in parts.items():
            outcome = joined(name, found)
            own = figures(outcome.runs, baseline)
            point = {"temperature": heat, "part": part, "setting": name, "speedup": plain_ms / own["ms_per_token"]}
            gain = _gain(None if name == _PLAIN else outcome.runs, reference)
            points.append(point | own | _effort(outcome.runs) | gain | outcome.verdict())
    return points


def _effort(runs: Sequence[Sequence[Sample]]) -> dict[str, Any]:
    """What a round costs, counted."""
    first = [samples[0] for samples in runs]
    rounds = sum(len(sample.rounds) for sample in first)
    nodes = sum(len(round.proposed) for sample in first for round in sample.rounds)
    passes = sum(sample.draft_passes for sample in first)
    return {
        "nodes_per_round": nodes / rounds if rounds else 0.0,
        "passes_per_round": passes / rounds if rounds else 0.0,
    }


def _gain(runs: Sequence[Sequence[Sample]] | None, reference: Sequence[Sequence[Sample]]) -> dict[str, Any]:
    """How many more tokens a round commits than in the chain."""
    if runs is None:
        return {"gain": None, "gain_interval": None}
    ratio, interval = ratio_interval(_committed(runs), _committed(reference))
    return {
        "gain": None if ratio is None else ratio - 1.0,
        "gain_interval": None if interval is None else [end - 1.0 for end in interval],
    }


def _committed(runs: Sequence[Sequence[Sample]]) -> list[tuple[int, int]]:
    """Tokens and rounds of each prompt."""
    return [(sum(samples[0].committed), len(samples[0].committed)) for samples in runs]
