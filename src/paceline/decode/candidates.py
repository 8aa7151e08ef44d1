"""What may stand in the slots of a block: the likeliest tokens of each, and how likely one is behind another.

Does not know where the scores come from, nor what a tree of candidates is good for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from paceline import native
from paceline.decode.tree import Expand, Proposal, Ranked, best_first
from paceline.models.selector import CandidateSelector

__all__ = ["Candidates", "Evidence", "behind_each_other", "grown", "independent", "joined"]

_NOTHING = Ranked((), ())


class Evidence(NamedTuple):
    """What a selector goes by, beside the order of the candidates.

    Attributes:
        scores: of the drafter, [slots, width], before temperature and noise.
        noise: of the draws at these places, [slots, width]; 0 where there is none.
        hidden: states of the slots, [slots, hidden].
    """

    scores: Tensor
    noise: Tensor
    hidden: Tensor


class Candidates(NamedTuple):
    """The likeliest tokens of every slot, in falling order.

    Attributes:
        ids: [slots, width].
        log_probs: of being what the target will draw there, [slots, width]; -inf for what may not be drawn.
        evidence: where a selector ranks them anew.
    """

    ids: Tensor
    log_probs: Tensor
    evidence: Evidence | None = None

    def at(self, slot: int) -> Candidates:
        """Those of one slot."""
        own = slice(slot, slot + 1)
        evidence = None if self.evidence is None else Evidence(*(each[own] for each in self.evidence))
        return Candidates(self.ids[own], self.log_probs[own], evidence)


def joined(parts: Sequence[Candidates]) -> Candidates:
    """The slots of all parts, one behind the other."""
    known = [part.evidence for part in parts if part.evidence is not None]
    evidence = Evidence(*map(torch.cat, zip(*known, strict=True))) if known else None
    return Candidates(torch.cat([part.ids for part in parts]), torch.cat([part.log_probs for part in parts]), evidence)


def independent(found: Candidates) -> Expand:
    """Every slot for itself."""
    slots = [*_ranked(found.ids, found.log_probs), _NOTHING]
    return lambda path: slots[len(path)]


def grown(found: Candidates, nodes: int, candidates: int, least: float) -> Proposal:
    """The tree of what slots say each for itself; see `best_first`."""
    if not native.applies_to(found.log_probs):
        tree = best_first(independent(found), nodes, candidates, least)
        return replace(tree, likeliest=tuple(found.ids[:, 0].tolist()))
    tokens, parents, scores = native.grown(found.ids, found.log_probs, nodes, candidates, least)
    return Proposal(tuple(tokens), tuple(parents), tuple(scores), tuple(found.ids[:, 0].tolist()))


def behind_each_other(
    found: Candidates, selector: CandidateSelector, anchor: int, heat: float, spread: float
) -> Expand:
    """Every slot given the token before it, as a DFlash 2 drafter scores candidates.

    Args:
        anchor: the token before the first slot.
        heat: the temperature; 1 where the choice is greedy.
        spread: see `sampling.ranked`; the probabilities are those among the candidates.
    """
    evidence = found.evidence
    assert evidence is not None, "whoever ranked them knew of the selector"
    before = torch.cat((torch.full_like(found.ids[:1], anchor), found.ids[:-1]))
    pairs = selector.pair_scores(evidence.hidden, before, found.ids).to(evidence.scores.dtype)
    possible = (found.log_probs > -math.inf).unsqueeze(1)
    scores = (evidence.scores.unsqueeze(1) + pairs) / heat + evidence.noise.unsqueeze(1)
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
