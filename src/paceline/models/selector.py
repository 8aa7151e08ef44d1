"""What lets a token of a block depend on the one before it: the candidate selector of a DFlash 2 drafter.

The likeliest tokens of a slot are its candidates. Behind a token p, candidate c scores

    logit_c + <A[p] * projection(h), B[c]>

with h the slot's hidden state, A and B the codebooks of predecessors and of successors. Does not know how a path
through the candidates is searched, but for the plainest way.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.models.drafter_spec import DFlash2
from paceline.models.linear import Linear

__all__ = ["CandidateSelector"]


class CandidateSelector(nn.Module):
    """The pair terms. All its methods are pure; a new one has none, as the codebook of successors is 0.

    Attributes:
        predecessor_codebook, successor_codebook: [vocab, rank].
        top_k: candidates per slot.
    """

    def __init__(self, vocab_size: int, hidden_size: int, spec: DFlash2) -> None:
        super().__init__()
        self.top_k = spec.selector_top_k
        self.predecessor_codebook = nn.Parameter(torch.empty(vocab_size, spec.selector_rank))
        self.successor_codebook = nn.Parameter(torch.zeros(vocab_size, spec.selector_rank))
        self.hidden_projection = Linear(hidden_size, spec.selector_rank)
        nn.init.normal_(self.predecessor_codebook)

    def pair_scores(self, hidden: Tensor, previous_ids: Tensor, candidate_ids: Tensor) -> Tensor:
        """What is added to the logits of candidates behind possible predecessors, all of them in one product.

        Args:
            hidden: [..., hidden], slots after the drafter's final norm.
            previous_ids: [..., p]; candidate_ids: [..., k].

        Returns:
            [..., p, k].
        """
        state = self.hidden_projection(hidden.flatten(0, -2)).view(*hidden.shape[:-1], 1, -1)
        return (self.predecessor_codebook[previous_ids] * state) @ self.successor_codebook[candidate_ids].mT

    def select(self, hidden: Tensor, logits: Tensor, anchor_ids: Tensor) -> Tensor:
        """The tokens of whole blocks, from left to right: in each slot the best candidate behind the one chosen before.

        Args:
            hidden: [..., slots, hidden], without the anchors' rows; logits: [..., slots, vocab], of the same slots.
            anchor_ids: [...].

        Returns:
            Ids, [..., slots].
        """
        values, candidates = logits.topk(self.top_k)
        anchors = anchor_ids[..., None, None].expand_as(candidates[..., :1, :])
        before = torch.cat((anchors, candidates[..., :-1, :]), -2)
        scores = values.unsqueeze(-2) + self.pair_scores(hidden, before, candidates)
        best = scores.argmax(-1)  # [..., slots, k]: which candidate, behind each one of the slot before
        chosen = [best[..., 0, :1]]
        for slot in range(1, best.shape[-2]):
            chosen.append(best[..., slot, :].gather(-1, chosen[-1]))
        return candidates.gather(-1, torch.stack(chosen, -2)).squeeze(-1)
