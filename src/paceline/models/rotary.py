"""Rotary positions (arXiv 2104.09864): angles, their cosines and sines, and turning heads by them.

Element i of a head pairs with element i + head_dim / 2. Knows nothing of attention.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.models.spec import Rope

__all__ = ["Rotary", "Rotation", "inverse_frequencies", "rotate"]

Rotation = tuple[Tensor, Tensor]
"""cos and signed sin, each [rows, 1, head_dim]."""

_LARGEST_TABLE = 1 << 23
"""Numbers in a table of all positions; beyond it (a context of 65,536 with heads of 128) angles are computed anew."""


class Rotary:
    """Cosines and sines of absolute positions.

    `tabulate` computes them once for a whole context: two look-ups, in place of fifteen small kernels per pass.

    Attributes:
        table: cos and signed sin of all positions, once they are tabulated.
    """

    def __init__(self, rope: Rope, head_dim: int) -> None:
        # Not a buffer of the module: a model in bfloat16 still needs exact angles.
        self.frequencies = inverse_frequencies(rope, head_dim)
        self.table: Rotation | None = None

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        """cos and sin of every position's angles; sin is negated in the first half, ready for `rotate`."""
        if self.table is not None:
            cos, sin = self.table
            return cos.index_select(0, positions), sin.index_select(0, positions)
        angles = positions.to(torch.float64).unsqueeze(-1) * self.frequencies.to(positions.device)
        cos, sin = angles.cos(), angles.sin()
        return (
            torch.cat((cos, cos), -1).unsqueeze(1).to(dtype),
            torch.cat((-sin, sin), -1).unsqueeze(1).to(dtype),
        )

    def tabulate(self, context_tokens: int, like: Tensor) -> None:
        """Keep the rotations of positions 0 … context_tokens - 1 in the precision and on the device of `like`.

        From then on no other positions, and no other precision, can be asked for. Does nothing for a context whose
        table would be large.
        """
        if context_tokens * 4 * len(self.frequencies) <= _LARGEST_TABLE:
            self.table = None
            self.table = self(torch.arange(context_tokens, device=like.device), like.dtype)


def rotate(heads: Tensor, turn: Rotation) -> Tensor:
    """Turn [..., rows, heads, head_dim]."""
    cos, sin = turn
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


def inverse_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Radians per position of each rotary pair, float64 [head_dim / 2] (arXiv 2104.09864, eq. 15).

    `llama3` scaling: wavelengths longer than original_context / low_freq_factor are stretched by `factor`, those
    shorter than original_context / high_freq_factor are kept, in between the two are blended linearly.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = rope.theta**-exponents
    if rope.factor == 1.0:
        return frequencies
    turns = rope.original_context_tokens * frequencies / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return frequencies * (blend + (1.0 - blend) / rope.factor)
