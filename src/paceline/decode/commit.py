"""The end of a round: the target's cache and the sequence keep exactly the agreed path, and a record tells of it.

The same for every method whose target reads a proposal. Does not know who proposed, or how agreement came about.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import NamedTuple

from torch import Tensor

from paceline.completion import Round
from paceline.decode.sequence import Sequence
from paceline.decode.target import Reading
from paceline.decode.tree import Proposal

__all__ = ["Kept", "commit_path", "record"]


class Kept(NamedTuple):
    """What a round leaves of one sequence.

    Attributes:
        tokens: the agreed drafts, and the bonus token where it still may be.
        features: [rows, taps * hidden] of the anchor and of the drafts on the path, or None.
    """

    tokens: list[int]
    features: Tensor | None


def commit_path(sequence: Sequence, reading: Reading, path: Many[int]) -> Kept:
    """Commit the drafts at the nodes of `path` and the target's token behind them, no more than may be.

    The cache then covers all tokens but the newest.
    """
    rows = [0, *(node + 1 for node in path)][: sequence.remaining_tokens]
    tokens = [reading.tokens[row] for row in rows]
    sequence.cache.compact(sequence.cache.length, rows)
    sequence.commit(tokens)
    return Kept(tokens, None if reading.features is None else _rows(reading.features, rows))


def record(draft: Proposal, reading: Reading, path: Many[int], kept: Kept, seconds: tuple[float, float]) -> Round:
    """What happened.

    Args:
        seconds: this sequence's share of the time that proposing took, and all that followed.
    """
    return Round(
        proposed=draft.tokens,
        reference=tuple(reading.tokens),
        committed=tuple(kept.tokens),
        accepted=min(len(path), len(kept.tokens)),
        draft_seconds=seconds[0],
        verify_seconds=seconds[1],
        parents=() if draft.is_chain else draft.parents,
        scores=draft.scores,
    )


def _rows(features: Tensor, rows: list[int]) -> Tensor:
    """Some rows, in rising order; the first ones are a view."""
    return features[: len(rows)] if rows[-1] == len(rows) - 1 else features[rows]
