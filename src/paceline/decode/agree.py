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
from paceline.decode.tree import ROOT, Proposal

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["agreed_path", "equal_prefix", "product", "surviving"]


def agreed_path(proposal: Proposal, reference: Sequence[int]) -> list[int]:
    """The nodes, from the anchor on, whose tokens are the target's own: the longest path on which both say the same.

    Args:
        reference: the target's token after the anchor and after each node: one more than nodes, so that
            reference[node + 1] follows a node. What is committed is the token of each node on the path, and then
            the reference after the last, the bonus.
    """
    count = len(proposal.tokens)
    assert len(reference) == count + 1, f"{len(reference)} reference tokens for {count} drafts"
    path, last = [], ROOT
    for node, (parent, token) in enumerate(zip(proposal.parents, proposal.tokens, strict=True)):
        if parent == last and token == reference[last + 1]:
            path.append(node)
            last = node
    return path


def surviving(proposal: Proposal, reference: Sequence[int], path: Sequence[int], most: int) -> tuple[int, ...]:
    """The drafts behind a rejected one that the target would follow, as the beginning of the next block.

    The likeliest draft behind the agreed path was wrong, and the bonus stands in its place. What both models say
    behind it may be right behind the bonus, too.

    Returns:
        At most `most` tokens, for the places behind the bonus; none where nothing was rejected.
    """
    last = path[-1] if path else ROOT
    node = next((node for node, parent in enumerate(proposal.parents) if parent == last), None)
    found: list[int] = []
    while node is not None and len(found) < most:
        node = proposal.child(node, reference[node + 1])
        if node is not None:
            found.append(proposal.tokens[node])
    return tuple(found)


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
