"""What training minimises, as pure functions on logits.

Knows nothing of models or batches. Sources stand at each function.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "bucketed_divergence",
    "candidate_nats",
    "decay_weights",
    "divergence",
    "log_probabilities_of",
    "next_token_loss",
    "pace_weights",
    "repetition_loss",
    "token_nats",
    "truncated_divergence",
    "unlikelihood_loss",
    "weighted_mean",
    "with_target",
]


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


def unlikelihood_loss(logits: Tensor, targets: Tensor, marked: Tensor) -> Tensor:
    """Mean of -log(1 - p) over the marked tokens: what makes them less likely. 0 where none is marked.

    Source: arXiv 1908.04319, eq. 6.

    Args:
        logits: [..., vocab]; targets: [...], ids; marked: [...], bool.
    """
    probabilities = torch.exp(-token_nats(logits, targets))
    return weighted_mean(-torch.log1p(-probabilities.clamp_max(1 - 1e-4)), marked.float())


def token_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats of logits [..., vocab] against ids [...], token by token."""
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction="none").view(targets.shape)


def with_target(candidates: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Candidates [..., k] and the right tokens [...] as one set: ids, and which of them count, each [..., k + 1].

    The right token stands last, and where it is a candidate, that one does not count.
    """
    right = targets.unsqueeze(-1)
    return torch.cat((candidates, right), -1), torch.cat((candidates != right, torch.ones_like(right).bool()), -1)


def candidate_nats(scores: Tensor, counted: Tensor) -> Tensor:
    """Cross-entropy in nats of the last candidate among those that count, slot by slot: [..., k + 1] -> [...]."""
    known = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    return known.masked_fill(~counted, -torch.inf).logsumexp(-1) - known[..., -1]


def divergence(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """KL(teacher || student) in nats of two sets of logits [..., vocab], token by token."""
    teacher = teacher_logits.float().log_softmax(-1)
    return (teacher.exp() * (teacher - logits.float().log_softmax(-1))).sum(-1)


def truncated_divergence(logits: Tensor, ids: Tensor, log_probabilities: Tensor) -> Tensor:
    """KL(teacher || student) in nats, token by token, of a teacher of whom only some tokens are known.

    All other tokens are one bucket, for teacher and student alike, so this is at most `divergence`, and equal to it
    where all tokens are known.

    Args:
        logits: [..., vocab], the student's.
        ids: [..., k], different tokens; log_probabilities: [..., k], the teacher's, in nats.
    """
    return bucketed_divergence(log_probabilities_of(logits, ids), log_probabilities)


def log_probabilities_of(logits: Tensor, ids: Tensor) -> Tensor:
    """Of some tokens, in nats: logits [..., vocab], ids [..., k] -> [..., k]. One pass over the vocabulary."""
    scores = logits.float()
    return scores.gather(-1, ids.long()) - scores.logsumexp(-1, keepdim=True)


def bucketed_divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) in nats of two distributions, of which the same tokens [..., k] are known.

    The others are one bucket. What is left for it is what the known ones do not sum to: rounded log-probabilities may
    sum to a little more than 1, it is empty then; and a student's bucket counts as 1e-5 at least, since single
    precision does not know it better.
    """
    known = teacher.float()
    distance = (known.exp() * (known - student)).sum(-1)
    left = (1.0 - known.exp().sum(-1)).clamp_min(0.0)
    return distance + torch.xlogy(left, left) - left * torch.log((1.0 - student.exp().sum(-1)).clamp_min(1e-5))


def decay_weights(slots: Tensor, gamma: float) -> Tensor:
    """exp(-(k - 1) / gamma) for slots k = 1, 2, … of a block, as a wrong early slot costs all later ones.

    Source: arXiv 2602.06036.
    """
    return torch.exp(-(slots.float() - 1.0) / gamma)


def pace_weights(right: Tensor, alpha: float = 0.5) -> Tensor:
    """D-PACE: what a slot is worth, as the expected number of accepted drafts that need it.

    weight_j = sum over m >= j of the product over i <= m of q_i, where q = (1 - alpha) * right + alpha; detached, so
    that only the losses are differentiated. A slot behind one that is rarely right weighs little; it gains weight as
    those before it are learnt. Source: arXiv 2605.18810.

    Args:
        right: [..., slots], the probability that the drafter gives the right token of each slot.
    """
    reached = ((1 - alpha) * right.detach() + alpha).cumprod(-1)
    return reached.flip(-1).cumsum(-1).flip(-1)


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Mean of losses with weights of the same shape; 0 where no weight is left."""
    return (losses * weights).sum() / weights.sum().clamp_min(1e-9)
