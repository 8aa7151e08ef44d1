"""`paceline bench quality`: how many answers a diffusion model gets right at which speed, beside a target of its size.

Every setting answers the same held-out problems in turns, some problems at a time; each answer is checked, and read by
the exact target. Puts together problems, models and figures, which other files know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline import __version__
from paceline.bench.accuracy import ACCURACY_DEFINITIONS, GradedAnswer, accuracy_figures, kept_figures, speed_figures
from paceline.bench.evaluation import (
    Batch,
    Evaluation,
    answer_all,
    answers_of,
    evaluation_of,
    seconds_of,
    working_bytes,
)
from paceline.bench.fidelity import log_likelihood_of
from paceline.bench.machine import machine_facts, watch_machine
from paceline.bench.options import as_plain_data
from paceline.bench.problems import Problem, held_out
from paceline.bench.quality_options import QualityBench
from paceline.bench.race import know_costs, threads
from paceline.bench.systems import Models, System, named_models, open_models
from paceline.completion import Completion
from paceline.decode.target import Target
from paceline.zoo.catalog import BUNDLED_DRAFTER

__all__ = ["QUALITY_DEFINITIONS", "bench_quality"]

QUALITY_DEFINITIONS = {
    "setting": "as it was written: the method, and what its words set",
    "method": "that decodes: ar, dflash, diffusion or apd; for the verifier alone ar",
    **ACCURACY_DEFINITIONS,
    "generative_perplexity": "of the answers: exp of minus the mean over their tokens of the logarithm of the exact "
    "target's probability at temperature 1, after the tokens before it; low for likely text, right or wrong. The judge "
    "is the target itself, so ar and dflash are low by construction: compare diffusion settings with one another",
    "weight_bytes": "parameters of all models that work in it, in float32; not counted: copies that a CPU makes of "
    "them, and a table of n-grams",
    "working_bytes": "the most that tensors held at once beside the weights while the first batch was decoded: caches, "
    "activations, logits. What one operation of torch needs for itself is not seen",
}
"""What each figure of a point means; part of every result."""


def bench_quality(options: QualityBench) -> dict[str, Any]:
    """Run the benchmark; the result is plain data, ready for JSON (docs/benchmarks.md says what is in it).

    `points` holds the figures of each setting, in the order in which they were named, the reference among them. Shows a
    progress bar on a terminal.

    Raises:
        PacelineError: settings or models that cannot be used; nothing has been measured then.
    """
    problems, configurations = held_out(options.problems, options.kinds), options.configurations
    with threads(options.threads):
        models = open_models(options)
        systems = models.systems(configurations)
        evaluation = evaluation_of(models, problems, options.max_tokens)
        for system in systems:
            for job in evaluation.jobs:
                system.decoder.check(job.prompt, job.sampling)
        know_costs(
            [system.decoder for system in systems],
            [job.prompt for job in evaluation.jobs],
            evaluation.jobs[0].sampling.max_tokens,
        )
        with watch_machine() as others:
            peaks = [working_bytes(system, evaluation.jobs[: options.batch]) for system in systems]
            batches = answer_all(systems, evaluation, options)
        points = _points(systems, peaks, batches, models.judge(), evaluation, options.reference)
        return {
            "bench": "quality",
            "paceline": __version__,
            "settings": _settings(options, models, evaluation),
            "machine": machine_facts(models.judge().device),
            "what_else_ran": others,
            "definitions": QUALITY_DEFINITIONS,
            "points": points,
        }


def _points(
    systems: Sequence[System],
    peaks: Sequence[int],
    batches: Mapping[str, list[list[Batch]]],
    judge: Target,
    evaluation: Evaluation,
    reference: str,
) -> list[dict[str, Any]]:
    graded = {name: _graded(evaluation.problems, found) for name, found in batches.items()}
    answers = {name: answers_of(found) for name, found in batches.items()}
    known = _log_likelihoods(judge, evaluation, (answer for found in answers.values() for answer in found))
    return [
        {
            "setting": each.name,
            "method": each.decoder.name,
            **accuracy_figures(graded[each.name]),
            **kept_figures(graded[each.name], graded[reference]),
            **speed_figures(graded[each.name], seconds_of(batches[each.name])),
            "generative_perplexity": _perplexity(answers[each.name], known),
            "weight_bytes": each.weight_bytes,
            "working_bytes": peak,
        }
        for each, peak in zip(systems, peaks, strict=True)
    ]


def _graded(problems: Sequence[Problem], batches: Sequence[Sequence[Batch]]) -> list[GradedAnswer]:
    answers = answers_of(batches)
    first_seconds = [seconds for repeats in batches for seconds in repeats[0].first_seconds]
    return [
        GradedAnswer(
            kind=problem.task.kind,
            level=problem.task.level,
            right=problem.task.check(answer.text),
            tokens=len(answer.token_ids),
            forwards=answer.stats.forward_passes,
            first_seconds=seconds,
            prefix_tokens=answer.stats.prefix_tokens,
            reused_tokens=answer.stats.reused_tokens,
        )
        for problem, answer, seconds in zip(problems, answers, first_seconds, strict=True)
    ]


def _log_likelihoods(
    judge: Target, evaluation: Evaluation, answers: Iterable[Completion]
) -> dict[tuple[int, tuple[int, ...]], float]:
    """By problem and token ids: an answer that several settings gave is read once."""
    asked = {(answer.prompt_index, tuple(answer.token_ids)): evaluation.jobs[answer.prompt_index] for answer in answers}
    return {key: log_likelihood_of(judge, job.prompt, job.sampling, key[1]) for key, job in asked.items()}


def _perplexity(answers: Sequence[Completion], known: Mapping[tuple[int, tuple[int, ...]], float]) -> float:
    """Of all answers of a setting, from their log-likelihoods."""
    total = sum(known[answer.prompt_index, tuple(answer.token_ids)] for answer in answers)
    return math.exp(-total / sum(len(answer.token_ids) for answer in answers))


def _settings(options: QualityBench, models: Models, evaluation: Evaluation) -> dict[str, Any]:
    """The settings in effect, as plain data."""
    names: dict[str, Any] = {"dllm": None, "verifier": None}  # where no setting needs them
    names |= {kind: str(name) for kind, name in named_models(options).items()}
    if options.drafter is None and models.target.drafter is not None:
        names["drafter"] = BUNDLED_DRAFTER
    configurations = [configuration.name for configuration in options.configurations]
    return as_plain_data(options) | names | {"settings": configurations, "max_tokens": evaluation.sampling.max_tokens}
