"""`paceline bench throughput`: many requests at once, at random times; what each waits, and how many are served.

Requests arrive as a Poisson process, whose times and prompts are the same for every method and every number of answers
that may decode together. The rate is told as a multiple of what plain decoding serves one at a time without a pause,
which is measured first. A clock begins when a request is due, not when it is let in. Knows nothing of tables.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, quantiles
from typing import Any

from paceline import __version__
from paceline.async_llm import AsyncLLM
from paceline.bench.machine import machine_facts, watch_machine
from paceline.bench.options import as_plain_data
from paceline.bench.pair import measured_pair
from paceline.bench.race import know_costs, sampling_of, tasks_of, threads
from paceline.bench.scenarios import read_scenarios
from paceline.bench.throughput_options import ThroughputBench
from paceline.engine.scheduler import Limits
from paceline.llm import LLM
from paceline.progress import progress
from paceline.request import Sampling
from paceline.zoo.catalog import BUNDLED_DRAFTER, BUNDLED_TARGET

__all__ = ["DEFINITIONS", "bench_throughput", "goodput"]

DEFINITIONS = {
    "load": "arrivals per second over `plain_requests_per_second`",
    "plain_requests_per_second": "requests over seconds, plain decoding, one after the other without a pause",
    "requests_per_second": "requests over the seconds from the first arrival to the last answer",
    "latency": "seconds from when a request is due to its last token",
    "first_token": "seconds from when a request is due to its first token",
    "per_token": "seconds between tokens of an answer: from the first to the last, over their number less one",
    "goodput": "the most requests per second whose mean latency is at most 1.15 times that of an idle server",
}
"""What each figure is; part of every result."""

_SLOWER = 1.15


@dataclass(frozen=True, slots=True)
class _Arrival:
    due: float
    prompt: tuple[int, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class _Served:
    latency: float
    first_token: float
    per_token: float | None
    token_ids: tuple[int, ...]


def bench_throughput(options: ThroughputBench) -> dict[str, Any]:
    """Serve the arrivals of every load with every method; the result is plain data (docs/benchmarks.md).

    Shows a progress bar on a terminal.

    Raises:
        PacelineError: settings, prompts or models that cannot be used; nothing has been measured then.
    """
    scenarios = read_scenarios(options)
    with threads(options.threads), measured_pair(options) as (model, drafter):
        names = options.methods or (("ar",) if drafter is None else ("ar", "dflash"))
        llms = {name: _opened(name, model, drafter, options) for name in dict.fromkeys(("ar", *names))}
        sampling = sampling_of(options, options.temperature)
        tasks = [task for own in tasks_of(llms["ar"], sampling, scenarios).values() for task in own]
        prompts = [task.prompt for task in tasks]
        know_costs([llm.decoder for llm in llms.values()], prompts, options.max_tokens)
        plain = _capacity(llms["ar"], prompts, sampling, options.seconds)
        plans = [_arrivals(load * plain, prompts, sampling, options, load) for load in options.loads]
        count = len(names) * len(options.running) * len(plans)
        with watch_machine() as others, progress("bench", count) as advance:
            points = [
                point
                for load, plan in zip(options.loads, plans, strict=True)
                for point in _points({name: llms[name] for name in names}, options.running, load, plan, advance)
            ]
        return {
            "bench": "throughput",
            "paceline": __version__,
            "settings": as_plain_data(options) | _models(options, names),
            "machine": machine_facts(llms["ar"].target.device),
            "what_else_ran": others,
            "definitions": DEFINITIONS,
            "plain_requests_per_second": plain,
            "points": points,
            "goodput": goodput(points),
        }


def _models(options: ThroughputBench, names: Sequence[str]) -> dict[str, Any]:
    drafter = str(options.drafter or BUNDLED_DRAFTER) if "dflash" in names else None
    return {"model": str(options.model or BUNDLED_TARGET), "drafter": drafter}


def goodput(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each method and number of answers together: what it serves while nobody waits much longer.

    An idle server is that of the same method with one answer at a time, at the least load.
    """
    found = []
    for name, running in dict.fromkeys((point["method"], point["running"]) for point in points):
        own = [point for point in points if point["method"] == name]
        idle = min(own, key=lambda point: (point["load"], point["running"]))["latency"]["mean"]
        good = [
            point["requests_per_second"]
            for point in own
            if point["running"] == running and point["latency"]["mean"] <= _SLOWER * idle
        ]
        found.append({"method": name, "running": running, "requests_per_second": max(good, default=0.0)})
    return found


