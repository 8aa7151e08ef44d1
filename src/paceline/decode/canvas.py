"""One answer of a masked-diffusion model in the making: a hole of masks in a text that is given.

Usually the hole lies behind a prompt; a suffix may stand behind it. Fixed tokens never change, so the answer is final
up to its first mask. Knows nothing of the order in which masks are filled, of the passes that fill them, or of where
an answer ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from paceline.cache.store import SequenceCache
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts
from paceline.request import Sampling

__all__ = ["Canvas"]


@dataclass(slots=True)
class Canvas:
    """Where one answer stands.

    Attributes:
        tokens: of the whole text: those given, those fixed, and the mask token elsewhere.
        hole: the positions of the answer.
        sampling, seed: of this answer; the seed is never missing.
        cache: K/V that the next pass does not recompute; not always in the order of positions.
        noise: the draw at each position, the same in every pass.
        counts: what penalties need; None without penalties.
        masked: positions not fixed yet, ascending.
        block, block_passes: the block being filled, and how many passes it has had.
        verifier_cache: K/V of APD's verifier, of tokens before the first mask, at most all but the last; None without.
        visible: masks that the next pass sees, where the method bounds them.
    """

    tokens: list[int]
    hole: range
    sampling: Sampling
    seed: int
    cache: SequenceCache
    noise: NoiseCache
    counts: TokenCounts | None
    masked: list[int] = field(init=False)
    block: range = range(0)
    block_passes: int = 0
    verifier_cache: SequenceCache | None = None
    visible: int = 0

    def __post_init__(self) -> None:
        self.masked = list(self.hole)

    @property
    def settled(self) -> int:
        """Where the first mask is, or the end of the hole: the answer is final up to there."""
        return self.masked[0] if self.masked else self.hole.stop

    @property
    def remaining_tokens(self) -> int:
        """How many tokens of the answer may still settle."""
        return self.hole.stop - self.settled

    def reused_by(self, rows: Many[int]) -> int:
        """How many tokens before the first mask a pass over `rows` (ascending positions) takes from the cache."""
        return self.settled - bisect_left(rows, self.settled)

    def open_block(self, block: range) -> None:
        """Go on with the masks of `block`, which holds the first one."""
        self.block, self.block_passes = block, 0

    def fix(self, positions: Many[int], tokens: Many[int]) -> tuple[int, ...]:
        """Write tokens over masks, once and for all, as the outcome of a pass: the run that has settled by that."""
        before, fixed = self.settled, set(positions)
        for position, token in zip(positions, tokens, strict=True):
            self.tokens[position] = token
        self.masked = [position for position in self.masked if position not in fixed]
        if self.counts is not None:
            self.counts.commit(tokens)
        self.noise.forget(self.settled)
        self.block_passes += 1
        return tuple(self.tokens[before : self.settled])
