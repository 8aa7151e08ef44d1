"""The recipe of an AR target: next-token prediction over windows of a token file.

Knows the shape of the bundled target. Documents are packed end to end; a window may see the end of another document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paceline.models.attention import dense_attention
from paceline.models.spec import Rope, Spec
from paceline.models.transformer import Transformer
from paceline.train.data import Windows, load_windows
from paceline.train.loop import FitConfig, fit
from paceline.train.losses import next_token_loss

__all__ = ["TargetConfig", "bundled_target_spec", "train_target"]


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """Settings of a target's training.

    Attributes:
        corpus: folder with train.npz and heldout.npz.
        window_tokens, windows_per_batch: one micro batch.
        evaluation_windows: held-out windows per evaluation.
    """

    corpus: Path
    fit: FitConfig
    window_tokens: int = 384
    windows_per_batch: int = 11
    evaluation_windows: int = 33


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
    """Train `model` in place; resumes from `run` where that holds a checkpoint."""
    windows = load_windows(config.corpus / "train.npz", config.window_tokens)
    heldout = load_windows(config.corpus / "heldout.npz", config.window_tokens)

    def batch_at(index: int) -> tuple[Tensor]:
        return (windows.batch(config.fit.seed, index, config.windows_per_batch),)

    def loss(batch: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        return _loss(model, batch), {}

    def evaluate() -> Mapping[str, float]:
        return {"heldout_loss": _heldout_loss(model, heldout, config)}

    fit(model, batch_at, loss, evaluate, config.fit, run)


def _loss(model: Transformer, batch: Tensor) -> Tensor:
    count, length = batch.shape[0], batch.shape[1] - 1
    positions = torch.arange(length).repeat(count)
    attend = dense_attention(count, model.spec.windows)
    hidden = model(batch[:, :-1].reshape(-1), positions, attend).hidden
    return next_token_loss(model.head(hidden), batch[:, 1:].reshape(-1))


@torch.no_grad()
def _heldout_loss(model: Transformer, heldout: Windows, config: TargetConfig) -> float:
    model.eval()
    size = config.windows_per_batch
    batches = max(1, min(config.evaluation_windows, heldout.tokens.shape[0]) // size)
    losses = [float(_loss(model, heldout.batch(0, index, size))) for index in range(batches)]
    return math.fsum(losses) / len(losses)
