"""Which positions a pass over a masked answer computes, and which keys and values it takes as earlier passes left them.

                       prompt | block | later masks, suffix
    none, opening pass xxxxxx   xxxxx   xxxxxxxxxxx     x computed
    prefix             ......   xxxxx   xxxxxxxxxxx     . frozen by the pass that opened the block
    dual               ......   xxxxx   ...........

Fast-dLLM's caches (arXiv 2505.22618). Where row i - shift predicts position i, `shift` rows before the block are
computed too. `kv_window` is APD's (arXiv 2506.00413): a pass computes the tokens that the last one fixed,
kv_window - 1 before them, and everything after. With `window` a pass sees so many masks: later ones are left out of it,
and what stands behind the hole is not; as its keys and values depend on the hole, no pass takes them from another one.
Knows nothing of models and scores.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

from paceline.cache.store import SequenceCache
from paceline.decode.canvas import Canvas
from paceline.decode.remasking import Freeze, Remasking, Turn, even_share

__all__ = ["candidates", "freeze", "in_sight", "keep", "next_rows", "slide", "turn"]


def next_rows(canvas: Canvas, settings: Remasking, shift: int) -> Many[int]:
    """The positions that the next pass computes, ascending; opens the next block where one is full."""
    if canvas.settled not in canvas.block:
        canvas.open_block(_block_at_first_mask(canvas, settings.block_length))
        canvas.cache.truncate(0)
    if settings.window is not None or settings.kv_window is not None:
        return in_sight(canvas, canvas.cache.length, settings.window)
    if settings.cache == "none" or canvas.block_passes == 0:
        return range(len(canvas.tokens))
    return range(canvas.block.start - shift, canvas.block.stop if settings.cache == "dual" else len(canvas.tokens))


def in_sight(canvas: Canvas, start: int, masks: int | None) -> list[int]:
    """The positions from `start` on, without the masks behind the first so many; None is all.

    For answers that are filled from left to right: no token is fixed behind a mask.
    """
    stop = canvas.hole.stop if masks is None else min(canvas.hole.stop, canvas.settled + masks)
    return [*range(start, stop), *range(canvas.hole.stop, len(canvas.tokens))]


def candidates(canvas: Canvas, settings: Remasking) -> list[int]:
    """The masks that the next pass may fill."""
    return [position for position in canvas.masked if position in canvas.block][: settings.window]


def keep(canvas: Canvas, settings: Remasking, rows: int, shift: int, fixed: Many[int]) -> None:
    """After a pass over so many rows that `fixed` some: leave in the cache what the next pass does not compute."""
    if settings.kv_window is not None:
        slide(canvas.cache, rows, fixed[0], settings.kv_window)
    elif canvas.block_passes == 1 and canvas.settled in canvas.block:
        freeze(canvas.cache, settings.cache, range(canvas.block.start - shift, canvas.block.stop), len(canvas.tokens))


def slide(cache: SequenceCache, rows: int, first_fixed: int, kv_window: int) -> None:
    """Of a pass over `rows` rows, keep those before the first position it fixed, but for the last kv_window - 1."""
    cache.advance(rows)
    cache.truncate(max(0, first_fixed - (kv_window - 1)))


def freeze(cache: SequenceCache, kind: Freeze, block: range, length: int) -> None:
    """Of the `length` rows of a pass over everything, keep those before `block`, and for "dual" those behind it too.

    Those behind the block move up to those before it: keys carry their positions, and attention sees a set.
    """
    if kind == "prefix":
        cache.advance(block.start)
    elif kind == "dual":
        cache.compact(block.start, list(range(len(block), length - block.start)))


def turn(canvas: Canvas, settings: Remasking) -> Turn:
    """Where the block stands. Every block gets at least one step; earlier blocks take the remainder of the steps."""
    length = settings.block_length or len(canvas.hole)
    blocks = -(-len(canvas.hole) // length)
    index = (canvas.block.start - canvas.hole.start) // length
    steps = max(1, even_share(settings.steps or 0, blocks, index))
    return Turn(canvas.block_passes, steps, len(canvas.block))


def _block_at_first_mask(canvas: Canvas, block_length: int | None) -> range:
    stop = canvas.hole.stop
    if block_length is not None:
        stop = min(stop, canvas.settled + block_length)
    return range(canvas.settled, stop)
