"""One training loop for every model: optimise, log, evaluate, draw, save, resume.

A batch, and all that is drawn while it is learned from, is a function of its index: a run that was killed goes on
exactly where its last checkpoint stands, and several processes learn what one would (`fit.processes`). The loop does
not know what a model is for: the loss is given to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from paceline.errors import TrainingError
from paceline.progress import progress
from paceline.train.fit.average import Average
from paceline.train.fit.checkpoint import Trained, forget_drafts, resume, save
from paceline.train.fit.log import append, forget_after, read_log
from paceline.train.fit.memory import memory_is_set_by, same_work
from paceline.train.fit.optimizers import new_optimizers, rate_at, step_all
from paceline.train.fit.plot import save_plot
from paceline.train.fit.processes import accelerator, check_same_step, own_share
from paceline.train.fit.recompute import layers_recomputed
from paceline.train.options import FitConfig

if TYPE_CHECKING:
    from accelerate import Accelerator

__all__ = ["fit"]

Batch = tuple[Tensor, ...]
BatchAt = Callable[[int], Batch]
"""index of a micro batch, counted from the start of the run -> the batch."""

Loss = Callable[..., tuple[Tensor, Mapping[str, Tensor]]]
"""the tensors of a batch -> the loss and figures worth logging."""

Evaluate = Callable[[], Mapping[str, float]]


def fit(
    module: nn.Module,
    batch_at: BatchAt,
    loss: Loss,
    evaluate: Evaluate,
    config: FitConfig,
    run: Path,
    recipe: Mapping[str, Any] | None = None,
    batch_setting: str = "",
) -> None:
    """Train `module` in place, and leave the averaged weights in it where `ema_decay` is not 0.

    `run` collects log.jsonl, curve.png and the checkpoint that a later call resumes from. Every process of a group
    calls this with the same arguments; the first one evaluates and writes.

    Args:
        evaluate: figures of the weights that would be the result now; need not restore the module's mode.
        recipe: what else the result depends on, as plain values: a run is resumed only with the same.
        batch_setting: the key of `recipe` that says how large a micro batch is.

    Raises:
        ConfigError: the processes cannot share out the micro batches, or Accelerate is not installed.
        TrainingError: the loss or its gradient is not finite, the memory too small, or `run` belongs to other settings.
    """
    recipe = recipe or {}
    team = accelerator(config.micro_batches, next(module.parameters()).device)
    # First, as this gives all processes the weights of the first one.
    compute = team.prepare_model(_Objective(module, torch.compile(loss) if config.compile else loss))
    trained = Trained(module, new_optimizers(module, config), Average(module, config.ema_decay))
    first = _start(team, trained, run, settings := _decisive(config, recipe))
    instead = same_work(config.gradient_checkpointing)
    memory = (batch_setting or "the size of a micro batch", recipe.get(batch_setting), instead)
    with layers_recomputed(module, config.gradient_checkpointing), _bar(team, config.steps, first) as advance:
        for step in range(first, config.steps):
            started = time.perf_counter()
            with memory_is_set_by(*memory):
                figures = _step(team, compute, batch_at, trained, step, config)
                heldout = _heldout(team, trained, evaluate, step + 1, config)
            if team.is_main_process:
                figures |= {**heldout, "step": step + 1, "seconds": time.perf_counter() - started}
                _record(run, trained, figures, heldout, settings, config)
            advance(f"loss {figures['loss']:.3f}")
    trained.average.keep()
    team.wait_for_everyone()


class _Objective(nn.Module):
    """The loss as a module that owns what it trains: what Accelerate prepares."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, *batch: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self.loss(*batch)


def _decisive(config: FitConfig, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What the result depends on: a run that ran out of memory goes on with layers that are recomputed."""
    return {**asdict(replace(config, gradient_checkpointing=False)), **recipe}


def _start(team: Accelerator, trained: Trained, run: Path, settings: Mapping[str, Any]) -> int:
    """Where to go on: the steps of the checkpoint, which is loaded."""
    run.mkdir(parents=True, exist_ok=True)
    first = resume(run, trained, settings)
    check_same_step(team, first)
    if team.is_main_process:
        forget_drafts(run)
        forget_after(run / "log.jsonl", first)
    return first


def _bar(team: Accelerator, steps: int, first: int) -> AbstractContextManager[Callable[[str], None]]:
    """A bar for all processes together."""
    return progress("training", steps, done=first) if team.is_main_process else nullcontext(lambda word: None)


def _step(
    team: Accelerator, compute: nn.Module, batch_at: BatchAt, trained: Trained, step: int, config: FitConfig
) -> dict[str, float]:
    """One step of the optimisers; figures are means over the micro batches of all processes."""
    trained.module.train()
    share = own_share(config.micro_batches, team.process_index, team.num_processes)
    sums: dict[str, float] = {}
    for index in (step * config.micro_batches + micro for micro in share):
        torch.manual_seed(_noise_seed(config.seed, index))
        with team.accumulate(compute):
            value, figures = compute(*(tensor.to(team.device) for tensor in batch_at(index)))
            team.backward(value)
        for key, figure in {"loss": value, **figures}.items():
            sums[key] = sums.get(key, 0.0) + float(figure.detach()) / len(share)
    means = team.reduce(torch.tensor(list(sums.values()), dtype=torch.float64, device=team.device), "mean")
    norm = float(team.clip_grad_norm_(trained.module.parameters(), config.clip))
    taken = dict(zip(sums, means.tolist(), strict=True))
    _check_finite({"loss": taken["loss"], "norm of the gradient": norm}, step + 1)
    rate = rate_at(step, config)
    step_all(trained.optimizers, rate)
    trained.average.update(step + 1)
    return taken | {"gradient_norm": norm, "learning_rate": rate}


def _check_finite(figures: Mapping[str, float], step: int) -> None:
    for name, value in figures.items():
        if not math.isfinite(value):
            raise TrainingError(f"The {name} is {value} at step {step}.", remedy="Lower learning_rate.")


def _noise_seed(seed: int, index: int) -> int:
    """Of what a loss draws for micro batch `index`, in whichever process and after whichever restart."""
    return int(np.random.SeedSequence((seed, index)).generate_state(1)[0])


def _heldout(
    team: Accelerator, trained: Trained, evaluate: Evaluate, done: int, config: FitConfig
) -> Mapping[str, float]:
    """The figures of an evaluation, where one is due; the first process makes it for all."""
    if not _due(done, config.evaluate_every, config) or not team.is_main_process:
        return {}
    with trained.average.shown():
        return evaluate()


def _record(
    run: Path,
    trained: Trained,
    figures: Mapping[str, float],
    heldout: Mapping[str, float],
    settings: Mapping[str, Any],
    config: FitConfig,
) -> None:
    """Log a step; draw and save where that is due."""
    done = int(figures["step"])
    append(run / "log.jsonl", figures)
    if _due(done, config.evaluate_every, config):
        save_plot(run / "curve.png", read_log(run / "log.jsonl"), list(heldout))
    if _due(done, config.save_every, config):
        save(run, trained, done, settings)


def _due(done: int, every: int, config: FitConfig) -> bool:
    return done % every == 0 or done == config.steps
