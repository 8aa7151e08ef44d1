"""How a native pass draws tokens where it makes the scores: what `sampling` does with them, as numbers for each row.

Only where tokens are drawn from the scores as they are. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.decode.noise import NoiseCache
from paceline.decode.sampling import heats, is_greedy, keys_of
from paceline.native import Draws
from paceline.request import Sampling

__all__ = ["drawing", "ranking", "together", "turn_by_turn"]


def drawing(sampling: Sampling, noise: NoiseCache, positions: Sequence[int]) -> Draws | None:
    """How `choose` draws, for a native call; None where it filters the scores before."""
    rows = len(positions)
    if is_greedy(sampling):
        return Draws([1.0] * rows, [0.0] * rows, [0] * rows)
    if sampling.filtered:
        return None
    return Draws([1.0] * rows, [sampling.temperature] * rows, noise.keys(positions))


def ranking(sampling: Sampling, noise: NoiseCache | None, positions: Sequence[int], spread: float) -> Draws | None:
    """How `ranked` ranks, for a native call; None where it filters the scores before."""
    if sampling.filtered and not is_greedy(sampling):
        return None
    scale, heat = heats(sampling, noise, spread)
    return Draws([scale] * len(positions), [heat] * len(positions), keys_of(noise, positions))


def together(parts: Sequence[Draws | None], banned: Sequence[int]) -> Draws | None:
    """Those of all rows of a batch, and ids that none of them may draw; None where one of them is."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if len(known) == 1:
        return known[0]._replace(banned=banned)
    scales = [scale for part in known for scale in part.scales]
    noises = [noise for part in known for noise in part.noises]
    return Draws(scales, noises, [key for part in known for key in part.keys], banned)


def turn_by_turn(parts: Sequence[Draws], banned: Sequence[int]) -> Draws:
    """Those of all sequences, as many of each: the first of every one, then the second, …"""
    first, *others = parts
    if not others:
        return first._replace(banned=banned)
    scales, noises, keys = (
        [number for turn in zip(*columns, strict=True) for number in turn]
        for columns in zip(*(part[:3] for part in parts), strict=True)
    )
    return Draws(scales, noises, keys, banned)
