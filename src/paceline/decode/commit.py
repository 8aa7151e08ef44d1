"""Read, agree, commit: the target's cache and the sequence keep exactly the agreed path, and a record tells of it.

The same for every method whose target reads a proposal. Does not know who proposed.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import NamedTuple

from torch import Tensor

from paceline.completion import Round
from paceline.decode.agree import agreed_path
from paceline.decode.sequence import Reading, Sequence
from paceline.decode.target import Target
from paceline.decode.tree import Proposal
from paceline.plan import Plan

__all__ = ["Kept", "commit_path", "plain_record", "read_and_commit", "read_plainly", "record"]


class Kept(NamedTuple):
    """What a round leaves of one sequence.

    Attributes:
        tokens: the agreed drafts, and the bonus token where it still may be.
        features: [rows, taps * hidden] of the anchor and of the drafts on the path, or None.
    """

    tokens: list[int]
    features: Tensor | None


def read_and_commit(
    target: Target, sequences: Many[Sequence], drafts: Many[Proposal]
) -> tuple[list[Reading], list[list[int]], list[Kept]]:
    """Let the target read the drafts, and commit as far as it agrees.

    Returns:
        What it read, the nodes that agreed, and what was kept, of each sequence.
    """
    readings = target.read(sequences, drafts)
    paths = [agreed_path(draft, reading.tokens) for draft, reading in zip(drafts, readings, strict=True)]
    return readings, paths, [commit_path(*each) for each in zip(sequences, readings, paths, strict=True)]


def read_plainly(target: Target, sequences: Many[Sequence], rounds: int | None = None) -> tuple[list[Reading], int]:
    """Commit the target's next token to every sequence: `read_and_commit` where nothing is proposed, and shorter.

    Args:
        rounds: how many such rounds there will be, this one included, if they do not go on to the end. What they read
            may be read now.

    Returns:
        What the target says, and how many passes were made: none where that was known.
    """
    behind, passes = [sequence for sequence in sequences if not sequence.ahead], 0
    if behind:
        remaining = min(sequence.remaining_tokens for sequence in behind)
        asked = min(target.passes_at_once, remaining if rounds is None else min(rounds, remaining))
        for sequence, found in zip(behind, target.read_on(behind, asked), strict=True):
            sequence.ahead.extend(found)
            passes = len(found)
    readings = [sequence.ahead.popleft() for sequence in sequences]
    for sequence, reading in zip(sequences, readings, strict=True):
        sequence.cache.advance(1)
        sequence.commit(reading.tokens)
    return readings, passes


def plain_record(reading: Reading, seconds: float, plan: Plan | None = None) -> Round:
    """What happened then; `seconds` is this sequence's share."""
    tokens = tuple(reading.tokens)
    return Round((), tokens, tokens, 0, 0.0, seconds, plan=plan)


def commit_path(sequence: Sequence, reading: Reading, path: Many[int]) -> Kept:
    """Commit the drafts at the nodes of `path` and the target's token behind them, no more than may be.

    The cache then covers all tokens but the newest.
    """
    rows = [0, *(node + 1 for node in path)][: sequence.remaining_tokens]
    tokens = [reading.tokens[row] for row in rows]
    sequence.cache.compact(sequence.cache.length, rows)
    sequence.commit(tokens)
    return Kept(tokens, None if reading.features is None else _rows(reading.features, rows))


def record(
    draft: Proposal,
    reading: Reading,
    path: Many[int],
    kept: Kept,
    seconds: tuple[float, float],
    plan: Plan | None = None,
    dropped: int = 0,
) -> Round:
    """What happened.

    Args:
        seconds: this sequence's share of the time that proposing took, and all that followed.
        plan: what was to be proposed, and why.
        dropped: drafts that were not read.
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
        plan=plan,
        dropped=dropped,
    )


def _rows(features: Tensor, rows: list[int]) -> Tensor:
    """Some rows, in rising order; the first ones are a view."""
    return features[: len(rows)] if rows[-1] == len(rows) - 1 else features[rows]
