"""`paceline bench kernels`: how close the products and passes of a model come to what the machine can do.

Puts together models, sweeps and ceilings. All take turns, and the ceilings are measured between the turns, so that a
busy moment of the machine meets them all alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paceline import __version__
from paceline.bench.ceilings import Ceilings
from paceline.bench.kernel_figures import DEFINITIONS, call_microseconds, points
from paceline.bench.kernel_options import KernelBench
from paceline.bench.kernel_sweeps import CALL, PASS, Sweep, call_sweeps, model_sweeps, peer_sweeps
from paceline.bench.machine import machine_facts, watch_machine
from paceline.bench.options import as_plain_data
from paceline.bench.pair import measured_pair
from paceline.bench.passes import DRAFTER, TARGET
from paceline.bench.race import threads
from paceline.progress import progress
from paceline.zoo.catalog import BUNDLED_DRAFTER, BUNDLED_TARGET

__all__ = ["bench_kernels"]


@torch.inference_mode()
def bench_kernels(options: KernelBench) -> dict[str, Any]:
    """Run the benchmark; the result is plain data, ready for JSON (docs/benchmarks.md says what is in it).

    Shows a progress bar on a terminal.

    Raises:
        PacelineError: settings, models or peers that cannot be used; nothing has been measured then.
    """
    with threads(options.threads):
        with measured_pair(options) as (model, drafter):
            sweeps = [*call_sweeps(options.precisions)]
            sweeps += model_sweeps(model, drafter, options.rows, options.precisions)
            sweeps += peer_sweeps(options.peers, model, options.rows, _operations(sweeps))
        measured = [sweep for sweep in sweeps if sweep.model != CALL]
        ceilings = Ceilings({sweep.read_bytes for sweep in measured}, [sweep.factors for sweep in measured])
        with watch_machine() as others:
            samples = _turns(options, sweeps, ceilings)
        return {
            "bench": "kernels",
            "paceline": __version__,
            "settings": _settings(options, sweeps),
            "machine": machine_facts(torch.device("cpu")),
            "ceilings": ceilings.figures(),
            "what_else_ran": others,
            "definitions": DEFINITIONS,
            "call_microseconds": call_microseconds(sweeps, samples),
            "points": points(sweeps, samples, ceilings),
        }


def _turns(options: KernelBench, sweeps: Sequence[Sweep], ceilings: Ceilings) -> list[Mapping[str, list[float]]]:
    """Seconds of every sweep by part, one of each turn."""
    samples: list[dict[str, list[float]]] = [{part: [] for part in sweep.parts} for sweep in sweeps]
    with progress("bench", options.repeats) as advance:
        for turn in range(options.repeats):
            ceilings.measure()
            for sweep, taken in zip(sweeps, samples, strict=True):
                for part, seconds in sweep.seconds(options.seconds).items():
                    taken[part].append(seconds)
            advance(f"turn {turn + 1}")
    ceilings.measure()
    return [*samples]


def _operations(sweeps: Sequence[Sweep]) -> float:
    """Of one pass of the target, for one row."""
    return next(sweep.parts[PASS].operations for sweep in sweeps if sweep.model == TARGET and PASS in sweep.parts)


def _settings(options: KernelBench, sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """The settings in effect, as plain data."""
    drafts = any(sweep.model == DRAFTER for sweep in sweeps)
    drafter = (options.drafter or BUNDLED_DRAFTER) if drafts else None
    named = {"model": str(options.model or BUNDLED_TARGET), "drafter": drafter and str(drafter)}
    return as_plain_data(options) | named
