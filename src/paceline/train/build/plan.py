"""What a build will cost, before it begins: tokens, operations and time, from steps that are tried on this machine.

Time is a guess from a few steps: other programs, heat and shorter answers move it. Does not know how stages are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.train.build.cost import answer_seconds, drafter_step_seconds, forward_flops, target_step_seconds
from paceline.train.build.recipe import Recipe, Stage
from paceline.train.drafter import bundled_drafter_spec
from paceline.train.fit.log import read_log
from paceline.train.options import ResponsesConfig
from paceline.train.recipes import answers_width
from paceline.train.target import bundled_target_spec
from paceline.zoo.tokenizer import MASK

__all__ = ["Rates", "Row", "measure_rates", "plan"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds here: of one token that the target learns, of one step of the drafter, of one answered token."""

    target_token: float
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


def measure_rates(recipe: Recipe) -> Rates:
    """Try some steps of everything: about half a minute on two cores."""
    spec = bundled_target_spec()
    target = target_step_seconds(spec, recipe.target)
    width = answers_width(recipe.answers)
    return Rates(
        target / (recipe.target.windows_per_batch * recipe.target.window_tokens),
        drafter_step_seconds(spec, bundled_drafter_spec(spec, MASK), recipe.drafter, width),
        answer_seconds(spec, recipe.answers),
    )


def plan(stages: Iterable[Stage], rates: Rates) -> list[Row]:
    """A row for each stage. Answers are counted at their full length, which not all of them reach."""
    return [_row(stage, rates) for stage in stages]


def _row(stage: Stage, rates: Rates) -> Row:
    answers = stage.answers.count if stage.answers else 0
    said = answers * stage.answers.max_tokens if stage.answers else 0
    flops = stage.steps * stage.step_flops + said * _answer_flops(stage.answers)
    done = stage.steps if stage.done else _steps_done(stage)
    seconds = None if stage.kind == "corpus" else (stage.steps - done) * _step_seconds(stage, rates)
    if seconds is not None and done == 0:
        seconds += said * rates.answer_token
    return Row(stage.folder.name, stage.steps, done, answers, said + stage.steps * stage.step_tokens, flops, seconds)


def _answer_flops(answers: ResponsesConfig | None) -> float:
    return forward_flops(bundled_target_spec(), answers_width(answers) / 2) if answers else 0.0


def _step_seconds(stage: Stage, rates: Rates) -> float:
    return rates.drafter_step if stage.kind == "drafter" else stage.step_tokens * rates.target_token


def _steps_done(stage: Stage) -> int:
    """Steps that the log of an interrupted run tells of; a few of them may have to be taken again."""
    log = stage.folder / "run" / "log.jsonl"
    return int(read_log(log)[-1]["step"]) if log.is_file() and log.stat().st_size else 0
