"""What training minimises, as pure functions on logits.

Knows nothing of models or batches. Sources stand at each function.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["next_token_loss", "slot_weights", "weighted_cross_entropy"]


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats of logits [rows, vocab] against ids [rows]."""
    return F.cross_entropy(logits.float(), targets)


def slot_weights(slots: Tensor, gamma: float) -> Tensor:
    """exp(-(k - 1) / gamma) for slots k = 1, 2, … of a block, as a wrong early slot costs all later ones.

    Source: arXiv 2602.06036.
    """
    return torch.exp(-(slots.float() - 1.0) / gamma)


def weighted_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy in nats of logits [rows, vocab] against ids [rows], averaged with `weights` [rows]."""
    losses = F.cross_entropy(logits.float(), targets, reduction="none")
    return (losses * weights).sum() / weights.sum().clamp_min(1e-9)
