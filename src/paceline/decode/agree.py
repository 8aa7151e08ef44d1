"""Rules of agreement: how far the target follows the draft.

Pure functions on tokens. The reference tokens are the target's own choices (sampling.py), never a random verdict: a
draft is only compared, so what is committed is what plain decoding gives (docs/equality.md; compare arXiv:2211.17192,
algorithm 1, which accepts at random). Knows nothing of probabilities, noise or models.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["longest_prefix"]


def longest_prefix(proposed: Sequence[int], reference: Sequence[int]) -> int:
    """How many drafted tokens, from the first on, equal the target's own.

    Args:
        proposed: the drafted chain, without its anchor.
        reference: the target's token after the anchor and after each drafted token: len(proposed) + 1 of them. So
            reference[i] judges proposed[i], and reference[: result + 1] is committed: the agreed drafts and the bonus.
    """
    assert len(reference) == len(proposed) + 1, f"{len(reference)} reference tokens for {len(proposed)} drafts"
    for agreed, (draft, own) in enumerate(zip(proposed, reference, strict=False)):
        if draft != own:
            return agreed
    return len(proposed)
