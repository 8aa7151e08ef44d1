"""How all bundled models are made: the numbers of the recipe, and the file in which a build writes them down.

Knows nothing of how a model is trained, and not in which order the models need each other.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from paceline.errors import CheckpointError, ConfigError, TrainingError
from paceline.files import write_text
from paceline.models.safetensors_file import read_json
from paceline.train.diffusion_options import DllmConfig, SamplesConfig, VerifierConfig
from paceline.train.fit.checkpoint import differences
from paceline.train.options import DrafterConfig, FitConfig, Objective, ResponsesConfig, TargetConfig, UnloopConfig

__all__ = ["Counts", "Recipe", "bundled_recipe", "check_build", "open_build"]

_NAME = "recipe.json"


@dataclass(frozen=True, slots=True)
class Counts:
    """Generated documents of a corpus, besides what comes with Python, where that is in it."""

    stories: int
    dialogues: int
    modules: int
    tasks: int = 0
    drills: int = 0
    library: bool = True


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the bundled models are made with.

    Attributes:
        text, target, rounds, unloop, loops: the target, on this text; `rounds` of unlooping follow its training.
        drafter, answers: the target's drafter.
        checked_text, dllm: the diffusion model, which begins as the target, on text with tasks that can be checked.
        practice_text, practice: how it goes on, on tasks and sums alone.
        verifier, samples: the diffusion model's verifier.
        problems: held-out tasks that these two are tried on for their cards.
    """

    text: Counts
    target: TargetConfig
    rounds: int
    unloop: UnloopConfig
    loops: ResponsesConfig
    drafter: DrafterConfig
    answers: ResponsesConfig
    checked_text: Counts
    dllm: DllmConfig
    practice_text: Counts
    practice: DllmConfig
    verifier: VerifierConfig
    samples: SamplesConfig
    problems: int


def bundled_recipe(out: Path, scale: float = 1.0) -> Recipe:
    """The recipe of the bundled models; `scale` below 1 makes every count smaller, to try the whole way.

    Raises:
        ConfigError: `scale` is not in (0, 1].
    """
    if not 0.0 < scale <= 1.0:
        raise ConfigError(f"scale is {scale}.", remedy="It must be above 0 and at most 1.", param="scale")

    def scaled(count: int, least: int = 1) -> int:
        return max(least, round(count * scale))

    def fit(steps: int, learning_rate: float, warmup_steps: int = 50) -> FitConfig:
        return FitConfig(scaled(steps), learning_rate, warmup_steps, save_every=50)

    said = ResponsesConfig(scaled(4096, 64), (24, 110), chat_share=0.75, max_tokens=96, batch=64)
    corpus, checked = out / "corpus", out / "corpus-with-tasks"
    return Recipe(
        text=Counts(scaled(3600, 100), scaled(10_000, 100), scaled(1000, 50)),
        target=TargetConfig(corpus, fit(3000, 5e-3)),
        rounds=3,
        unloop=UnloopConfig(corpus, fit(45, 5e-4, 8)),
        loops=ResponsesConfig(scaled(448, 64), (4, 110), max_tokens=112, sampled_share=0.0, batch=64),
        drafter=DrafterConfig(fit(7200, 4e-3), 16, objective=Objective("pace", distill_share=0.5), heldout_rows=256),
        answers=ResponsesConfig(scaled(12_000, 64), (24, 110), max_tokens=128, sampled_share=0.15, batch=64),
        checked_text=Counts(scaled(1200, 100), scaled(3000, 100), scaled(300, 50), scaled(90_000, 100)),
        dllm=DllmConfig(checked, fit(3000, 3e-3), longest_row=256, run_share=0.6, longest_run=96),
        practice_text=Counts(100, scaled(2000, 100), 50, scaled(60_000, 100), scaled(40_000, 100), library=False),
        practice=DllmConfig(out / "corpus-of-tasks", fit(1100, 2e-3), longest_row=256, run_share=0.4, longest_run=96),
        verifier=VerifierConfig(checked, fit(1000, 5e-3)),
        samples=SamplesConfig(said, window=16, kv_window=8, precision="mixed"),
        problems=scaled(150, 6),
    )


def open_build(out: Path, recipe: Recipe) -> None:
    """Write down what `out` is made with, where that is not written yet.

    Raises:
        TrainingError: as `check_build`.
    """
    check_build(out, recipe)
    if not (out / _NAME).exists():
        write_text(out / _NAME, json.dumps(_plain(asdict(recipe), out), indent=2) + "\n")


def check_build(out: Path, recipe: Recipe) -> None:
    """Refuse a folder that was begun with another recipe. A setting that is not written there has its default.

    Raises:
        TrainingError: names what differs, with both values; or what is written there cannot be read.
    """
    path = out / _NAME
    if not path.exists():
        return
    try:
        theirs = {**_flat(_plain(_defaults(recipe), out)), **_flat(read_json(path))}
    except CheckpointError as error:
        raise TrainingError(error.message, remedy="Build into another folder.") from error
    if told := differences(theirs, _flat(_plain(asdict(recipe), out))):
        remedy = "Build into another folder, or with the --scale that it was begun with."
        raise TrainingError(f"{out} was begun with another recipe: {told}.", remedy=remedy)


def _plain(values: dict[str, Any], out: Path) -> dict[str, Any]:
    """As JSON has it: paths are text, and begin in the folder of the build."""
    plain: dict[str, Any] = json.loads(json.dumps(values, default=lambda path: str(path.relative_to(out))))
    return plain


def _defaults(config: Any) -> dict[str, Any]:
    """What a setting is that is left out: those of the configurations in `config`, as in `asdict`."""
    inside = {each.name: getattr(config, each.name) for each in fields(config)}
    known = {each.name: each.default for each in fields(config) if each.default is not MISSING}
    return known | {name: _defaults(value) for name, value in inside.items() if is_dataclass(value)}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"target": {"fit": {"steps": 3}}} as {"target.fit.steps": 3}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat
