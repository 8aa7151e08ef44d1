"""What a causal model says along whole rows of text. Knows nothing of losses."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.models.attention import dense_attention
from paceline.models.transformer import Transformer

__all__ = ["next_logits"]


def next_logits(model: Transformer, tokens: Tensor) -> Tensor:
    """Logits behind each token but the last of rows [rows, length]: [rows, length - 1, vocab]."""
    rows, length = tokens.shape[0], tokens.shape[1] - 1
    attend = dense_attention(rows, model.spec.windows)
    hidden = model(tokens[:, :-1].reshape(-1), torch.arange(length).repeat(rows), attend).hidden
    logits: Tensor = model.head(hidden)
    return logits.view(rows, length, -1)
