"""`paceline bench curve`: what speed costs in quality, and where pushing further stops paying.

Every block size in every precision is a point, measured in turns on the same prompts (`race`); speed is told against
plain decoding in exact, quality by the exact target (`fidelity`). Each precision has its own copy of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

from paceline import __version__
from paceline.bench.fidelity import FIDELITY_DEFINITIONS, Fidelity, fidelity_figures, fidelity_of
from paceline.bench.figures import DEFINITIONS, figures
from paceline.bench.machine import machine_facts, watch_machine
from paceline.bench.method import Method, Task, pass_bytes
from paceline.bench.model_clock import ModelClock, timed
from paceline.bench.options import CurveBench, as_plain_data
from paceline.bench.pair import measured_pair
from paceline.bench.race import (
    Judge,
    Outcome,
    Race,
    decode_with,
    dtypes_in_effect,
    joined,
    sampling_of,
    tasks_of,
    threads,
)
from paceline.bench.scenarios import read_scenarios
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.dflash import DFlash
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.errors import ConfigError
from paceline.llm import LLM
from paceline.models.options import PRECISIONS, Precision
from paceline.progress import progress
from paceline.request import Sampling

__all__ = ["bench_curve", "best_blocks", "sweet_spot"]

_MARGIN = 0.05
"""A point this share slower than the fastest still counts as fast: less is not worth a larger block or a rounder sum,
and measurements differ as much."""

_LEAST_AGREEMENT = 0.99
"""A point below this is no candidate for the sweet spot: more than one token in a hundred is not the exact target's."""


class Setup(NamedTuple):
    """What a point measures; block size 1 is plain decoding."""

    precision: Precision
    block_size: int

    @property
    def name(self) -> str:
        """Of the method in the race."""
        return f"{self.precision}-{self.block_size}"


_BASELINE = Setup("exact", 1)

_CURVE_DEFINITIONS = {
    "speedup": "over all tokens: ms_per_token of plain decoding in exact / ms_per_token of the point. Points are "
    "ranked by it, because the medians of two points may come from different prompts",
    "speedup_vs_ar": "median over prompts and repeats of ms_per_token of plain decoding in exact / ms_per_token of the "
    "point, both of the same repeat",
    "identical": "every answer is plain decoding's in the same precision, up to certified near-ties of its rounding",
    "best": f"of each precision: the smallest block within {_MARGIN:.0%} of the fastest; loses_from is the block from "
    "which on all are slower than that, null where none is",
    "sweet_spot": f"the first point, exact before mixed before half and then by block size, within {_MARGIN:.0%} of "
    f"the fastest, among those with an agreement of at least {_LEAST_AGREEMENT}",
}


def bench_curve(options: CurveBench) -> dict[str, Any]:
    """Run the benchmark; the result is plain data, ready for JSON (docs/benchmarks.md says what is in it).

    `points` holds the figures over all prompts, `scenarios.<name>` those of one; `best` and `sweet_spot` are read from
    `points`. Shows a progress bar on a terminal.

    Raises:
        PacelineError: settings, prompts or models that cannot be used; nothing has been measured then.
    """
    scenarios = read_scenarios(options)
    setups = _setups(options)
    sampling = sampling_of(options, options.temperature)
    with threads(options.threads), measured_pair(options) as (model, drafter):
        if drafter is None:
            raise ConfigError("A curve needs a drafter.", remedy="Name one with --drafter.", param="drafter")
        needed = dict.fromkeys(setup.precision for setup in setups)
        llms = {each: LLM(model, drafter=drafter, precision=each, device=options.device) for each in needed}
        exact = llms[_BASELINE.precision]
        tasks = tasks_of(exact, sampling, scenarios)
        with ExitStack() as stack:
            clocks = {each: stack.enter_context(timed(llm.model, llm.drafter)) for each, llm in llms.items()}
            methods = _methods(setups, llms, clocks, sampling)
            race = Race(methods, _judges(setups, llms), exact, sampling, options.repeats)
            others = stack.enter_context(watch_machine())
            advance = stack.enter_context(progress("bench", sum(map(len, tasks.values()))))
            race.warm_up(next(iter(tasks.values()))[0])
            outcomes = {name: race.run(name, found, advance) for name, found in tasks.items()}
        judged = {name: _judged(_plain(exact), sampling, tasks[name], found) for name, found in outcomes.items()}
        points = _points(setups, list(outcomes.values()), list(judged.values()))
        return {
            "bench": "curve",
            "paceline": __version__,
            "settings": as_plain_data(options)
            | {"model": str(model), "drafter": str(drafter)}
            | {"dtypes": {precision: dtypes_in_effect(llm) for precision, llm in llms.items()}},
            "machine": machine_facts(exact.target.device),
            "what_else_ran": others,
            "definitions": DEFINITIONS | FIDELITY_DEFINITIONS | _CURVE_DEFINITIONS,
            "points": points,
            "best": best_blocks(points),
            "sweet_spot": sweet_spot(points),
            "scenarios": {name: _points(setups, [outcomes[name]], [judged[name]]) for name in outcomes},
        }


