"""Rules of agreement: how far the target follows the draft.

Pure functions. The reference tokens are the target's own choices (sampling.py), never a random verdict: a
draft is only compared, so what is committed is what plain decoding gives (docs/equality.md; compare arXiv:2211.17192,
algorithm 1, which accepts at random). APD compares in the same way, with the product of two models as the reference
(arXiv 2506.00413, equation 5). Knows nothing of noise, sampling or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from paceline.decode.processors import widen

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["equal_prefix", "longest_prefix", "product"]


def longest_prefix(proposed: Sequence[int], reference: Sequence[int]) -> int:
    """How many drafted tokens, from the first on, equal the target's own.

    Args:
        proposed: the drafted chain, without its anchor.
        reference: the target's token after the anchor and after each drafted token: len(proposed) + 1 of them. So
            reference[i] judges proposed[i], and reference[: result + 1] is committed: the agreed drafts and the bonus.
    """
    assert len(reference) == len(proposed) + 1, f"{len(reference)} reference tokens for {len(proposed)} drafts"
    return equal_prefix(proposed, reference[:-1])


def equal_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens, from the first on, are the same in two runs of equal length."""
    for agreed, (first, second) in enumerate(zip(one, other, strict=True)):
        if first != second:
            return agreed
    return len(one)


def product(
    dllm: Float[Tensor, "rows vocab"], verifier: Float[Tensor, "rows vocab"], weight: float
) -> Float[Tensor, "rows vocab"]:
    """Scores of the law p_D^R p_AR^(1 - R), up to a constant of each row; half precision is widened before it is mixed.

    Args:
        dllm, verifier: scores of both models; -inf rules an id out.
        weight: R in [0, 1]; at 0 and 1 the result is that model's own tensor, so that choices from it are equal too.
    """
    if weight in (0.0, 1.0):
        return dllm if weight else verifier
    return weight * widen(dllm) + (1.0 - weight) * widen(verifier)
