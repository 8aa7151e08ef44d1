"""What training minimises, as pure functions on logits.

Knows nothing of models or batches. Sources stand at each function.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["next_token_loss", "repetition_loss", "slot_weights", "weighted_cross_entropy"]


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats of logits [rows, vocab] against ids [rows]."""
    return F.cross_entropy(logits.float(), targets)


def repetition_loss(
    logits: Tensor, targets: Tensor, starts: Tensor, periods: Tensor, kept_share: float = 0.5
) -> Tensor:
    """Teaches a model not to grow surer each time it says the same again, so that greedy text does not loop.

    Mean of -log(1 - |p_t - kept_share * p_(t - period)|) over the repeated tokens: each repetition is to be half as
    likely as the one before, which is not differentiated.

    Source: DITTO, arXiv 2206.02369, eq. 3.

    Args:
        logits: [rows, length, vocab]; targets: [rows, length], of which those from `starts` on repeat what stands
            `periods` before them. Both are [rows], starts >= periods.
    """
    right = targets.unsqueeze(-1)
    probabilities = logits.float().log_softmax(-1).gather(-1, right).squeeze(-1).exp()
    index = torch.arange(targets.shape[1])
    before = probabilities.detach().gather(1, (index - periods.unsqueeze(1)).clamp_min(0))
    losses = -torch.log1p(-(probabilities - kept_share * before).abs().clamp_max(1 - 1e-4))
    repeated = (index >= starts.unsqueeze(1)).float()
    return (losses * repeated).sum() / repeated.sum()


def slot_weights(slots: Tensor, gamma: float) -> Tensor:
    """exp(-(k - 1) / gamma) for slots k = 1, 2, … of a block, as a wrong early slot costs all later ones.

    Source: arXiv 2602.06036.
    """
    return torch.exp(-(slots.float() - 1.0) / gamma)


def weighted_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy in nats of logits [rows, vocab] against ids [rows], averaged with `weights` [rows]."""
    losses = F.cross_entropy(logits.float(), targets, reduction="none")
    return (losses * weights).sum() / weights.sum().clamp_min(1e-9)