def _opened(name: str, model: Any, drafter: Any, options: ThroughputBench) -> LLM:
    own: dict[str, Any] = {"drafter": drafter} if name == "dflash" else {}
    return LLM(model, method=name, precision=options.precision, device=options.device, **own)  # type: ignore[arg-type]


def _capacity(llm: LLM, prompts: Sequence[tuple[int, ...]], sampling: Sampling, seconds: float) -> float:
    """Requests per second, one after the other."""
    llm.generate(list(prompts[0]), sampling)
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        llm.generate(list(prompts[done % len(prompts)]), sampling)
        done += 1
    return done / (time.perf_counter() - started)


def _arrivals(
    rate: float, prompts: Sequence[tuple[int, ...]], sampling: Sampling, options: ThroughputBench, load: float
) -> list[list[_Arrival]]:
    """Those of every repeat, at so many per second on average; at least one."""
    found = []
    for repeat in range(options.repeats):
        rng, now, own = random.Random(f"{options.seed} {repeat} {load}"), 0.0, list[_Arrival]()
        while not own or now < options.seconds:
            asked = replace(sampling, seed=rng.getrandbits(32))
            own.append(_Arrival(now, rng.choice(prompts), asked))
            now += rng.expovariate(rate)
        found.append(own)
    return found


def _points(
    llms: Mapping[str, LLM],
    running: Sequence[int],
    load: float,
    plans: Sequence[Sequence[_Arrival]],
    advance: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """One load, served by everybody; `same` says whether answers are those of the first."""
    answers: list[tuple[int, ...]] | None = None
    for name, llm in llms.items():
        for most in running:
            served, seconds = list[_Served](), 0.0
            for plan in plans:
                started = time.perf_counter()
                served += asyncio.run(_serve(llm, most, plan))
                seconds += time.perf_counter() - started
            own = [each.token_ids for each in served]
            answers = answers or own
            advance(f"{name}, {most} at a time, load {load:g}: {mean(each.latency for each in served):.2f} s")
            asked = {"method": name, "running": most, "load": load}
            yield asked | _figures(served, seconds) | {"same": own == answers}


def _figures(served: Sequence[_Served], seconds: float) -> dict[str, Any]:
    between = [each.per_token for each in served if each.per_token is not None]
    return {
        "requests": len(served),
        "requests_per_second": len(served) / seconds,
        "tokens_per_second": sum(len(each.token_ids) for each in served) / seconds,
        "latency": _spread([each.latency for each in served]),
        "first_token": _spread([each.first_token for each in served]),
        "per_token": _spread(between) if between else None,
    }


async def _serve(llm: LLM, running: int, plan: Sequence[_Arrival]) -> list[_Served]:
    limits = Limits(running=running, waiting=len(plan))
    async with AsyncLLM(llm, limits) as engine:
        started = time.perf_counter()
        return await asyncio.gather(*(_request(engine, each, started) for each in plan))


async def _request(engine: AsyncLLM, arrival: _Arrival, started: float) -> _Served:
    due = started + arrival.due
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    first, tokens = 0.0, list[int]()
    async for chunk in engine.stream(list(arrival.prompt), arrival.sampling):
        if not tokens and chunk.token_ids:
            first = time.perf_counter()
        tokens += chunk.token_ids
    ended = time.perf_counter()
    between = (ended - first) / (len(tokens) - 1) if len(tokens) > 1 else None
    return _Served(ended - due, first - due, between, tuple(tokens))


def _spread(values: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    return {"mean": mean(values), "p50": cuts[49], "p99": cuts[98]}
