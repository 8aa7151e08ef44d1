"""One training loop for every model: optimise, log, evaluate, save, resume.

Matrices are trained with Muon (K. Jordan 2024; arXiv 2502.16982 for the RMS-matched learning rate), everything else
with AdamW. A batch is a function of its step, so a run that was killed goes on exactly where its last checkpoint
stands. The loop does not know what a model is for: the loss is given to it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.errors import TrainingError
from paceline.files import write_atomically
from paceline.progress import progress

__all__ = ["FitConfig", "fit"]


@dataclass(frozen=True, slots=True)
class FitConfig:
    """Settings of a run.

    Attributes:
        steps: optimiser steps in all; the schedule ends there.
        learning_rate: peak rate of both optimisers (Muon's update is matched to AdamW's RMS).
        warmup_steps: linear rise, then a cosine down to `final_share` of the peak.
        clip: largest gradient norm.
        micro_batches: backward passes per step.
        evaluate_every, save_every: in steps; both also happen at the end.
        compile: compile the loss with torch.compile; needs a C++ compiler, pays after some hundred steps.
        seed: for everything drawn during training.
    """

    steps: int
    learning_rate: float = 4e-3
    warmup_steps: int = 50
    final_share: float = 0.02
    clip: float = 1.0
    micro_batches: int = 1
    evaluate_every: int = 100
    save_every: int = 100
    compile: bool = False
    seed: int = 0


Settings = Mapping[str, Any]
Batch = tuple[Tensor, ...]
BatchAt = Callable[[int], Batch]
"""index of a micro batch, counted from the start of the run -> the batch."""

Loss = Callable[..., tuple[Tensor, Mapping[str, Tensor]]]
"""the tensors of a batch -> the loss and figures worth logging."""


def fit(
    module: nn.Module,
    batch_at: BatchAt,
    loss: Loss,
    evaluate: Callable[[], Mapping[str, float]],
    config: FitConfig,
    run: Path,
    recipe: Mapping[str, Any] | None = None,
) -> None:
    """Train `module` in place; `run` collects log.jsonl and the checkpoint that a later call resumes from.

    Args:
        recipe: what else the result depends on, as plain values: a run is resumed only with the same.

    Raises:
        TrainingError: the loss is not finite, or `run` belongs to other settings.
    """
    run.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(config.seed)
    optimizers = _optimizers(module, config)
    settings = {**asdict(config), **(recipe or {})}
    first = _resume(run, module, optimizers, settings)
    _forget_log(run / "log.jsonl", first)
    compute = torch.compile(loss) if config.compile else loss
    log = (run / "log.jsonl").open("a", buffering=1)
    with log, progress("training", config.steps, done=first) as advance:
        for step in range(first, config.steps):
            started = time.perf_counter()
            figures = _step(module, batch_at, compute, optimizers, step, config)
            done = step + 1
            if done % config.evaluate_every == 0 or done == config.steps:
                figures |= evaluate()
            figures |= {"step": done, "seconds": time.perf_counter() - started}
            log.write(json.dumps({key: round(value, 6) for key, value in figures.items()}) + "\n")
            if done % config.save_every == 0 or done == config.steps:
                _save(run, module, optimizers, done, settings)
            advance(f"loss {figures['loss']:.3f}")


def _step(
    module: nn.Module,
    batch_at: BatchAt,
    compute: Loss,
    optimizers: list[torch.optim.Optimizer],
    step: int,
    config: FitConfig,
) -> dict[str, float]:
    module.train()
    sums: dict[str, float] = {}
    for micro in range(config.micro_batches):
        with torch.autocast("cpu", torch.bfloat16):
            value, figures = compute(*batch_at(step * config.micro_batches + micro))
        (value / config.micro_batches).backward()  # type: ignore[no-untyped-call]
        for key, figure in {"loss": value, **figures}.items():
            sums[key] = sums.get(key, 0.0) + float(figure.detach()) / config.micro_batches
    norm = float(nn.utils.clip_grad_norm_(module.parameters(), config.clip))
    if not math.isfinite(sums["loss"]) or not math.isfinite(norm):
        raise TrainingError(f"The loss is {sums['loss']} at step {step + 1}.", remedy="Lower learning_rate.")
    rate = config.learning_rate * _schedule(step, config)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return sums | {"gradient_norm": norm, "learning_rate": rate}


def _schedule(step: int, config: FitConfig) -> float:
    rise = min(1.0, (step + 1) / max(1, config.warmup_steps))
    share = max(0.0, (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps))
    return rise * (config.final_share + (1 - config.final_share) * 0.5 * (1 + math.cos(math.pi * share)))


def _optimizers(module: nn.Module, config: FitConfig) -> list[torch.optim.Optimizer]:
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    matrices = [p for name, p in trained if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in trained if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=config.learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _save(run: Path, module: nn.Module, optimizers: list[torch.optim.Optimizer], step: int, settings: Settings) -> None:
    state = {
        "step": step,
        "settings": dict(settings),
        "module": module.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
    }
    write_atomically(run / "checkpoint.pt", lambda path: torch.save(state, path))


def _resume(run: Path, module: nn.Module, optimizers: list[torch.optim.Optimizer], settings: Settings) -> int:
    path = run / "checkpoint.pt"
    if not path.exists():
        return 0
    try:
        state = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises many kinds
        raise TrainingError(f"{path} cannot be read: {error}", remedy="Remove it to start anew.") from error
    theirs = state["settings"]
    differing = sorted(key for key in theirs | settings if theirs.get(key) != settings.get(key))
    if differing:
        told = ", ".join(f"{key} {theirs.get(key)!r} instead of {settings.get(key)!r}" for key in differing)
        raise TrainingError(f"{run} was trained with other settings: {told}.", remedy="Use them, or another folder.")
    module.load_state_dict(state["module"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return int(state["step"])


def _forget_log(path: Path, step: int) -> None:
    """Drop the lines behind the checkpoint: a killed run had gone further than it had saved."""
    if path.exists():
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        if kept != lines:
            write_atomically(path, lambda draft: draft.write_text("".join(kept)))
