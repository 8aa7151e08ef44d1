"""From masked blocks to proposals: the drafter's passes over a block, and the tree of what it holds likely.

    denoise   each pass says what may stand in the masked slots; the surest slots are fixed, the others masked again
    rank      the most probable tokens of each slot, under the noise that the target will draw with
    grow      the most probable prefixes of them, as one tree

The noise is part of the drafter's scores, so candidates gather around what the target will draw, and not around what is
likely on average: at temperature 1 that is most of what a tree gains. Does not know how proposals are judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.processors import process
from paceline.decode.sampling import ranked
from paceline.decode.sequence import Sequence, flat
from paceline.decode.speculation import Plan, Speculation, spread
from paceline.decode.target import Target
from paceline.decode.tree import EMPTY, Proposal, Ranked, best_first, chain, prune
from paceline.models.attention import Segment
from paceline.models.drafter import Drafter

__all__ = ["Drafting", "context_of"]

_SURE = math.log(0.9)
"""A pass is the last where every slot that it leaves open is as sure as that."""


class _Asked(NamedTuple):
    """A sequence that is to draft, how deep, and in how many passes at most."""

    sequence: Sequence
    slots: int
    steps: int


@dataclass(slots=True)
class _Block:
    """The block of one sequence while it is denoised.

    Attributes:
        row: the anchor, then the tokens fixed so far, and masks.
        slots: what may stand in each slot, once it is fixed.
        open: the slots, from 0, that are masked.
        steps: passes over it at most.
        surprise: of each token fixed, in nats.
    """

    row: list[int]
    slots: list[Ranked]
    open: list[int]
    steps: int
    surprise: list[float] = field(default_factory=list)

    @property
    def perplexity(self) -> float:
        return math.exp(sum(self.surprise) / len(self.surprise)) if self.surprise else 1.0


@dataclass(frozen=True, slots=True)
class Drafting:
    """Drafts for many sequences at once.

    Attributes:
        noisy: rank with the target's noise; without it a tree gains less, which is what the sweep shows.
    """

    target: Target
    drafter: Drafter
    settings: Speculation
    noisy: bool = True

    def propose(self, sequences: Many[Sequence], plans: Many[Plan]) -> list[Proposal]:
        """A proposal for each sequence, no deeper than tokens may still be committed.

        Near its limit an answer gets a shorter block, as in the reference implementation.
        """
        asked = [
            _Asked(sequence, min(plan.block_size - 1, sequence.remaining_tokens), plan.steps)
            for sequence, plan in zip(sequences, plans, strict=True)
        ]
        drafting = [each for each in asked if each.slots]
        propose = self._chains if self.settings == Speculation() else self._trees
        found = iter(propose(drafting) if drafting else ())
        return [next(found) if each.slots else EMPTY for each in asked]

    def logits(self, sequences: Many[Sequence], rows: Many[Many[int]]) -> list[Tensor]:
        """What the drafter says of every slot of blocks that begin at the anchors: [slots, vocab] each."""
        places = [
            range(len(own.tokens) - 1, len(own.tokens) - 1 + len(row)) for own, row in zip(sequences, rows, strict=True)
        ]
        tokens, positions = flat(rows, places, self.target.device)
        segments = [Segment(len(row), context_of(own)) for own, row in zip(sequences, rows, strict=True)]
        counts = [len(row) for row in rows]
        blocks = torch.split(self.drafter(tokens, positions, self.drafter.attention(segments)), counts)
        logits = self.drafter.logits(torch.cat([block[1:] for block in blocks]))
        banned = self.target.banned(self.drafter.spec.mask_token_id)
        assert banned is not None
        logits.index_fill_(-1, banned, -torch.inf)  # in place: a copy takes as long as the choice
        return list(torch.split(logits, [count - 1 for count in counts]))

    def _chains(self, asked: Many[_Asked]) -> list[Proposal]:
        """The drafter's own choice in each slot, in one pass: what the general way comes to, without the ranking."""
        mask = self.drafter.spec.mask_token_id
        rows = [[each.sequence.tokens[-1], *[mask] * each.slots] for each in asked]
        found = self.logits([each.sequence for each in asked], rows)
        return [chain(each.sequence.choose(logits, EMPTY, None)) for each, logits in zip(asked, found, strict=True)]

    def _trees(self, asked: Many[_Asked]) -> list[Proposal]:
        """What the settings ask for."""
        blocks = [self._opened(each) for each in asked]
        for step in range(1, max(each.steps for each in asked) + 1):
            left = [(each.sequence, block) for each, block in zip(asked, blocks, strict=True) if block.open]
            if left:
                self._denoise(left, step)
        return [self._grown(block) for block in blocks]

    def _opened(self, asked: _Asked) -> _Block:
        """A block of masks, but for what the last round left."""
        sequence, slots, steps = asked
        carried = sequence.carried[: min(slots, self.settings.overlap)]
        masks = [self.drafter.spec.mask_token_id] * (slots - len(carried))
        fixed = [Ranked((token,), (0.0,)) for token in carried]
        unknown = [Ranked((), ()) for _ in masks]
        return _Block([sequence.tokens[-1], *carried, *masks], fixed + unknown, list(range(len(carried), slots)), steps)

    def _denoise(self, pairs: Many[tuple[Sequence, _Block]], step: int) -> None:
        """One pass over the blocks that have masks, and fix what is surest; in the last pass, all."""
        found = self.logits([sequence for sequence, _ in pairs], [block.row for _, block in pairs])
        for (sequence, block), logits in zip(pairs, found, strict=True):
            ranks = self._ranked(sequence, logits, block, step)
            surest = sorted(block.open, key=lambda slot: -ranks[slot].scores[0])
            count = math.ceil(len(surest) / (block.steps - step + 1))
            if all(ranks[slot].scores[0] >= _SURE for slot in surest[count:]):
                count = len(surest)
            for slot in surest[:count]:
                block.slots[slot] = ranks[slot]
                block.row[slot + 1] = ranks[slot].tokens[0]
                block.surprise.append(-ranks[slot].scores[0])
            block.open = sorted(surest[count:])

    def _ranked(self, sequence: Sequence, logits: Tensor, block: _Block, step: int) -> list[Ranked]:
        """The likeliest tokens of every slot."""
        scores = process(logits, sequence.sampling, sequence.counts)
        first = len(sequence.tokens)
        width = min(self.settings.candidate_num, self.settings.max_nodes)
        noise = sequence.noise if self.noisy else None
        wide = spread(self.settings, step, block.steps, block.perplexity)
        ids, values = ranked(scores, sequence.sampling, noise, range(first, first + len(logits)), width, wide)
        counts = (values > -math.inf).sum(-1).tolist()
        return [
            Ranked(tokens[:count], row[:count])
            for tokens, row, count in zip(ids.tolist(), values.tolist(), counts, strict=True)
        ]

    def _grown(self, block: _Block) -> Proposal:
        settings = self.settings
        nodes = settings.max_nodes if settings.candidate_num > 1 else len(block.slots)
        end = Ranked((), ())
        slots = [*block.slots, end]
        return prune(
            best_first(lambda path: slots[len(path)], nodes, settings.candidate_num), settings.pruning_threshold
        )


def context_of(sequence: Sequence) -> SequenceCache:
    """The drafter's keys and values for the committed tokens."""
    assert sequence.draft_cache is not None, "the sequence was opened by another method"
    return sequence.draft_cache
