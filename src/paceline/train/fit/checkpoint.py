"""What a run resumes from: weights, their average, optimisers and step in one file, whole or not there at all.

Knows the layout of the file, not what was trained. No random state is in it: all that is drawn is a function of the
micro batch it is drawn for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from paceline.errors import TrainingError
from paceline.files import write_atomically
from paceline.train.fit.average import Average
from paceline.train.fit.memory import is_out_of_memory
from paceline.train.options import FitConfig

__all__ = ["Trained", "differences", "forget_drafts", "resume", "save", "steps_saved"]

_NAME = "checkpoint.pt"

Settings = Mapping[str, Any]


class Trained(NamedTuple):
    """All that changes from step to step."""

    module: nn.Module
    optimizers: list[torch.optim.Optimizer]
    average: Average


def save(run: Path, trained: Trained, step: int, settings: Settings) -> None:
    """Write what was trained in `step` steps; the last checkpoint is replaced when this one is complete."""
    state = {
        "step": step,
        "settings": dict(settings),
        "module": trained.module.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in trained.optimizers],
        "average": trained.average.state_dict(),
    }
    write_atomically(run / _NAME, lambda path: torch.save(state, path))


def resume(run: Path, trained: Trained, settings: Settings) -> int:
    """Load the checkpoint of `run`, where there is one, and give its step, otherwise 0.

    Raises:
        TrainingError: it cannot be read, or was trained with other settings, or is of another kind of model.
    """
    path = run / _NAME
    if not path.exists():
        return 0
    state = _read(path)
    _check_same(run, state["settings"], settings)
    if state["module"].keys() != trained.module.state_dict().keys():
        raise TrainingError(f"{run} was trained with another kind of model.", remedy="Use another folder.")
    trained.module.load_state_dict(state["module"])
    for optimizer, saved in zip(trained.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    trained.average.load_state_dict(state.get("average", {}))
    return int(state["step"])


def steps_saved(run: Path) -> int:
    """The step that `resume` would go on from, of a run with whatever settings; the weights are not read.

    Raises:
        TrainingError: the checkpoint cannot be read.
    """
    path = run / _NAME
    return int(_read(path, mapped=True)["step"]) if path.exists() else 0


def forget_drafts(run: Path) -> None:
    """Remove what a run that was killed while it saved has left: it is as large as a checkpoint."""
    for draft in run.glob(f".*.{_NAME}"):
        draft.unlink()


def differences(theirs: Settings, ours: Settings) -> str:
    """What of their settings is not as ours, told with both values; empty where all is the same."""
    differing = sorted(key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key))
    return ", ".join(f"{key} {theirs.get(key)!r} instead of {ours.get(key)!r}" for key in differing)


def _read(path: Path, mapped: bool = False) -> dict[str, Any]:
    """A checkpoint; `mapped`: weights stay on disk until they are looked at."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, mmap=mapped)
    except Exception as error:  # torch raises many kinds, and some give advice on loading whatever it is
        if isinstance(error, OSError) or is_out_of_memory(error):
            raise TrainingError(f"{path} cannot be read: {error}.", remedy="See to that, then go on.") from error
        raise TrainingError(f"{path} is no whole checkpoint.", remedy="Remove it to start anew.") from error
    return state


def _check_same(run: Path, theirs: Settings, ours: Settings) -> None:
    # A run that is older than a setting was trained with its default: defaults change nothing. Of what else may have
    # been added since, it cannot say what it was trained with.
    defaults = {each.name: each.default for each in fields(FitConfig) if each.default is not MISSING}
    theirs = {**defaults, **theirs}
    if told := differences(theirs, {key: value for key, value in ours.items() if key in theirs}):
        raise TrainingError(f"{run} was trained with other settings: {told}.", remedy="Use them, or another folder.")
