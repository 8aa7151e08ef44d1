"""The recipe of an AR target: next-token prediction over windows of a token file.

Knows the shape of the bundled target. Documents are packed end to end; a window may see the end of another document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.errors import SettingError
from paceline.models.spec import Rope, Spec
from paceline.models.transformer import Transformer
from paceline.train.data import Windows, fingerprint, load_windows, repeat_tail
from paceline.train.fit.loop import fit
from paceline.train.forward import next_logits
from paceline.train.losses import next_token_loss, repetition_loss
from paceline.train.options import TargetConfig

__all__ = ["bundled_target_spec", "train_target"]


def bundled_target_spec(vocab_size: int = 8192, eos_token_ids: tuple[int, ...] = ()) -> Spec:
    """Deep rather than wide, so that one drafter layer is cheap beside it: 16 layers of 256, 13 M parameters."""
    layers = 16
    return Spec(
        family="qwen3",
        vocab_size=vocab_size,
        hidden_size=256,
        intermediate_size=640,
        num_layers=layers,
        num_heads=4,
        num_kv_heads=2,
        head_dim=64,
        norm_eps=1e-6,
        rope=Rope(theta=10000.0),
        context_tokens=2048,
        windows=(None,) * layers,
        tied_head=True,
        qk_norm=True,
        eos_token_ids=eos_token_ids,
    )


def train_target(model: Transformer, config: TargetConfig, run: Path) -> None:
    """Train `model` in place; resumes from `run` where that holds a checkpoint.

    Raises:
        ConfigError: too many repeated windows, or too short ones; or as `fit`.
        TrainingError: no corpus; or as `fit`.
    """
    _check(config)
    windows = load_windows(config.corpus / "train.npz", config.window_tokens)
    heldout = load_windows(config.corpus / "heldout.npz", config.window_tokens)

    def batch_at(index: int) -> tuple[Tensor, ...]:
        batch = windows.batch(config.fit.seed, index, config.windows_per_batch)
        return _with_repetition(batch, config.repeated_windows, np.random.default_rng((config.fit.seed, 3, index)))

    def loss(*batch: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        return _loss(model, *batch), {}

    def evaluate() -> Mapping[str, float]:
        return {"heldout_loss": _heldout_loss(model, heldout, config)}

    recipe = {
        "windows_per_batch": config.windows_per_batch,
        "repeated_windows": config.repeated_windows,
        "windows": fingerprint(windows.tokens),
    }
    fit(model, batch_at, loss, evaluate, config.fit, run, recipe, batch_setting="windows_per_batch")


def _check(config: TargetConfig) -> None:
    if not 0 <= config.repeated_windows < config.windows_per_batch:
        told = {name: f"is {getattr(config, name)}" for name in ("repeated_windows", "windows_per_batch")}
        raise SettingError(told, remedy="The first must be below the second.")
    if config.repeated_windows and config.window_tokens < 8:
        told = {name: f"is {getattr(config, name)}" for name in ("window_tokens", "repeated_windows")}
        raise SettingError(told, remedy="Repetition takes windows of 8 or more.")


def _with_repetition(batch: Tensor, repeated: int, rng: np.random.Generator) -> tuple[Tensor, ...]:
    """A batch whose last `repeated` windows repeat themselves: windows [rows, length + 1], starts and periods.

    The period is log-uniform, as loops of a few tokens are the likeliest.
    """
    if not repeated:
        return (batch,)
    longest = batch.shape[1] // 4
    periods = torch.from_numpy(np.exp(rng.uniform(0.0, np.log(longest), repeated)).astype(np.int64))
    starts = torch.from_numpy(rng.integers(longest + 1, 2 * longest + 1, repeated))
    tail = repeat_tail(batch[-repeated:], starts, periods)
    return torch.cat((batch[:-repeated], tail)), starts, periods


def _loss(model: Transformer, batch: Tensor, starts: Tensor | None = None, periods: Tensor | None = None) -> Tensor:
    """Mean loss of the windows; the last len(starts) of them repeat themselves."""
    count, logits, targets = len(batch), next_logits(model, batch), batch[:, 1:]
    if starts is None or periods is None:
        return next_token_loss(logits.flatten(0, 1), targets.flatten())
    plain = count - len(starts)
    learned = next_token_loss(logits[:plain].flatten(0, 1), targets[:plain].flatten())
    # A window's target j is its token j + 1.
    looped = repetition_loss(logits[plain:], targets[plain:], starts - 1, periods)
    return (plain * learned + len(starts) * looped) / count


@torch.no_grad()
def _heldout_loss(model: Transformer, heldout: Windows, config: TargetConfig) -> float:
    model.eval()
    size = config.windows_per_batch
    batches = max(1, min(config.evaluation_windows, heldout.tokens.shape[0]) // size)
    losses = [float(_loss(model, heldout.batch(0, index, size))) for index in range(batches)]
    return math.fsum(losses) / len(losses)