def best_blocks(points: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each precision the smallest block that is as fast as any, and from which block on all lose; None: none does.

    Args:
        points: of each precision in the order of their block sizes.
    """
    found = {}
    for precision in dict.fromkeys(point["precision"] for point in points):
        own = [point for point in points if point["precision"] == precision]
        losing = takewhile(lambda pair: not pair[1], [(point, _as_fast(point, own)) for point in reversed(own)])
        loses_from = min((point["block_size"] for point, _ in losing), default=None)
        found[precision] = _told(next(point for point in own if _as_fast(point, own))) | {"loses_from": loses_from}
    return found


def sweet_spot(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first point, in the order of the tiers and then of block sizes, that is as fast as any of kept quality."""
    kept = [point for point in points if point["agreement"] >= _LEAST_AGREEMENT]
    first = min(
        (point for point in kept if _as_fast(point, kept)),
        key=lambda point: (PRECISIONS.index(point["precision"]), point["block_size"]),
    )
    loses_from = best_blocks(points)[first["precision"]]["loses_from"]
    return {"precision": first["precision"]} | _told(first) | {"loses_from": loses_from}


def _as_fast(point: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> bool:
    """Within the margin of the fastest."""
    fastest = max(other["speedup"] for other in others)
    return float(point["speedup"]) >= (1.0 - _MARGIN) * float(fastest)


def _told(point: Mapping[str, Any]) -> dict[str, Any]:
    return {name: point[name] for name in ("block_size", "speedup", "agreement")}


def _setups(options: CurveBench) -> list[Setup]:
    """The baseline and all that was asked for, in the order of the tiers and then of block sizes."""
    asked = {Setup(each, size) for each in options.precisions for size in options.block_sizes}
    return sorted(asked | {_BASELINE}, key=lambda setup: (PRECISIONS.index(setup.precision), setup.block_size))


def _plain(llm: LLM) -> Target:
    return replace(llm.target, taps=())


def _methods(
    setups: Sequence[Setup],
    llms: Mapping[Precision, LLM],
    clocks: Mapping[Precision, ModelClock],
    sampling: Sampling,
) -> dict[str, Method]:
    return {
        setup.name: _method(setup.block_size, llms[setup.precision], clocks[setup.precision], sampling)
        for setup in setups
    }


def _method(block_size: int, llm: LLM, clock: ModelClock, sampling: Sampling) -> Method:
    assert llm.drafter is not None, "a curve has a drafter"
    blocks = Speculation(block_size=block_size)
    decoder = Autoregressive(_plain(llm)) if block_size == 1 else DFlash(llm.target, llm.drafter, blocks)
    return Method(decode_with(decoder, llm, clock, sampling), pass_bytes(llm.model), splits_time=True)


def _judges(setups: Sequence[Setup], llms: Mapping[Precision, LLM]) -> dict[str, Judge]:
    """Each answer has to be that of plain decoding in its own precision."""
    plain = {precision: _plain(llm) for precision, llm in llms.items()}
    oracles = {setup.precision: setup.name for setup in setups if setup.block_size == 1}
    return {setup.name: Judge(plain[setup.precision], oracles.get(setup.precision)) for setup in setups}


def _judged(
    target: Target, sampling: Sampling, tasks: Sequence[Task], outcomes: Mapping[str, Outcome]
) -> dict[str, list[Fidelity]]:
    """The quality of every answer of every method; equal answers are judged once."""
    found: dict[str, list[Fidelity]] = {name: [] for name in outcomes}
    for index, task in enumerate(tasks):
        answers = {name: outcome.runs[index][0].tokens for name, outcome in outcomes.items()}
        own, request = answers[_BASELINE.name], (target, task.prompt, sampling, task.seed)
        known = {other: fidelity_of(*request, own=own, other=other) for other in dict.fromkeys(answers.values())}
        for name, answer in answers.items():
            found[name].append(known[answer])
    return found


def _points(
    setups: Sequence[Setup], outcomes: Sequence[Mapping[str, Outcome]], judged: Sequence[Mapping[str, list[Fidelity]]]
) -> list[dict[str, Any]]:
    """A point for each setup, over the prompts of these scenarios together."""
    baseline = joined(_BASELINE.name, outcomes).runs
    plain_ms = figures(baseline, baseline)["ms_per_token"]

    def figures_of(setup: Setup) -> Iterator[dict[str, Any]]:
        outcome = joined(setup.name, outcomes)
        found = figures(outcome.runs, baseline)
        speedup = plain_ms / found["ms_per_token"]
        yield {"precision": setup.precision, "block_size": setup.block_size, "speedup": speedup} | found
        yield outcome.verdict()
        yield fidelity_figures([each for found in judged for each in found[setup.name]])

    return [{name: figure for part in figures_of(setup) for name, figure in part.items()} for setup in setups]
