"""From scores to tokens, in one call: the noise of `decode.noise`, made where it is used and as exactly as needed.

The choice is to the bit what torch makes of the same scores. Knows nothing of filters, seeds and positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from paceline.native.choice import extension, instructions
from paceline.native.extension import array, pool

if TYPE_CHECKING:
    from paceline.native._native import Drawing, Pool

__all__ = ["Draws", "drawn", "ranked"]


class Draws(NamedTuple):
    """How rows are drawn: the greatest of scale * score + noise * gumbel.

    Attributes:
        scales, noises: of each row; noise is at least 0.
        keys: of each row, 64 bits.
        banned: ids that are never drawn.
    """

    scales: Sequence[float]
    noises: Sequence[float]
    keys: Sequence[int]
    banned: Sequence[int] = ()


def drawn(scores: Tensor, noise: float, keys: Sequence[int]) -> Tensor:
    """The lowest id of the greatest scores + noise * gumbel of each row; -1 where that is no number, or infinite.

    Args:
        scores: float32 [rows, vocab] on the CPU.
        noise: what the noise is multiplied with, more than 0.
        keys: of each row, 64 bits.

    Returns:
        int64 [rows].
    """
    ids = torch.empty(len(scores), dtype=torch.int64)
    _drawing(pool(), instructions()).choose(array(scores), noise, keys, ids.numpy())
    return ids


def ranked(scores: Tensor, scale: float, noise: float, keys: Sequence[int], width: int) -> tuple[Tensor, Tensor] | None:
    """The ids of the greatest scale * scores + noise * gumbel of each row, and the logarithms of their softmax.

    The noise is within a thousandth. Where there are fewer that may be drawn, the last have -inf, and any id.

    Returns:
        int64 and float32 [rows, width], in falling order; None where a row's greatest is no number, or infinite.
    """
    ids = torch.empty(len(scores), width, dtype=torch.int64)
    log_probs = torch.empty(len(scores), width)
    drawing = _drawing(pool(), instructions())
    sound = drawing.rank(array(scores), scale, noise, keys, ids.numpy(), log_probs.numpy())
    return (ids, log_probs) if sound else None


@cache
def _drawing(threads: Pool, instruction_set: str) -> Drawing:
    """Has scratch memory of its own."""
    found: Drawing = extension().Drawing(threads, instruction_set)
    return found
