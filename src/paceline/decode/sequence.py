"""The state of one request while it is decoded, and the target's own tokens for it.

A sequence is committed tokens plus caches that cover all of them but the newest, the anchor, which the next round
feeds. Knows nothing of methods, text or stopping.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.draws import drawing
from paceline.decode.experience import Pace
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts, process
from paceline.decode.retrieval import Budget, Retrieval
from paceline.decode.sampling import choose
from paceline.decode.tree import Proposal
from paceline.request import Sampling

if TYPE_CHECKING:
    from paceline.native import Draws

__all__ = ["Reading", "Sequence", "flat", "parted"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the target said about the rows of one sequence.

    Attributes:
        tokens: its own token after each row: the anchor, and every draft.
        features: [rows, taps * hidden] for the drafter, or None.
    """

    tokens: list[int]
    features: Tensor | None


@dataclass(slots=True)
class Sequence:
    """One answer in the making.

    Attributes:
        tokens: prompt and committed tokens.
        prompt_tokens: how many of them are the prompt.
        limit_tokens: most tokens, prompt included: max_tokens or the context ends the answer there.
        sampling, seed: of this answer; the seed is never missing.
        cache: K/V of the target; after each round it covers all tokens but the newest.
        draft_cache: K/V of the drafter's context rows; with `unread`, for the same tokens. None without a drafter.
        noise: the draw at each position, shared by drafter and target.
        counts: what penalties need; None without penalties.
        ahead: what the target says behind the anchor, and then behind that, where it was asked at once; rows behind
            those of `cache` belong to them, until others are written there.
        carried: what the last round left for the slots behind the anchor, where blocks overlap.
        unread: features of committed tokens that are not in `draft_cache` yet, [tokens, taps * hidden] each.
        joint_cache: K/V of a small model that weighs candidates, of some of the committed tokens; None without one.
        pace: how drafting has gone so far, for a controller.
        retrieval: what may be copied from the text so far; None where nobody looks anything up.
    """

    tokens: list[int]
    prompt_tokens: int
    limit_tokens: int
    sampling: Sampling
    seed: int
    cache: SequenceCache
    draft_cache: SequenceCache | None
    noise: NoiseCache
    counts: TokenCounts | None
    ahead: deque[Reading] = field(default_factory=deque)
    carried: tuple[int, ...] = ()
    unread: list[Tensor] = field(default_factory=list)
    joint_cache: SequenceCache | None = None
    pace: Pace = field(default_factory=Pace)
    retrieval: Retrieval | None = None

    @property
    def new_tokens(self) -> tuple[int, ...]:
        """What was committed behind the prompt."""
        return tuple(self.tokens[self.prompt_tokens :])

    @property
    def remaining_tokens(self) -> int:
        """How many tokens may still be committed."""
        return self.limit_tokens - len(self.tokens)

    def choose(self, logits: Tensor, drafts: Proposal, banned: Tensor | None) -> list[int]:
        """The tokens that logits [rows, vocab] give behind the committed ones.

        Args:
            drafts: row 0 is scored behind the anchor, row i + 1 behind the path down to node i. Empty: rows see only
                committed tokens, and stand one behind the other.
            banned: ids never drawn.
        """
        scores = process(logits, self.sampling, self.counts, drafts, banned)
        chosen: list[int] = choose(scores, self.sampling, self.noise, self.places(len(logits), drafts)).tolist()
        return chosen

    def draws(self, rows: int, drafts: Proposal) -> Draws | None:
        """How `choose` draws so many rows; None where it changes or filters their scores before."""
        return None if self.changes_scores else drawing(self.sampling, self.noise, self.places(rows, drafts))

    @property
    def changes_scores(self) -> bool:
        """Whether penalties or biases do, before tokens are drawn."""
        return self.sampling.penalised or bool(self.sampling.logit_bias)

    def places(self, rows: int, drafts: Proposal) -> Tokens[int]:
        """The positions that so many rows draw for; `drafts` as in `choose`."""
        first = len(self.tokens)
        if drafts.is_chain:
            return range(first, first + rows)
        return [first, *(first + depth for depth in drafts.depths)]

    def look_up(self, budget: Budget) -> Proposal:
        """What followed where the text stood before as it stands now, no deeper than tokens may still be committed."""
        assert self.retrieval is not None, "the sequence was opened by another method"
        deepest = min(budget.tokens, self.remaining_tokens)
        return self.retrieval.propose(self.tokens, budget._replace(tokens=deepest))

    def commit(self, tokens: Tokens[int]) -> None:
        """Append agreed tokens."""
        self.tokens.extend(tokens)
        if self.retrieval is not None:
            self.retrieval.extend(tokens)
        if self.counts is not None:
            self.counts.commit(tokens)
        self.noise.forget(len(self.tokens))


def flat(rows: Tokens[Tokens[int]], places: Tokens[Tokens[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of all sequences end to end: their ids and absolute positions, each int64 [rows]."""
    tokens = [token for row in rows for token in row]
    positions = [place for own in places for place in own]
    both = torch.from_numpy(np.array((tokens, positions), np.int64))  # torch takes lists five times as slowly
    ids, at = both.to(device).unbind()
    return ids, at


Some = TypeVar("Some", list[int], Tensor)


def parted(whole: Some, counts: Tokens[int]) -> list[Some]:
    """What belongs to each sequence, of rows that lie end to end."""
    if len(counts) == 1:
        return [whole]
    ends = accumulate(counts)
    return [whole[end - count : end] for end, count in zip(ends, counts, strict=True)]
