"""Which keys a row sees; and long segments cut into blocks of rows, so that no mask grows with the square of a length.

Sparse by blocks: each block of rows goes with the keys in its reach alone. Where blocks begin depends on nothing but
the segment, so an answer is the same alone and in a batch. Knows nothing of heads, caches and batches.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Block", "blocks", "tree_block", "visible"]

_BLOCK_ROWS = 256
"""Rows that attend together: as fast as any of 64 to 1024 on two cores, and a mask takes so many times the length."""


class Block(NamedTuple):
    """Rows of a segment that attend together.

    Attributes:
        rows: which of the segment.
        keys: those in their reach, of past + rows.
        mask: what is added to the scores, [rows, keys]; None where every row sees all of these keys.
    """

    rows: slice
    keys: slice
    mask: Tensor | None


def blocks(
    rows: int, past: int, causal: bool, window: int | None, dtype: torch.dtype, device: torch.device
) -> list[Block]:
    """A segment of `rows` rows behind `past` others. All masks are views of one, made for a block with its full reach.

        keys      0 1 2 3 4 5
    block 0       x .              causal, window 3, blocks of 2 rows: the mask is [2, 4], and block 0, which has
                  x x              nothing before it, is left its last two columns
    block 1       x x x .
                  . x x x
    block 2           x x x .
                      . x x x
    """
    length = past + rows
    window = None if window is None or length <= window else window
    height = _block_rows(rows, causal or window is not None, dtype, device)
    reach = length if window is None else window - 1
    back = min(reach, past + (rows - 1) // height * height)
    ahead = 0 if causal else min(reach, rows - height)
    mask = _additive_mask(height, back, ahead, causal, window, dtype, device)
    found = []
    for start in range(0, rows, height):
        stop, first = min(start + height, rows), past + start - back
        keys = slice(max(0, first), min(length, past + stop + ahead))
        own = None if mask is None else mask[: stop - start, keys.start - first : keys.stop - first]
        found.append(Block(slice(start, stop), keys, own))
    return found


def tree_block(
    tree: tuple[int, ...], past: int, window: int | None, dtype: torch.dtype, device: torch.device
) -> list[Block]:
    """Rows behind `past` others that hang together as a tree: each sees itself, its ancestors, and all before them.

    Args:
        tree: for each row the index of the row before it, smaller than its own; -1 for none.
        window: counted in places: a row stands one place behind the row before it.

            keys  0 1 2 3 4 5 6
    row 3         x x x x . . .      past 3, tree (-1, 0, 0, 1): two rows stand at place 4
    row 4         x x x x x . .
    row 4         x x x x . x .
    row 5         x x x x x . x
    """
    rows, places = len(tree), list(range(past))
    seen = np.zeros((rows, past + rows), dtype=bool)
    seen[:, :past] = True
    for row, parent in enumerate(tree):
        if parent >= 0:
            seen[row, past:] = seen[parent, past:]
        seen[row, past + row] = True
        places.append(past if parent < 0 else places[past + parent] + 1)
    if window is not None and places and max(places) >= window:
        seen &= np.subtract.outer(places[past:], places) < window
    hidden = torch.from_numpy(~seen).to(device)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -math.inf)
    return [Block(slice(0, rows), slice(0, past + rows), mask)]


def visible(rows: int, past: int, causal: bool, window: int | None) -> Tensor | None:
    """Which of past + rows keys each of the last `rows` positions sees, bool [rows, past + rows]; None is all.

            keys  0 1 2 3 4 5
    query 3       x x x x . .      causal, past 3, rows 3
    query 4       x x x x x .
    query 5       x x x x x x
    """
    if (rows == 1 or not causal) and (window is None or past + rows <= window):
        return None
    seen = _visible_keys(rows, past, past + rows, causal, window)
    return None if bool(seen.all()) else seen


def _block_rows(rows: int, masked: bool, dtype: torch.dtype, device: torch.device) -> int:
    """Rows of a block.

    Where nothing is masked, fused kernels cut their scores into blocks themselves, and are faster if nobody else does.
    A CPU has one for every type; elsewhere what runs in float32 may make all scores of the rows it gets.
    """
    fused = device.type == "cpu" or dtype != torch.float32
    return rows if fused and not masked else min(rows, _BLOCK_ROWS)


def _additive_mask(
    rows: int, back: int, ahead: int, causal: bool, window: int | None, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """-inf where a row does not see a key, of those from `back` before the first row to `ahead` behind the last.

    Returns:
        [rows, back + rows + ahead], or None where all is seen.
    """
    keys = back + rows + ahead
    if window is None or max(back, ahead) + rows <= window:
        if not causal or rows == 1:
            return None
        # Two kernels instead of twelve.
        return torch.full((rows, keys), -math.inf, dtype=dtype, device=device).triu_(back + 1)
    seen = _visible_keys(rows, back, keys, causal, window)
    return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen.to(device), -math.inf)


def _visible_keys(rows: int, past: int, keys: int, causal: bool, window: int | None) -> Tensor:
    """Which of `keys` keys each row sees, the first of them at position `past`; bool [rows, keys]."""
    distance = torch.arange(past, past + rows).unsqueeze(1) - torch.arange(keys).unsqueeze(0)
    seen = torch.ones_like(distance, dtype=torch.bool)
    if causal:
        seen &= distance >= 0
    if window is not None:
        seen &= distance < window
        seen &= distance > -window
    return seen
