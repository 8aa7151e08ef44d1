"""Gumbel noise that depends only on (request seed, stream, absolute position, vocabulary id).

The one source of chance in decoding: whoever asks for a key, in whatever batch, order, subset, dtype or device, gets
the same number. So every method draws the same token at the same position (docs/equality.md), and a draft made with the
target's own noise agrees with probability between (1 - TV) / (1 + TV) and 1 - TV (Gumbel coupling; arXiv:2408.07978).

Per row a 64-bit key from SplitMix64 (Steele et al., OOPSLA 2014); per id the 32-bit finaliser `triple32`
(C. Wellons, hash-prospector) over id and key; 52 bits make the uniform, strictly inside (0, 1) and finest near 0,
where g = -log(-log1p(-v)) is greatest. So -3.61 < g < 36.74, and the law of any token with probability above about
1e-15 is right. Logarithms run in float64 and are rounded to float32 once, so that a library's last bit does not show.

Knows nothing of logits, temperatures or models. The functions are frozen: tests pin their values.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Int, Int32, Int64

__all__ = ["NoiseCache", "derive_seed", "draw_seed", "gumbel"]

_BLOCK = 65536  # numbers made at a time: what fits a core's cache
_ROWS_AHEAD = 8  # a call costs as much as four rows of 8k ids
_MASK64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: the step of SplitMix64


def gumbel(
    seed: int, stream: str, positions: Int[Tensor, " rows"], ids: Int[Tensor, "#rows ids"]
) -> Float32[Tensor, "rows ids"]:
    """Independent standard Gumbel noise, one number per (position, id).

    Args:
        seed: of the request or of one of its choices (`derive_seed`), 64 bits.
        stream: names the use, so that two uses at one position share nothing.
        positions: absolute positions of the tokens to be drawn, >= 0.
        ids: vocabulary ids, >= 0, in any order: one row for all positions, or one for each. Same device.
    """
    keys = _row_keys(seed, stream, positions)
    bits = _triple32(ids.to(torch.int32, copy=True)).expand(len(keys), -1)
    noise = torch.empty(bits.shape, device=bits.device)
    step = max(1, _BLOCK // max(1, bits.shape[1]))
    for row in range(0, len(keys), step):
        block = slice(row, row + step)
        noise[block] = _noise(keys[block], bits[block])
    return noise


def derive_seed(seed: int, index: int) -> int:
    """Seed of answer `index` of a request with several answers, a signed 64-bit integer.

    Answer 0 keeps the request's seed, so any answer can be had again alone by its own seed.
    """
    return seed if index == 0 else _signed(_mix64(_mix64(seed + _GOLDEN) + index * _GOLDEN), bits=64)


def draw_seed() -> int:
    """A fresh seed for a request without one; 53 bits, so that JSON readers everywhere return it unchanged."""
    return secrets.randbits(53)


@dataclass(slots=True, eq=False)
class NoiseCache:
    """The noise of one sequence, computed once per position and shared by drafter, target and later rounds.

    Holds full-vocabulary rows for one run of positions, 4 bytes per entry; call `forget` after each round.
    """

    seed: int
    vocab_size: int
    stream: str = "token"
    device: torch.device | str = "cpu"
    _first: int = field(default=0, init=False)
    _rows: Float32[Tensor, "cached vocab"] | None = field(default=None, init=False)
    _start: int = field(init=False)

    def __post_init__(self) -> None:
        self._start = _start(self.seed, self.stream)

    def at(self, positions: Sequence[int], ids: Int[Tensor, "#rows ids"] | None = None) -> Float32[Tensor, "rows ids"]:
        """Noise at `positions`, for `ids` only or for the whole vocabulary; do not write into the result.

        Only whole rows are kept; a `range` of positions is answered with a view. Noise for a few ids is computed anew.
        """
        if ids is not None:
            return gumbel(self.seed, self.stream, torch.tensor(positions, device=self.device), ids)
        rows = self._cover(min(positions), max(positions) + 1)
        if isinstance(positions, range) and positions.step == 1:
            return rows[positions.start - self._first : positions.stop - self._first]
        return rows[torch.tensor(positions, device=self.device) - self._first]

    def keys(self, positions: Sequence[int]) -> list[int]:
        """What the noise of each position is made from: 64 bits, unsigned."""
        return [_mix64(self._start + position * _GOLDEN) for position in positions]

    def forget(self, below: int) -> None:
        """Drop the rows of all positions under `below`."""
        if self._rows is not None and below > self._first:
            self._rows = self._rows[below - self._first :]  # a view: the next growth copies what is left
            self._first = below

    def _cover(self, low: int, high: int) -> Float32[Tensor, "cached vocab"]:
        """The cached rows, first grown (or begun anew, if they do not join) to hold positions low .. high - 1."""
        end = self._first + (0 if self._rows is None else len(self._rows))
        if self._rows is None or not self._first <= low <= end:
            self._first = end = low
            self._rows = torch.empty(0, self.vocab_size, device=self.device)
        if high > end:
            positions = torch.arange(end, max(high, end + _ROWS_AHEAD), device=self.device)
            ids = torch.arange(self.vocab_size, device=self.device)[None]
            self._rows = torch.cat([self._rows, gumbel(self.seed, self.stream, positions, ids)])
        return self._rows


def _noise(keys: Int64[Tensor, " rows"], id_bits: Int32[Tensor, "rows ids"]) -> Float64[Tensor, "rows ids"]:
    # The second half of the key enters after `low` is taken: otherwise `low` would be a function of the high bits.
    bits = _xorshift_multiply(id_bits ^ keys.to(torch.int32)[:, None], 16, 0x7FEB352D)
    low = (bits & 0x1FFFFF).bitwise_or_(1)
    high = _triple32(bits.bitwise_xor_((keys >> 32).to(torch.int32)[:, None]))
    uniform = high.to(torch.float64).mul_(2.0**-32).add_(0.5).add_(low, alpha=2.0**-53)  # odd / 2**53, exact
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _row_keys(seed: int, stream: str, positions: Int[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
    """Output number `position` of the SplitMix64 generator that (seed, stream) starts."""
    keys = positions.to(torch.int64) * _signed(_GOLDEN, bits=64) + _signed(_start(seed, stream), bits=64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        keys = (keys ^ (keys >> shift & (1 << 64 - shift) - 1)) * _signed(factor, bits=64)
    return keys ^ (keys >> 31 & (1 << 33) - 1)


def _start(seed: int, stream: str) -> int:
    """The state from which that generator takes its first output."""
    name = int.from_bytes(hashlib.blake2b(stream.encode(), digest_size=8).digest(), "little")
    return _mix64(_mix64(seed + _GOLDEN) ^ name) + _GOLDEN


def _mix64(value: int) -> int:
    """The finaliser of SplitMix64."""
    value &= _MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK64
    return value ^ value >> 31


def _triple32(bits: Int32[Tensor, "*shape"]) -> Int32[Tensor, "*shape"]:
    """The finaliser of that name, in place."""
    for shift, factor in ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB)):
        _xorshift_multiply(bits, shift, factor)
    return bits.bitwise_xor_(_shift_right(bits, 14))


def _xorshift_multiply(bits: Int32[Tensor, "*shape"], shift: int, factor: int) -> Int32[Tensor, "*shape"]:
    return bits.bitwise_xor_(_shift_right(bits, shift)).mul_(_signed(factor, bits=32))


def _shift_right(bits: Int32[Tensor, "*shape"], shift: int) -> Int32[Tensor, "*shape"]:
    """Logical shift: torch shifts signed integers arithmetically."""
    return (bits >> shift).bitwise_and_((1 << 32 - shift) - 1)


def _signed(value: int, bits: int) -> int:
    """The same bits read as two's complement, which is what torch's integers are."""
    half = 1 << bits - 1
    return (value + half & (half << 1) - 1) - half
