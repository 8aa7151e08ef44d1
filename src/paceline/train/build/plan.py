"""What a build will cost, before it begins: tokens, operations and time, from steps that are tried on this machine.

Time is a guess from a few steps: other programs, heat and shorter answers move it. Does not know how stages are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paceline.train.build.cost import (
    answer_seconds,
    drafter_step_seconds,
    forward_flops,
    target_step_seconds,
    training_flops,
)
from paceline.train.build.recipe import Recipe
from paceline.train.build.stages import Stage
from paceline.train.drafter import bundled_drafter_spec
from paceline.train.fit.checkpoint import steps_saved
from paceline.train.recipes import answers_width
from paceline.train.target import bundled_target_spec
from paceline.zoo.tokenizer import MASK

__all__ = ["Rates", "Row", "measure_rates", "plan"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds here: of one operation of a transformer's training, one step of the drafter, one answered token."""

    training_flop: float
    drafter_step: float
    answer_token: float


@dataclass(frozen=True, slots=True)
class Row:
    """A stage of the plan. `seconds` are what is left of it; None where nothing was tried."""

    name: str
    steps: int
    steps_done: int
    answers: int
    tokens: int
    flops: float
    seconds: float | None


def measure_rates(recipe: Recipe, tell: Callable[[str], None]) -> Rates:
    """Try steps of a transformer's and a drafter's training, and some answers: about a minute on two cores.

    Args:
        tell: is told of each trial before it begins.
    """
    spec = bundled_target_spec()
    tokens = recipe.target.windows_per_batch * recipe.target.window_tokens
    flops = tokens * training_flops(spec, recipe.target.window_tokens)
    drafter, width = bundled_drafter_spec(spec, MASK, recipe.drafter.first_block_size), answers_width(recipe.answers)
    tell("steps of a target")
    training = target_step_seconds(spec, recipe.target)
    tell("steps of a drafter")
    drafting = drafter_step_seconds(spec, drafter, recipe.drafter, width)
    tell("answers")
    return Rates(training / flops, drafting, answer_seconds(spec, recipe.answers))


def plan(stages: Iterable[Stage], rates: Rates) -> list[Row]:
    """A row for each stage. Answers are counted at their full length, which not all of them reach.

    Raises:
        TrainingError: a stage was begun, and what it would go on from cannot be read.
    """
    return [_row(stage, rates) for stage in stages]


def _row(stage: Stage, rates: Rates) -> Row:
    answers, longest = (stage.answers.count, stage.answers.max_tokens) if stage.answers else (0, 0)
    said = answers * longest
    flops = stage.steps * stage.step_flops + said * _answer_flops(stage)
    done = stage.steps if stage.done else steps_saved(stage.folder / "run")
    seconds = None
    if stage.kind != "corpus":
        unanswered = 0 if done else answers - _answers_made(stage)
        seconds = (stage.steps - done) * _step_seconds(stage, rates)
        seconds += unanswered * longest * _answer_seconds(stage, rates)
    return Row(stage.folder.name, stage.steps, done, answers, said + stage.steps * stage.step_tokens, flops, seconds)


def _answer_flops(stage: Stage) -> float:
    """Of one token that is said."""
    if stage.answers is None:
        return 0.0
    return stage.answer_rows * forward_flops(bundled_target_spec(), answers_width(stage.answers) / 2)


def _answer_seconds(stage: Stage, rates: Rates) -> float:
    """Of one token: a pass over many rows is bound by its operations, as training is, and one over a row is not."""
    return rates.answer_token if stage.answer_rows == 1 else _answer_flops(stage) * rates.training_flop


def _answers_made(stage: Stage) -> int:
    """Answers in the parts that an interrupted run has left."""
    if stage.answers is None:
        return 0
    parts = sum(1 for _ in (stage.folder / stage.said_in).glob("part-*.npz"))
    return min(stage.answers.count, parts * stage.answers.part)


def _step_seconds(stage: Stage, rates: Rates) -> float:
    return rates.drafter_step if stage.kind == "drafter" else stage.step_flops * rates.training_flop
