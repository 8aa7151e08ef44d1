"""All bundled models from nothing but Python's files and our generators: the stages, in order, each resumable.

A stage's folder is finished when the file that is written last stands in it; a build that was killed goes on inside the
stage where it stopped. Knows the numbers of the bundled recipe; how a model is trained stands in `train.recipes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from paceline.errors import ConfigError, TrainingError
from paceline.files import write_text
from paceline.train.build.cost import drafter_flops, training_flops
from paceline.train.drafter import bundled_drafter_spec
from paceline.train.options import (
    TURN_START,
    DrafterConfig,
    FitConfig,
    Objective,
    ResponsesConfig,
    TargetConfig,
    UnloopConfig,
)
from paceline.train.recipes import answers_width, make_drafter, make_target, make_unlooped
from paceline.train.target import bundled_target_spec
from paceline.zoo.catalog import BUNDLED_DRAFTER, BUNDLED_TARGET
from paceline.zoo.corpus import build as build_corpus
from paceline.zoo.tokenizer import MASK, SPECIALS

__all__ = ["Recipe", "Stage", "bundled_recipe", "open_build", "stages"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the bundled models are made with; `rounds` of unlooping follow the target's training."""

    stories: int
    dialogues: int
    modules: int
    target: TargetConfig
    rounds: int
    unloop: UnloopConfig
    loops: ResponsesConfig
    drafter: DrafterConfig
    answers: ResponsesConfig


@dataclass(frozen=True, slots=True)
class Stage:
    """One folder of a build, of which the file `last` is written last, and what it costs.

    Attributes:
        answers: how the target is to answer first.
        steps: of the training, 0 where there is none; each takes `step_tokens` and `step_flops`.
        kind: which trial tells what a step takes here.
    """

    folder: Path
    last: str
    make: Callable[[], None]
    kind: Literal["corpus", "target", "drafter"]
    steps: int = 0
    step_tokens: int = 0
    step_flops: float = 0.0
    answers: ResponsesConfig | None = None

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return (self.folder / self.last).is_file()

    def complete(self) -> None:
        """Do what is left to do."""
        if not self.done:
            self.make()


def bundled_recipe(out: Path, scale: float = 1.0) -> Recipe:
    """The recipe of the bundled pair; `scale` below 1 makes every count smaller, to try the whole way.

    Raises:
        ConfigError: `scale` is not in (0, 1].
    """
    if not 0.0 < scale <= 1.0:
        raise ConfigError(f"scale is {scale}.", remedy="It must be above 0 and at most 1.", param="scale")

    def scaled(count: int, least: int = 1) -> int:
        return max(least, round(count * scale))

    def fit(steps: int, learning_rate: float, warmup_steps: int = 50) -> FitConfig:
        return FitConfig(scaled(steps), learning_rate, warmup_steps, save_every=50)

    corpus = out / "corpus"
    return Recipe(
        stories=scaled(3600, 100),
        dialogues=scaled(10_000, 100),
        modules=scaled(1000, 50),
        target=TargetConfig(corpus, fit(3000, 5e-3)),
        rounds=3,
        unloop=UnloopConfig(corpus, fit(45, 5e-4, 8)),
        loops=ResponsesConfig(scaled(448, 64), (4, 110), max_tokens=112, sampled_share=0.0, batch=64),
        drafter=DrafterConfig(fit(7200, 4e-3), objective=Objective("pace", distill_share=0.5), heldout_rows=256),
        answers=ResponsesConfig(scaled(12_000, 64), (24, 110), max_tokens=128, sampled_share=0.15, batch=64),
    )


def open_build(out: Path, recipe: Recipe) -> None:
    """Write down what `out` is made with.

    Raises:
        TrainingError: it was begun with another recipe.
    """
    told = json.dumps(asdict(recipe), indent=2, default=lambda path: str(path.relative_to(out))) + "\n"
    path = out / "recipe.json"
    if path.is_file() and path.read_text(encoding="utf-8") != told:
        raise TrainingError(f"{out} was begun with another recipe ({path}).", remedy="Build into another folder.")
    write_text(path, told)


def stages(out: Path, recipe: Recipe) -> list[Stage]:
    """All stages in the order they need each other."""
    return [_corpus(out, recipe), _target(out, recipe), *_unlooped(out, recipe), _drafter(out, recipe)]


def _corpus(out: Path, recipe: Recipe) -> Stage:
    counts = (recipe.stories, recipe.dialogues, recipe.modules)
    folder = out / "corpus"
    return Stage(folder, "heldout.npz", lambda: build_corpus(folder, None, *counts), "corpus")


def _target(out: Path, recipe: Recipe) -> Stage:
    folder, config = _target_folder(out, recipe, 0), recipe.target
    tokens = config.windows_per_batch * config.window_tokens
    flops = tokens * training_flops(bundled_target_spec(), config.window_tokens)
    make = partial(make_target, config, folder)
    return Stage(folder, "config.json", make, "target", config.fit.steps, tokens, flops)


def _unlooped(out: Path, recipe: Recipe) -> Iterator[Stage]:
    """What each round makes of the target; the last one is the bundled model."""
    for number in range(recipe.rounds):
        before, after = (_target_folder(out, recipe, each) for each in (number, number + 1))
        answers = replace(recipe.loops, seed=number)  # other prompts in every round
        config = replace(recipe.unloop, fit=replace(recipe.unloop.fit, seed=number))
        width = answers_width(answers)
        tokens = config.windows_per_batch * config.window_tokens + config.answers_per_batch * width
        flops = tokens * training_flops(bundled_target_spec(), config.window_tokens)
        make = partial(make_unlooped, before, config, answers, TURN_START, after)
        yield Stage(after, "config.json", make, "target", config.fit.steps, tokens, flops, answers)


def _target_folder(out: Path, recipe: Recipe, rounds: int) -> Path:
    return out / (BUNDLED_TARGET if rounds == recipe.rounds else f"target-{rounds}")


def _drafter(out: Path, recipe: Recipe) -> Stage:
    folder, config, answers = out / BUNDLED_DRAFTER, recipe.drafter, recipe.answers
    make = partial(
        make_drafter,
        out / BUNDLED_TARGET,
        out / "corpus",
        config,
        answers,
        mask_token=SPECIALS[MASK],
        turn_start=TURN_START,
        out=folder,
    )
    spec = bundled_drafter_spec(bundled_target_spec(), MASK, config.block_size)
    flops = config.rows_per_batch * 3 * drafter_flops(spec, answers_width(answers), config.block_rows)
    tokens = config.rows_per_batch * config.block_rows
    return Stage(folder, "config.json", make, "drafter", config.fit.steps, tokens, flops, answers)
