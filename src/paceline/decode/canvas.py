"""One answer of a masked-diffusion model in the making: prompt, fixed tokens, and masks between them.

Fixed tokens never change, so the answer is final up to its first mask, and ends at the first end token before that.
Knows nothing of the order in which masks are filled, nor of the passes that fill them.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from paceline.cache.store import SequenceCache
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts
from paceline.request import FinishReason, Sampling

__all__ = ["Canvas", "DiffusionAnswer", "Fill"]


@dataclass(frozen=True, slots=True)
class Fill:
    """What one forward pass did for one answer: `tokens` were fixed at absolute `positions`, of `rows` computed."""

    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class DiffusionAnswer:
    """A finished answer.

    Attributes:
        tokens: the new ones, up to and with the first end token.
        finish_reason: "stop" at an end token, else "length".
        fills: one for each forward pass; what it fixed behind the end is left out.
    """

    tokens: list[int]
    finish_reason: FinishReason
    fills: tuple[Fill, ...]

    @property
    def forward_passes(self) -> int:
        """Passes that this answer took part in."""
        return len(self.fills)

    @property
    def unmasked_per_step(self) -> list[int]:
        """Tokens that each pass fixed."""
        return [len(fill.tokens) for fill in self.fills]


@dataclass(slots=True)
class Canvas:
    """Where one answer stands.

    Attributes:
        tokens: of the prompt, then those fixed and the mask token elsewhere.
        prompt_tokens: how many of them are the prompt.
        masked: positions not fixed yet, ascending.
        sampling, seed: of this answer; the seed is never missing.
        end_ids: tokens that end the answer.
        cache: K/V that the next pass does not recompute; not always in the order of positions.
        noise: the draw at each position, the same in every pass.
        counts: what penalties need; None without penalties.
        fills: what each pass did.
        block, block_passes: the block being filled, and how many passes it has had.
        stop: where the answer ends, once an end token has been reached.
        verifier_cache: K/V of APD's verifier, of all tokens before the first mask but the last; None without one.
        visible: masks that the next pass sees, where the method bounds them.
    """

    tokens: list[int]
    prompt_tokens: int
    masked: list[int]
    sampling: Sampling
    seed: int
    end_ids: frozenset[int]
    cache: SequenceCache
    noise: NoiseCache
    counts: TokenCounts | None
    fills: list[Fill] = field(default_factory=list)
    block: range = range(0)
    block_passes: int = 0
    stop: int | None = None
    verifier_cache: SequenceCache | None = None
    visible: int = 0
    _settled: int = field(init=False)

    def __post_init__(self) -> None:
        self._settled = self.prompt_tokens

    @property
    def finished(self) -> bool:
        """Whether nothing of the answer can change any more."""
        return self.stop is not None or not self.masked

    @property
    def settled(self) -> int:
        """Where the first mask is: everything before it is final."""
        return self._settled

    def open_block(self, block: range) -> None:
        """Go on with the masks of `block`, which holds the first one."""
        self.block, self.block_passes = block, 0

    def fix(self, positions: Many[int], tokens: Many[int], rows: int) -> Fill:
        """Write tokens over masks, once and for all, as the outcome of a pass over `rows` rows."""
        for position, token in zip(positions, tokens, strict=True):
            self.tokens[position] = token
        fixed = set(positions)
        self.masked = [position for position in self.masked if position not in fixed]
        if self.counts is not None:
            self.counts.commit(tokens)
        self._settle()
        self.noise.forget(self._settled)
        self.block_passes += 1
        self.fills.append(Fill(tuple(positions), tuple(tokens), rows))
        return self.fills[-1]

    def answer(self) -> DiffusionAnswer:
        """What came of it, cut at its end."""
        assert self.finished, "asked for an answer that has masks"
        stop = len(self.tokens) if self.stop is None else self.stop
        fills = tuple(_cut(fill, stop) for fill in self.fills)
        reason: FinishReason = "length" if self.stop is None else "stop"
        return DiffusionAnswer(self.tokens[self.prompt_tokens : stop], reason, fills)

    def _settle(self) -> None:
        """Move on to the first mask, and note the first end token on the way."""
        end = self.masked[0] if self.masked else len(self.tokens)
        for position in range(self._settled, end):
            if self.stop is None and self.tokens[position] in self.end_ids:
                self.stop = position + 1
        self._settled = end


def _cut(fill: Fill, stop: int) -> Fill:
    kept = [(position, token) for position, token in zip(fill.positions, fill.tokens, strict=True) if position < stop]
    return Fill(tuple(position for position, _ in kept), tuple(token for _, token in kept), fill.rows)
