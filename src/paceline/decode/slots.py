"""One pass of a drafter over blocks: the token of every slot, or the likeliest few of each.

The same temperature, penalties and noise as the target's, so that what is likely here is likely there. Where scores are
taken as they are, native passes draw from them in the same call. Does not know what becomes of the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.decode.candidates import Candidates, Evidence
from paceline.decode.draft_context import context_of
from paceline.decode.draws import ranking, together
from paceline.decode.processors import process, widen
from paceline.decode.sampling import is_greedy, ranked, sound
from paceline.decode.sequence import Sequence, flat
from paceline.decode.target import Target
from paceline.decode.tree import EMPTY
from paceline.models.attention import Attend, Segment
from paceline.models.drafter import Drafter
from paceline.models.selector import CandidateSelector

if TYPE_CHECKING:
    from paceline.native import Draws

__all__ = ["Slots"]


@dataclass(frozen=True, slots=True)
class Slots:
    """Passes over the blocks of many sequences at once; a block is the anchor, and tokens or masks behind it.

    Attributes:
        width: candidates of a slot.
        noisy: rank with the target's noise.
        selector: whose evidence candidates carry; None: they carry none.
    """

    target: Target
    drafter: Drafter
    width: int = 1
    noisy: bool = True
    selector: CandidateSelector | None = None

    def chosen(self, sequences: Many[Sequence], blocks: Many[Many[int]]) -> list[list[int]]:
        """The drafter's own choice in every slot."""
        placed, counts = self._placed(sequences, blocks), [len(block) - 1 for block in blocks]
        own = [sequence.draws(count, EMPTY) for sequence, count in zip(sequences, counts, strict=True)]
        draws = together(own, self._banned)
        found = None if draws is None else self.drafter.choose(*placed, draws)
        if found is None:
            read = self._logits(placed, counts)
            return [own.choose(logits, EMPTY, None) for own, (_, logits) in zip(sequences, read, strict=True)]
        tokens = iter(sound(found))
        return [[next(tokens) for _ in range(count)] for count in counts]

    def ranked(self, sequences: Many[Sequence], blocks: Many[Many[int]], spreads: Many[float]) -> list[Candidates]:
        """The likeliest tokens of every slot.

        Args:
            spreads: of each block, see `sampling.ranked`.
        """
        placed, counts = self._placed(sequences, blocks), [len(block) - 1 for block in blocks]
        each = list(zip(sequences, counts, spreads, strict=True))
        if self.selector is None:
            draws = together([self._ranking(*own) for own in each], self._banned)
            found = None if draws is None else self.drafter.rank(*placed, draws, self.width)
            if found is not None:
                sound(found[0][:, 0].tolist())
                parts = (torch.split_with_sizes(one, counts) for one in found)
                return [Candidates(*own) for own in zip(*parts, strict=True)]
        read = self._logits(placed, counts)
        return [self._ranked(sequence, *own, spread) for own, (sequence, _, spread) in zip(read, each, strict=True)]

    def _placed(self, sequences: Many[Sequence], blocks: Many[Many[int]]) -> tuple[Tensor, Tensor, Attend, list[int]]:
        """Ids and positions of all rows, what they see, and the rows of each block."""
        counts = [len(block) for block in blocks]
        firsts = [len(sequence.tokens) - 1 for sequence in sequences]
        places = [range(first, first + count) for first, count in zip(firsts, counts, strict=True)]
        segments = [Segment(count, context_of(own)) for own, count in zip(sequences, counts, strict=True)]
        return *flat(blocks, places, self.target.device), self.drafter.attention(segments), counts

    @property
    def _banned(self) -> tuple[int, ...]:
        return self.target.banned_ids(self.drafter.spec.mask_token_id)

    def _ranking(self, sequence: Sequence, slots: int, spread: float) -> Draws | None:
        if sequence.changes_scores:
            return None
        noise = sequence.noise if self.noisy else None
        return ranking(sequence.sampling, noise, sequence.places(slots, EMPTY), spread)

    def _logits(
        self, placed: tuple[Tensor, Tensor, Attend, list[int]], counts: list[int]
    ) -> list[tuple[Tensor, Tensor]]:
        """States and logits of every slot: [slots, hidden], [slots, vocab]."""
        hidden, logits = self.drafter.read(*placed)
        banned = self.target.banned(self.drafter.spec.mask_token_id)
        assert banned is not None
        logits.index_fill_(-1, banned, -torch.inf)  # in place: a copy takes as long as the choice
        return list(zip(torch.split(hidden, counts), torch.split(logits, counts), strict=True))

    def _ranked(self, sequence: Sequence, hidden: Tensor, logits: Tensor, spread: float) -> Candidates:
        scores = widen(process(logits, sequence.sampling, sequence.counts))
        noise, places = sequence.noise if self.noisy else None, sequence.places(len(logits), EMPTY)
        ids, values = ranked(scores, sequence.sampling, noise, places, self.width, spread)
        if self.selector is None:
            return Candidates(ids, values)
        drawn = torch.zeros_like(values)
        if noise is not None and not is_greedy(sequence.sampling):
            drawn = noise.at(places, ids).to(values.dtype)
        return Candidates(ids, values, Evidence(scores.gather(-1, ids), drawn, hidden))
