"""Which positions a pass over a masked answer computes, and which keys and values it takes as earlier passes left them.

                       prompt | block | later masks, suffix
    none, opening pass xxxxxx   xxxxx   xxxxxxxxxxx     x computed
    prefix             ......   xxxxx   xxxxxxxxxxx     . frozen by the pass that opened the block
    dual               ......   xxxxx   ...........

Fast-dLLM's caches (arXiv 2505.22618). Where row i - shift predicts position i, `shift` rows before the block are
computed too. `kv_window` is APD's (arXiv 2506.00413): a pass computes the tokens that the last one fixed,
kv_window - 1 before them, and everything after. Knows nothing of models and scores.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

from paceline.cache.store import SequenceCache
from paceline.decode.canvas import Canvas
from paceline.decode.remasking import Freeze, Remasking, Turn, even_share

__all__ = ["candidates", "freeze", "keep", "next_window", "turn"]


def next_window(canvas: Canvas, settings: Remasking, shift: int) -> range:
    """The positions of the next pass; opens the next block where one is full."""
    if canvas.settled not in canvas.block:
        canvas.open_block(_block_at_first_mask(canvas, settings.block_length))
        canvas.cache.truncate(0)
    length = len(canvas.tokens)
    if settings.max_lookahead is not None:
        length = min(length, canvas.settled + settings.max_lookahead)
    if settings.kv_window is not None:
        return range(canvas.cache.length, length)
    if settings.cache == "none" or canvas.block_passes == 0:
        return range(length)
    return range(canvas.block.start - shift, canvas.block.stop if settings.cache == "dual" else length)


def keep(canvas: Canvas, settings: Remasking, window: range, shift: int, fixed: Many[int]) -> None:
    """After a pass over `window` that `fixed` some: leave in the cache what the next pass does not compute."""
    if settings.kv_window is not None:
        canvas.cache.advance(len(window))
        canvas.cache.truncate(max(0, fixed[0] - (settings.kv_window - 1)))
    elif canvas.block_passes == 1 and canvas.settled in canvas.block:
        freeze(canvas.cache, settings.cache, range(canvas.block.start - shift, canvas.block.stop), window.stop)


def freeze(cache: SequenceCache, kind: Freeze, block: range, length: int) -> None:
    """Of the `length` rows of a pass over everything, keep those before `block`, and for "dual" those behind it too.

    Those behind the block move up to those before it: keys carry their positions, and attention sees a set.
    """
    if kind == "prefix":
        cache.advance(block.start)
    elif kind == "dual":
        cache.compact(block.start, list(range(len(block), length - block.start)))


def candidates(canvas: Canvas, window: range) -> list[int]:
    """The masks that a pass over `window` may fill."""
    return [position for position in canvas.masked if position in canvas.block and position < window.stop]


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
