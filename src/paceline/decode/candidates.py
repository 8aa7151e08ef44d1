"""What may stand in the slots of a block: the likeliest tokens of each, and how likely one is behind another.

Does not know where the scores come from, nor what a tree of candidates is good for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from paceline import native
from paceline.decode.tree import Expand, Proposal, Ranked, best_first
from paceline.models.selector import CandidateSelector

__all__ = ["Candidates", "behind_each_other", "grown", "independent"]

_NOTHING = Ranked((), ())


class Candidates(NamedTuple):
    """The likeliest tokens of every slot, in falling order.

    Attributes:
        ids: [slots, width].
        log_probs: of being what the target will draw there, [slots, width]; -inf for what may not be drawn.
        scores: of the drafter, [slots, width], before temperature and noise.
        noise: of the draws at these places, [slots, width]; 0 where there is none.
        hidden: states of the slots, [slots, hidden].
    """

    ids: Tensor
    log_probs: Tensor
    scores: Tensor
    noise: Tensor
    hidden: Tensor


def independent(found: Candidates) -> Expand:
    """Every slot for itself."""
    slots = [*_ranked(found.ids, found.log_probs), _NOTHING]
    return lambda path: slots[len(path)]


def grown(found: Candidates, nodes: int, candidates: int, least: float) -> Proposal:
    """The tree of what slots say each for itself; see `best_first`."""
    if not native.applies_to(found.log_probs):
        return best_first(independent(found), nodes, candidates, least)
    tokens, parents, scores = native.grown(found.ids, found.log_probs, nodes, candidates, least)
    return Proposal(tuple(tokens), tuple(parents), tuple(scores))


def behind_each_other(
    found: Candidates, selector: CandidateSelector, anchor: int, heat: float, spread: float
) -> Expand:
    """Every slot given the token before it, as a DFlash 2 drafter scores candidates.

    Args:
        anchor: the token before the first slot.
        heat: the temperature; 1 where the choice is greedy.
        spread: see `sampling.ranked`; the probabilities are those among the candidates.
    """
    before = torch.cat((torch.full_like(found.ids[:1], anchor), found.ids[:-1]))
    pairs = selector.pair_scores(found.hidden, before, found.ids).to(found.scores.dtype)
    possible = (found.log_probs > -math.inf).unsqueeze(1)
    scores = (found.scores.unsqueeze(1) + pairs) / heat + found.noise.unsqueeze(1)
    laws = (scores.masked_fill(~possible, -math.inf) / spread).log_softmax(-1)
    values, order = laws.sort(dim=-1, descending=True, stable=True)
    ids = found.ids.unsqueeze(1).expand_as(order).gather(-1, order)
    places = [{token: place for place, token in enumerate(row)} for row in before.tolist()]
    rows = iter(_ranked(ids.flatten(0, 1), values.flatten(0, 1)))  # fetched from the device once
    slots = [[next(rows) for _ in range(found.ids.shape[1])] for _ in places]

    def expand(path: tuple[int, ...]) -> Ranked:
        slot = len(path)
        return slots[slot][places[slot][path[-1] if path else anchor]] if slot < len(slots) else _NOTHING

    return expand


def _ranked(ids: Tensor, values: Tensor) -> list[Ranked]:
    """Rows as plain lists, without what may not be drawn."""
    counts = (values > -math.inf).sum(-1).tolist()
    rows = zip(ids.tolist(), values.tolist(), counts, strict=True)
    return [Ranked(tokens[:count], scores[:count]) for tokens, scores, count in rows]
