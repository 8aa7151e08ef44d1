"""How many drafts should have been accepted? The exact law of shared noise, on the p and q of a run itself.

At a slot the target draws argmax(log p + g) and the drafter argmax(log q + g), with the same Gumbel noise g. Both give
v with probability 1 / sum_w max(p_w / p_v, q_w / q_v) (Gumbel coupling, arXiv:2408.07978); the sum over v lies between
(1 - TV) / (1 + TV) and 1 - TV. Rejection sampling (arXiv:2211.17192) accepts with sum_v min(p_v, q_v) = 1 - TV.

Why the agreements of one answer may be added up although rounds share noise. Let g_t be the noise of position t and
F_t what g up to t decides: the tokens up to t, hence every anchor and every round up to t. Consider the slot of
position t in the round with anchor a < t. Its q depends on the tokens up to a, its p on those before t, and whether
it is checked (all slots between agreed, the answer had not ended) on g before t: all three are known in F_{t-1}, of
which g_t is independent. So given F_{t-1} the slot agrees with exactly the law's probability P_t. No position is
checked twice: after a disagreement at t the target's token stands there and is the next anchor. Slots behind it were
drafted with their noise, but nobody looked at the outcome: which tokens stand before them, which q the next round has,
and whether it gets there do not depend on it, so when such a position is drafted again its g is as fresh as ever. So
sum(agreed - P) is a martingale with variance E sum P (1 - P), and (agreed - expected) / sqrt(sum P (1 - P)) is
asymptotically normal. Between answers the noise must differ: each needs a seed of its own.

What rejection sampling would have accepted in a round, from the same anchor, is a mean over its own drafts; but
sum over paths y of prod min(p, q) = E prod min(1, q(y) / p(y)) with y drawn from p, and the rest of the answer is such
a draw. So sum_k prod_{j <= k} min(1, q_j / p_j) along the answer estimates it without bias, slots beyond our own first
rejection included. Knows nothing of clocks and prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paceline.bench.forced import read_forced
from paceline.completion import Round
from paceline.decode.dflash import DFlash
from paceline.decode.processors import process
from paceline.decode.sampling import probabilities
from paceline.decode.sequence import Sequence, flat
from paceline.decode.tree import EMPTY, chain
from paceline.models.attention import Segment
from paceline.request import Sampling

if TYPE_CHECKING:
    from jaxtyping import Float, Float64

__all__ = ["Coupling", "agreement", "overlap", "recompute"]


def agreement(p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]) -> Float64[Tensor, " rows"]:
    """Pr[argmax(log p + g) = argmax(log q + g)] of each row, sum_v 1 / sum_w max(p_w / p_v, q_w / q_v).

    In order of falling p_w / q_w the first kind of term comes before the second, so running sums give every inner sum:
    n log n instead of n². Ids with p_v = 0 or q_v = 0 are never drawn by both.
    """
    p, q = p.double(), q.double()
    order = (p / q).nan_to_num(nan=0.0, posinf=torch.inf).argsort(-1, descending=True)  # 0 / 0 adds nothing anywhere
    p, q = p.gather(-1, order), q.gather(-1, order)
    inner = p.cumsum(-1) / p + (q.sum(-1, keepdim=True) - q.cumsum(-1)).clamp_min(0.0) / q
    return torch.where((p > 0) & (q > 0), 1.0 / inner, 0.0).sum(-1)


def overlap(p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]) -> Float64[Tensor, " rows"]:
    """What rejection sampling accepts of one draft, sum_v min(p_v, q_v) = 1 - TV."""
    return torch.minimum(p.double(), q.double()).sum(-1)


@dataclass(frozen=True, slots=True)
class Coupling:
    """Drafts of some answers, and what the laws say of them; sums, so that those of several answers add up.

    Attributes:
        rounds: how many.
        checked: drafts that were judged.
        agreed: of these, equal to the target's token.
        expected, variance: of `agreed`, by the law of shared noise.
        overlap: of the checked drafts, how many rejection sampling accepts on average.
        rejection: estimate of the drafts that rejection sampling accepts in all rounds, from the same anchors.
    """

    rounds: int = 0
    checked: int = 0
    agreed: int = 0
    expected: float = 0.0
    variance: float = 0.0
    overlap: float = 0.0
    rejection: float = 0.0

    def __add__(self, other: Coupling) -> Coupling:
        return Coupling(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def z(self) -> float:
        """Standard deviations between what was seen and what the law says; beyond 3 once in 370 sound runs."""
        return (self.agreed - self.expected) / math.sqrt(self.variance) if self.variance else 0.0

    def figures(self) -> dict[str, Any] | None:
        """As plain data, by round (`figures.DEFINITIONS`); None where no draft was checked."""
        if not self.checked:
            return None
        return {
            "accepted_per_round": self.agreed / self.rounds,
            "expected_per_round": self.expected / self.rounds,
            "z": self.z,
            "rejection_per_round": self.rejection / self.rounds,
            "share_of_rejection": self.agreed / self.rejection if self.rejection else None,
            "checked": self.checked,
            "accepted": self.agreed,
            "rejection_on_checked": self.overlap,
        }


@torch.inference_mode()
def recompute(
    decoder: DFlash, prompt: Many[int], sampling: Sampling, seed: int, tokens: Many[int], rounds: Many[Round]
) -> Coupling:
    """The laws on every checked draft of a finished answer of `decoder`; p and q come from one pass over the answer.

    Args:
        sampling: with a temperature: where the choice is greedy there is no chance.
        tokens: the answer, from the prompt pass on.
        rounds: all of its rounds, the last cut where the answer ended.
    """
    target, drafter = decoder.target, decoder.drafter
    sequence = decoder.open(prompt, sampling, seed)
    read = read_forced(target, sequence, tokens)
    assert read.features is not None, "the target of a drafter has taps"
    assert sequence.draft_cache is not None
    found, done = Coupling(), 1
    sequence.commit(tokens[:1])
    for round in rounds:
        context = sequence.draft_cache
        new = read.features[context.length : len(sequence.tokens) - 1]
        drafter.context.extend([([new], context)])
        ahead = tokens[done : done + len(round.proposed)]
        p = _target_law(decoder, sequence, read.hidden[done : done + len(ahead)], ahead)
        q = _draft_law(decoder, sequence, len(round.proposed))[: len(ahead)]
        found += _judged(round, ahead, p, q)
        done += len(round.committed)
        sequence.commit(round.committed)
    return found


def _target_law(decoder: DFlash, sequence: Sequence, hidden: Tensor, ahead: Many[int]) -> Float64[Tensor, "rows vocab"]:
    """From which the tokens `ahead` of the committed ones were drawn."""
    target = decoder.target
    scores = process(target.model.head(hidden), sequence.sampling, sequence.counts, chain(ahead[:-1]), target.banned())
    return probabilities(scores.double(), sequence.sampling)


def _draft_law(decoder: DFlash, sequence: Sequence, slots: int) -> Float64[Tensor, "slots vocab"]:
    """From which the drafter drew behind the newest token; its context is in the cache."""
    target, drafter = decoder.target, decoder.drafter
    assert sequence.draft_cache is not None
    mask, first = drafter.spec.mask_token_id, len(sequence.tokens) - 1
    tokens, positions = flat([[sequence.tokens[-1], *[mask] * slots]], [range(first, first + slots + 1)], target.device)
    attend = drafter.attention([Segment(len(tokens), sequence.draft_cache)])
    _, logits = drafter.read(tokens, positions, attend, [len(tokens)])
    scores = process(logits, sequence.sampling, sequence.counts, EMPTY, target.banned(mask))
    return probabilities(scores.double(), sequence.sampling)


def _judged(round: Round, ahead: Many[int], p: Tensor, q: Tensor) -> Coupling:
    """One round; p and q [rows, vocab] of the slots up to the end of the answer, where the tokens `ahead` stand."""
    checked = round.checked
    law = agreement(p[:checked], q[:checked])
    taken = torch.tensor(ahead, dtype=torch.int64, device=p.device).unsqueeze(-1)
    ratios = (q.gather(-1, taken) / p.gather(-1, taken)).clamp_max(1.0)
    return Coupling(
        rounds=1,
        checked=checked,
        agreed=round.accepted,
        expected=float(law.sum()),
        variance=float((law * (1.0 - law)).sum()),
        overlap=float(overlap(p[:checked], q[:checked]).sum()),
        rejection=float(ratios.cumprod(0).sum()),
    )
