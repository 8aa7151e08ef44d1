"""From masked blocks to proposals: the drafter's passes over a block, and the tree of what it holds likely.

    denoise   each pass says what may stand in the masked slots; the surest slots are fixed, the others masked again
    rank      the most probable tokens of each slot, under the noise that the target will draw with
    grow      the most probable prefixes of them, as one tree

The noise is part of the drafter's scores, so candidates gather around what the target will draw, and not around what is
likely on average. Does not know how proposals are judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from paceline.decode.candidates import Candidates, behind_each_other, grown, independent, joined
from paceline.decode.rescoring import Joint, rescored
from paceline.decode.sampling import is_greedy
from paceline.decode.sequence import Sequence
from paceline.decode.slots import Slots
from paceline.decode.speculation import Plan, Speculation, spread
from paceline.decode.target import Target
from paceline.decode.tree import EMPTY, Expand, Proposal, best_first, chain, prune, strongest
from paceline.models.drafter import Drafter
from paceline.models.selector import CandidateSelector

__all__ = ["Drafting"]

_SURE = math.log(0.9)
"""A pass is the last where every slot that it leaves open is as sure as that."""

_POOL = 2
"""So many times the nodes are weighed anew where the best of them will be read."""


class _Asked(NamedTuple):
    """A sequence that is to draft.

    Attributes:
        slots: how deep.
        steps: in how many passes at most.
        least: how probable a draft has to be.
        chain: only the drafter's own choices are wanted.
    """

    sequence: Sequence
    slots: int
    steps: int
    least: float
    chain: bool


@dataclass(slots=True)
class _Block:
    """The block of one sequence while it is denoised.

    Attributes:
        asked: whose it is.
        row: the anchor, then the tokens fixed so far, and masks.
        open: the slots, from 0, that are masked.
        found: of each slot that is fixed, its candidates.
        whole: those of all slots, where one pass fixed all of them.
        surprise: of each token fixed, in nats.
    """

    asked: _Asked
    row: list[int]
    open: list[int]
    found: dict[int, Candidates] = field(default_factory=dict)
    whole: Candidates | None = None
    surprise: list[float] = field(default_factory=list)

    @property
    def perplexity(self) -> float:
        return math.exp(sum(self.surprise) / len(self.surprise)) if self.surprise else 1.0

    def fix(self, slots: Many[int], ranks: Candidates) -> None:
        """Fix some of the open slots, and in the first pass what the last round left: the one candidate of its slot."""
        self._carry(ranks)
        for slot in slots:
            self.found[slot] = ranks.at(slot)
            self.row[slot + 1] = int(ranks.ids[slot, 0])

    def _carry(self, ranks: Candidates) -> None:
        for slot in set(range(self.asked.slots)) - self.found.keys() - set(self.open):
            own = ranks.at(slot)
            alone = torch.full_like(own.log_probs, -torch.inf)
            alone[0, 0] = 0.0
            self.found[slot] = own._replace(ids=torch.full_like(own.ids, self.row[slot + 1]), log_probs=alone)

    @property
    def candidates(self) -> Candidates:
        """Of all slots, once all are fixed."""
        if self.whole is not None:
            return self.whole
        return joined([self.found[slot] for slot in range(self.asked.slots)])


@dataclass(frozen=True, slots=True)
class Drafting:
    """Drafts for many sequences at once.

    Attributes:
        joint: weighs candidates anew; None leaves them as the drafter has them.
        noisy: rank with the target's noise; without it a tree gains less, which is what the sweep shows.
        selecting: let the selector of a DFlash 2 drafter rank; the same.
        scored: say how likely the drafts of a chain are, too, which takes a little longer.
    """

    target: Target
    drafter: Drafter
    settings: Speculation
    joint: Joint | None = None
    noisy: bool = True
    selecting: bool = True
    scored: bool = False

    def propose(self, sequences: Many[Sequence], plans: Many[Plan]) -> list[Proposal]:
        """A proposal for each sequence, no deeper than tokens may still be committed.

        Near its limit an answer gets a shorter block, as in the reference implementation.
        """
        asked = [
            _Asked(sequence, min(plan.block_size - 1, sequence.remaining_tokens), plan.steps, plan.least, plan.chain)
            for sequence, plan in zip(sequences, plans, strict=True)
        ]
        drafting = [each for each in asked if each.slots]
        found = iter(self._way(drafting)(drafting) if drafting else ())
        return [next(found) if each.slots else EMPTY for each in asked]

    def _way(self, asked: Many[_Asked]) -> Callable[[Many[_Asked]], list[Proposal]]:
        """The shortest one: all come to the same where more than one is open."""
        weighed = self._selector is not None or self.joint is not None
        if weighed or any(each.steps > 1 or (self.settings.overlap and each.sequence.carried) for each in asked):
            return self._denoised
        alone = self.settings.is_plain or all(each.chain for each in asked)
        return self._chains if alone and self.noisy and not self.scored else self._at_once

    @property
    def may_chain(self) -> bool:
        """Whether a plan may ask for chains: where trees would be drafted otherwise, in one way or the other."""
        rules = self._selector is not None or self.joint is not None or self.settings.overlap > 0
        return self.settings.may_branch and not rules

    @property
    def _selector(self) -> CandidateSelector | None:
        return self.drafter.selector if self.selecting else None

    def _chains(self, asked: Many[_Asked]) -> list[Proposal]:
        """The drafter's own choice in each slot of masked blocks, in one pass."""
        return list(map(chain, self._slots.chosen(*self._masked(asked))))

    def _at_once(self, asked: Many[_Asked]) -> list[Proposal]:
        """Trees of what one pass says of masked blocks."""
        wide = spread(self.settings, 1, 1, 1.0)
        ranks = self._slots.ranked(*self._masked(asked), [wide] * len(asked))
        return self._pruned([grown(own, *self._limits(each)) for each, own in zip(asked, ranks, strict=True)])

    def _masked(self, asked: Many[_Asked]) -> tuple[list[Sequence], list[list[int]]]:
        mask = self.drafter.spec.mask_token_id
        blocks = [[each.sequence.tokens[-1], *[mask] * each.slots] for each in asked]
        return [each.sequence for each in asked], blocks

    def _denoised(self, asked: Many[_Asked]) -> list[Proposal]:
        """What the settings ask for."""
        blocks = [self._opened(each) for each in asked]
        for step in range(1, max(each.steps for each in asked) + 1):
            left = [block for block in blocks if block.open]
            if left:
                self._denoise(left, step)
        return self._pruned(self._grown(blocks) if self.joint is None else self._weighed(blocks, self.joint))

    def _pruned(self, proposals: list[Proposal]) -> list[Proposal]:
        threshold = self.settings.pruning_threshold
        return [prune(proposal, threshold) for proposal in proposals] if threshold else proposals

    @property
    def _slots(self) -> Slots:
        wanted, selector = min(self.settings.candidates, self.settings.max_nodes), self._selector
        width = wanted if selector is None else max(wanted, selector.top_k)
        return Slots(self.target, self.drafter, width, self.noisy, selector)

    def _opened(self, asked: _Asked) -> _Block:
        """A block of masks, but for what the last round left."""
        carried = asked.sequence.carried[: min(asked.slots - 1, self.settings.overlap)]
        masks = [self.drafter.spec.mask_token_id] * (asked.slots - len(carried))
        return _Block(asked, [asked.sequence.tokens[-1], *carried, *masks], list(range(len(carried), asked.slots)))

    def _denoise(self, blocks: Many[_Block], step: int) -> None:
        """One pass over the blocks that have masks, and fix what is surest; in the last pass, all."""
        spreads = [spread(self.settings, step, block.asked.steps, block.perplexity) for block in blocks]
        own = [block.asked.sequence for block in blocks], [block.row for block in blocks]
        for block, ranks in zip(blocks, self._slots.ranked(*own, spreads), strict=True):
            best = ranks.log_probs[:, 0].tolist()
            surest = sorted(block.open, key=lambda slot: -best[slot])
            count = math.ceil(len(surest) / (block.asked.steps - step + 1))
            if all(best[slot] >= _SURE for slot in surest[count:]):
                count = len(surest)
            if count == block.asked.slots:
                block.whole = ranks
            else:
                block.fix(surest[:count], ranks)
            block.surprise += [-best[slot] for slot in surest[:count]]
            block.open = sorted(surest[count:])

    def _limits(self, asked: _Asked) -> tuple[int, int, float]:
        """Nodes, candidates, and how probable a node has to be."""
        if asked.chain:
            return asked.slots, 1, 0.0
        return self._nodes(asked.slots), self.settings.candidates, asked.least

    def _nodes(self, slots: int) -> int:
        return self.settings.max_nodes if self.settings.candidates > 1 else slots

    def _expand(self, block: _Block) -> Expand:
        """What may stand in the slots of a block."""
        sequence, steps = block.asked.sequence, block.asked.steps
        if self._selector is None:
            return independent(block.candidates)
        heat = 1.0 if is_greedy(sequence.sampling) else sequence.sampling.temperature
        wide = spread(self.settings, steps, steps, block.perplexity)
        return behind_each_other(block.candidates, self._selector, sequence.tokens[-1], heat, wide)

    def _grown(self, blocks: Many[_Block]) -> list[Proposal]:
        """The trees that the drafter's own probabilities make."""
        limits = [self._limits(each.asked) for each in blocks]
        if self._selector is None:
            return [grown(each.candidates, *own) for each, own in zip(blocks, limits, strict=True)]
        return [best_first(self._expand(each), *own) for each, own in zip(blocks, limits, strict=True)]

    def _weighed(self, blocks: Many[_Block], joint: Joint) -> list[Proposal]:
        """Larger trees, and what is left of them where another model weighs candidates anew."""
        sizes, expands = [self._nodes(each.asked.slots) for each in blocks], [self._expand(each) for each in blocks]
        pairs = zip(expands, sizes, strict=True)
        proposals = [best_first(expand, _POOL * size, self.settings.candidates) for expand, size in pairs]
        sequences = [each.asked.sequence for each in blocks]
        weighed = rescored(joint, self.settings.rescorer_weight, sequences, proposals, expands, self.noisy)
        return [strongest(proposal, size) for proposal, size in zip(weighed, sizes, strict=True)]
