"""All bundled models from nothing but Python's files and our generators: the stages, in order, each resumable.

A stage is finished when all files that it promises stand in its folder; a build that was killed, or whose files were
lost, goes on inside the stage where it stopped. How a model is trained stands in `train.recipes` and
`train.diffusion_recipes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from paceline.train.build.cost import drafter_flops, training_flops
from paceline.train.build.recipe import Counts, Recipe
from paceline.train.diffusion_options import DllmConfig
from paceline.train.diffusion_recipes import make_dllm, make_verifier
from paceline.train.drafter import bundled_drafter_spec
from paceline.train.options import TURN_START, ResponsesConfig
from paceline.train.recipes import answers_width, make_drafter, make_target, make_unlooped
from paceline.train.shape import ShapeConfig
from paceline.train.target import bundled_target_spec
from paceline.train.verifier import bundled_verifier_spec
from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_DRAFTER, BUNDLED_TARGET, BUNDLED_VERIFIER
from paceline.zoo.corpus import build as build_corpus
from paceline.zoo.tokenizer import MASK, SPECIALS

__all__ = ["Stage", "stages"]

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_TEXT = (*(f"tokenizer/{name}" for name in _TOKENIZER), "train.npz", "heldout.npz")
_WEIGHTS = ("model.safetensors", "config.json")
_MODEL = (*_WEIGHTS, *_TOKENIZER)
"""A drafter has the tokenizer of its target; what else decodes has its own."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One folder of a build, and what it costs.

    Attributes:
        files: what will be in it.
        answers: what a model is to say first, in parts in `said_in`; each token takes a pass over `answer_rows` rows.
        steps: of the training, 0 where there is none; each takes `step_tokens` and `step_flops`.
        kind: which trial tells what a step takes here.
    """

    folder: Path
    files: tuple[str, ...]
    make: Callable[[], None]
    kind: Literal["corpus", "transformer", "drafter"]
    steps: int = 0
    step_tokens: int = 0
    step_flops: float = 0.0
    answers: ResponsesConfig | None = None
    said_in: str = "answers"
    answer_rows: int = 1

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return all((self.folder / name).is_file() for name in self.files)

    def complete(self) -> None:
        """Do what is left to do."""
        if not self.done:
            self.make()


def stages(out: Path, recipe: Recipe) -> list[Stage]:
    """All stages in the order they need each other."""
    pair = [_target(out, recipe), *_unlooped(out, recipe), _drafter(out, recipe)]
    tokenizer = recipe.target.corpus / "tokenizer"
    checked = _corpus(recipe.dllm.corpus, recipe.checked_text, tokenizer)
    tasks = _corpus(recipe.practice.corpus, recipe.practice_text, tokenizer)
    begun = out / "diffusion-0"
    dllms = [
        checked,
        _dllm(out / BUNDLED_TARGET, recipe.dllm, begun),
        tasks,
        _dllm(begun, recipe.practice, out / BUNDLED_DLLM),
    ]
    return [_corpus(recipe.target.corpus, recipe.text), *pair, *dllms, _verifier(out, recipe)]


def _corpus(folder: Path, counts: Counts, tokenizer: Path | None = None) -> Stage:
    return Stage(folder, _TEXT, partial(build_corpus, folder, tokenizer, *astuple(counts)), "corpus")


def _target(out: Path, recipe: Recipe) -> Stage:
    folder, config = _target_folder(out, recipe, 0), recipe.target
    tokens = config.windows_per_batch * config.window_tokens
    flops = tokens * training_flops(bundled_target_spec(), config.window_tokens)
    make = partial(make_target, config, folder)
    return Stage(folder, _MODEL, make, "transformer", config.fit.steps, tokens, flops)


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
        yield Stage(after, _MODEL, make, "transformer", config.fit.steps, tokens, flops, answers)


def _target_folder(out: Path, recipe: Recipe, rounds: int) -> Path:
    return out / (BUNDLED_TARGET if rounds == recipe.rounds else f"target-{rounds}")


def _drafter(out: Path, recipe: Recipe) -> Stage:
    folder, config, answers = out / BUNDLED_DRAFTER, recipe.drafter, recipe.answers
    make = partial(
        make_drafter,
        out / BUNDLED_TARGET,
        recipe.target.corpus,
        config,
        answers,
        mask_token=SPECIALS[MASK],
        turn_start=TURN_START,
        out=folder,
    )
    spec = bundled_drafter_spec(bundled_target_spec(), MASK, config.first_block_size)
    flops = config.rows_per_batch * 3 * drafter_flops(spec, answers_width(answers), config.block_rows)
    tokens = config.rows_per_batch * config.block_rows
    return Stage(folder, _WEIGHTS, make, "drafter", config.fit.steps, tokens, flops, answers)


def _dllm(start: Path, config: DllmConfig, folder: Path) -> Stage:
    tokens = config.rows_of(config.longest_row) * config.longest_row
    flops = tokens * training_flops(bundled_target_spec(), config.longest_row)
    make = partial(make_dllm, start, ShapeConfig(), config, SPECIALS[MASK], folder)
    return Stage(folder, _MODEL, make, "transformer", config.fit.steps, tokens, flops)


def _verifier(out: Path, recipe: Recipe) -> Stage:
    folder, config, samples = out / BUNDLED_VERIFIER, recipe.verifier, recipe.samples
    make = partial(make_verifier, out / BUNDLED_DLLM, None, config, samples, turn_start=TURN_START, out=folder)
    text = config.windows_per_batch * config.window_tokens
    said = config.samples_per_batch * answers_width(samples.texts)
    flops = (text + said) * training_flops(bundled_verifier_spec(bundled_target_spec()), config.window_tokens)
    width = answers_width(samples.texts)
    return Stage(
        folder,
        _MODEL,
        make,
        "transformer",
        config.fit.steps,
        step_tokens=text + said,
        step_flops=flops,
        answers=samples.texts,
        said_in="samples",
        answer_rows=min(width, (samples.window or width) + (samples.kv_window or width)),
    )
