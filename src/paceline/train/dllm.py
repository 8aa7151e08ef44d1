"""The recipe of a diffusion language model: to find masked tokens from all that stands around them.

Masked-diffusion pre-training (LLaDA, arXiv 2502.09992, equation 3). From random weights, or from an autoregressive
model whose attention is opened to both sides (Dream, arXiv 2508.15487): there, row i goes on predicting token i + 1,
which is what `logit_shift` says. Rows are of another length in every batch, so that short answers are not strange.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.models.attention import dense_attention
from paceline.models.diffusion_spec import Diffusion
from paceline.models.transformer import Transformer
from paceline.train.data import Documents, fingerprint, load_splits
from paceline.train.diffusion_options import ROW_STEP, DllmConfig
from paceline.train.fit.loop import fit
from paceline.train.losses import token_nats
from paceline.train.masking import LONGEST_FILL, Masked, masked_rows, text_rows
from paceline.train.shape import shape_of

__all__ = ["draw_batch", "heldout_losses", "masked_logits", "masked_loss", "rows_recipe", "train_dllm", "weighted_nats"]


def train_dllm(model: Transformer, config: DllmConfig, end_id: int, run: Path, start: int = 0) -> None:
    """Train `model`, which must be a diffusion model, in place; resumes from `run` where that holds a checkpoint.

    Args:
        end_id: the token behind the end of a document.
        start: checksum of the weights that `model` begins with, 0 for random ones: a run is resumed only with the same.

    Raises:
        ConfigError: as `fit`.
        TrainingError: no corpus, or one without text; or as `fit`.
    """
    train, heldout = load_splits(config.corpus)

    def batch_at(index: int) -> tuple[Tensor, ...]:
        batch = draw_batch(train, config, end_id, config.run_share, np.random.default_rng((config.fit.seed, 6, index)))
        return batch.tokens, batch.masked, batch.weights

    def loss(tokens: Tensor, masked: Tensor, weights: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        return masked_loss(model, Masked(tokens, masked, weights)), {}

    def evaluate() -> Mapping[str, float]:
        return heldout_losses(model, heldout, config, end_id)

    kept = {"diffusion": asdict(_diffusion_of(model)), "shape": shape_of(model.spec), "start": start}
    recipe = {**rows_recipe(config, train, end_id), **kept}
    fit(model, batch_at, loss, evaluate, config.fit, run, recipe, batch_setting=config.batch[0])


def rows_recipe(config: DllmConfig, documents: Documents, end_id: int) -> dict[str, Any]:
    """What a run that learns from such rows of these documents depends on, beside its models."""
    setting, size = config.batch
    return {
        setting: size,
        "rows": [config.shortest_row, config.longest_row, LONGEST_FILL],
        "runs": [config.run_share, config.longest_run],
        "diffusion_steps": config.diffusion_steps,
        "tokens": fingerprint(torch.from_numpy(documents.tokens).unsqueeze(0)),
        "end_id": end_id,
    }


def masked_loss(model: Transformer, batch: Masked) -> Tensor:
    """The weighted loss of the masked tokens, in nats per token of the text."""
    logits, places = masked_logits(model, batch)
    return weighted_nats(logits, places, batch)


def masked_logits(model: Transformer, batch: Masked) -> tuple[Tensor, Tensor]:
    """What the model says of each masked token, which alone go through its head.

    Returns:
        Logits [masked, vocab], and the places [masked] of these tokens in the flattened batch.
    """
    diffusion = _diffusion_of(model)
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
    length = ROW_STEP * int(rng.integers(config.shortest_row // ROW_STEP, config.longest_row // ROW_STEP + 1))
    tokens = text_rows(documents, config.rows_of(length), length, end_id, rng)
    return masked_rows(tokens, end_id, run_share, config.longest_run, rng, config.diffusion_steps)


def _diffusion_of(model: Transformer) -> Diffusion:
    assert model.spec.diffusion is not None, "an autoregressive model has no mask"
    return model.spec.diffusion


@torch.no_grad()
def heldout_losses(model: Transformer, documents: Documents, config: DllmConfig, end_id: int) -> Mapping[str, float]:
    """Both kinds of loss on the same pieces of held-out text in every evaluation, whatever the noise levels are."""
    model.eval()
    figures = {}
    starts = range(0, config.evaluation_rows, config.rows_of(config.longest_row))
    parts = [min(starts.step, config.evaluation_rows - start) for start in starts]
    for name, share in (("heldout_scattered", 0.0), ("heldout_runs", 1.0)):
        rng = np.random.default_rng(7)
        nats = []
        for rows in parts:
            tokens = text_rows(documents, rows, config.longest_row, end_id, rng)
            loss = masked_loss(model, masked_rows(tokens, end_id, share, config.longest_run, rng))
            nats.append(rows * float(loss))
        figures[name] = math.fsum(nats) / config.evaluation_rows
    return figures
