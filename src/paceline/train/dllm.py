"""The recipe of a diffusion language model: to find masked tokens from all that stands around them.

Masked-diffusion pre-training (LLaDA, arXiv 2502.09992, equation 3). From random weights, or from an autoregressive
model whose attention is opened to both sides (Dream, arXiv 2508.15487): there, row i goes on predicting token i + 1,
which is what `logit_shift` says. Rows are of another length in every batch, so that short answers are not strange.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.errors import ConfigError
from paceline.models.attention import dense_attention
from paceline.models.transformer import Transformer
from paceline.train.data import Documents, fingerprint, load_documents
from paceline.train.fit.loop import fit
from paceline.train.losses import token_nats
from paceline.train.masking import Masked, masked_rows, text_rows
from paceline.train.options import DllmConfig

__all__ = ["check_rows", "draw_batch", "heldout_losses", "masked_logits", "masked_loss", "train_dllm", "weighted_nats"]

_STEP = 32
"""Rows are multiples of so many tokens long."""


def train_dllm(model: Transformer, config: DllmConfig, end_id: int, run: Path) -> None:
    """Train `model`, which must be a diffusion model, in place; resumes from `run` where that holds a checkpoint.

    Raises:
        ConfigError: a batch of fewer tokens than a row; or as `fit`.
        TrainingError: no corpus; or as `fit`.
    """
    check_rows(config)
    train, heldout = (load_documents(config.corpus / f"{name}.npz") for name in ("train", "heldout"))

    def batch_at(index: int) -> tuple[Tensor, ...]:
        batch = draw_batch(train, config, end_id, config.run_share, np.random.default_rng((config.fit.seed, 6, index)))
        return batch.tokens, batch.masked, batch.weights

    def loss(tokens: Tensor, masked: Tensor, weights: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        return masked_loss(model, Masked(tokens, masked, weights)), {}

    def evaluate() -> Mapping[str, float]:
        return heldout_losses(model, heldout, config, end_id)

    recipe = {
        "tokens_per_batch": config.tokens_per_batch,
        "rows": [config.shortest_row, config.longest_row],
        "runs": [config.run_share, config.longest_run],
        "tokens": fingerprint(torch.from_numpy(train.tokens).unsqueeze(0)),
    }
    fit(model, batch_at, loss, evaluate, config.fit, run, recipe, batch_setting="tokens_per_batch")


def check_rows(config: DllmConfig) -> None:
    """Refuse rows that do not fit a batch.

    Raises:
        ConfigError: a batch of fewer tokens than a row.
    """
    if config.tokens_per_batch < config.longest_row:
        told = f"tokens_per_batch is {config.tokens_per_batch}, longest_row is {config.longest_row}."
        raise ConfigError(told, remedy="A batch must hold one row at least.")


def masked_loss(model: Transformer, batch: Masked) -> Tensor:
    """The weighted loss of the masked tokens, in nats per token of the text."""
    logits, places = masked_logits(model, batch)
    return weighted_nats(logits, places, batch)


def masked_logits(model: Transformer, batch: Masked) -> tuple[Tensor, Tensor]:
    """What the model says of each masked token, which alone go through its head.

    Returns:
        Logits [masked, vocab], and the places [masked] of these tokens in the flattened batch.
    """
    diffusion = model.spec.diffusion
    assert diffusion is not None, "an autoregressive model has no mask"
    rows, length = batch.tokens.shape
    shown = batch.tokens.masked_fill(batch.masked, diffusion.mask_token_id)
    attend = dense_attention(rows, model.spec.windows, causal=False)
    hidden = model(shown.flatten(), torch.arange(length).repeat(rows), attend).hidden
    places = batch.masked.flatten().nonzero().squeeze(1)
    return model.head(hidden[places - diffusion.logit_shift]), places


def weighted_nats(logits: Tensor, places: Tensor, batch: Masked) -> Tensor:
    """The loss of a batch of which `logits` tell the tokens at `places`: the weighted sum, by row."""
    nats = token_nats(logits, batch.tokens.flatten()[places])
    return (nats * batch.weights.flatten()[places]).sum() / len(batch.tokens)


def draw_batch(
    documents: Documents, config: DllmConfig, end_id: int, run_share: float, rng: np.random.Generator
) -> Masked:
    """Rows of one random length, of which `run_share` have lost a run of tokens."""
    length = _STEP * int(rng.integers(config.shortest_row // _STEP, config.longest_row // _STEP + 1))
    tokens = text_rows(documents, config.tokens_per_batch // length, length, end_id, rng)
    return masked_rows(tokens, end_id, run_share, config.longest_run, rng)


@torch.no_grad()
def heldout_losses(model: Transformer, documents: Documents, config: DllmConfig, end_id: int) -> Mapping[str, float]:
    """Both kinds of loss on the same pieces of held-out text in every evaluation."""
    model.eval()
    figures = {}
    for name, share in (("heldout_scattered", 0.0), ("heldout_runs", 1.0)):
        rng = np.random.default_rng(7)
        rows = config.tokens_per_batch // config.longest_row
        batches = max(1, config.evaluation_rows // rows)
        losses = []
        for _ in range(batches):
            tokens = text_rows(documents, rows, config.longest_row, end_id, rng)
            losses.append(float(masked_loss(model, masked_rows(tokens, end_id, share, config.longest_run, rng))))
        figures[name] = math.fsum(losses) / batches
    return figures
