"""Is an answer the target's own? The rule of docs/equality.md, as a test of finished token ids.

The tokens are fed through the plain target in one pass, and every one of them must be the target's choice after the
tokens before it. Rounding depends on how many rows a pass has, so one exception is allowed, and counted: a near-tie,
where moving a single score (or the edge of a filter) by less than a tolerance makes the target choose that token.
Without filters this says: its perturbed score is less than the tolerance behind the best. What follows a near-tie is
judged after the token that was taken, so nothing goes unchecked. Does not know which method gave the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paceline.bench.forced import ROWS, read_forced
from paceline.decode.processors import process, widen
from paceline.decode.sampling import choose
from paceline.decode.sequence import Sequence
from paceline.decode.target import Target
from paceline.decode.tree import chain
from paceline.request import Sampling

__all__ = ["Verdict", "certify", "compare", "ends_rightly", "tolerance"]

_TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4}
_HALF_STEPS = 4.0
"""Half precision: by how many units in the last place of the row's largest score two scores may differ. Measured on 16
random layers, one row at a time against all at once: single scores move by 0.5 on average and 3.5 at most. The bundled
model's move by 0.3 and 2.3 in half, by 0.1 and 1.0 in mixed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found.

    Attributes:
        identical: every token is the target's own, near-ties included.
        near_ties: tokens that are the target's own only within the tolerance, up to `first_wrong`.
        first_wrong: index of the first token that is not the target's; None where there is none.
    """

    identical: bool
    near_ties: int = 0
    first_wrong: int | None = None


def tolerance(dtype: torch.dtype, largest_score: float) -> float:
    """How close two scores are a near-tie: 1e-4 in float32; relative to the row's largest score in half precision."""
    return _TOLERANCES.get(dtype) or _HALF_STEPS * torch.finfo(dtype).eps * largest_score


def compare(
    target: Target, prompt: Many[int], sampling: Sampling, seed: int, *, own: Many[int], other: Many[int]
) -> Verdict:
    """Is `other` the same answer to a request as `own`, which plain decoding gave? Near-ties are those of `other`.

    Equal answers need no model. An answer that only breaks off earlier, or goes on longer, is not the same.
    """
    if list(own) == list(other):
        return Verdict(True)
    shorter = min(len(own), len(other))
    if list(own[:shorter]) == list(other[:shorter]):
        return Verdict(False, 0, shorter)
    return certify(target, prompt, sampling, seed, other)


def certify(target: Target, prompt: Many[int], sampling: Sampling, seed: int, tokens: Many[int]) -> Verdict:
    """Check every token of an answer, without knowing how it came about; does not judge where it ends.

    Args:
        target: the plain target; it works in its own precision, and the tolerance is that of its products.
        prompt: a prompt that `target.check` lets pass; together with the answer it fits the context.
        seed: the one in effect.
        tokens: the answer, its stop token included.
    """
    usable = range(target.usable_tokens)
    length = next((index for index, token in enumerate(tokens) if token not in usable), len(tokens))
    verdict = _certify(target, prompt, sampling, seed, tokens[:length])
    if verdict.identical and length < len(tokens):
        return Verdict(False, verdict.near_ties, length)
    return verdict


def ends_rightly(tokens: Many[int], end_token_ids: frozenset[int], limit_tokens: int) -> bool:
    """An answer ends at its first end token, or at the limit; nowhere else."""
    ends = [index for index, token in enumerate(tokens, start=1) if token in end_token_ids]
    return len(tokens) == min(ends[0] if ends else limit_tokens, limit_tokens)


@torch.inference_mode()
def _certify(target: Target, prompt: Many[int], sampling: Sampling, seed: int, tokens: Many[int]) -> Verdict:
    if not tokens:
        return Verdict(True)
    sequence = target.open(prompt, sampling, seed, None)
    near_ties = 0
    for hidden in torch.split(read_forced(target, sequence, tokens).hidden, ROWS):
        first = len(sequence.tokens)
        path = tokens[first - len(prompt) :][: len(hidden)]
        scores = widen(process(target.model.head(hidden), sampling, sequence.counts, chain(path[:-1]), target.banned()))
        own = choose(scores, sampling, sequence.noise, range(first, first + len(path))).tolist()
        for row in (row for row, token in enumerate(path) if token != own[row]):
            allowed = tolerance(target.model.product_dtype, _largest(scores[row]))
            if not _reachable(scores[row], own[row], path[row], allowed, sequence=sequence, position=first + row):
                return Verdict(False, near_ties, first + row - len(prompt))
            near_ties += 1
        sequence.commit(path)
    return Verdict(True, near_ties)


def _largest(scores: Tensor) -> float:
    return float(scores[scores.isfinite()].abs().max())


def _reachable(scores: Tensor, own: int, token: int, allowed: float, *, sequence: Sequence, position: int) -> bool:
    """Would a change of at most `allowed` make the target choose `token` instead of `own`?"""
    return any(
        int(choose(moved, sampling, sequence.noise, range(position, position + 1))) == token
        for moved in _moved(scores.unsqueeze(0), own, token, allowed)
        for sampling in _edges(sequence.sampling, allowed)
    )


def _moved(scores: Tensor, own: int, token: int, allowed: float) -> Iterator[Tensor]:
    """The scores [1, vocab], with `token` moved up, and with `own` moved down."""
    yield scores
    for index, step in ((token, allowed), (own, -allowed)):
        moved = scores.clone()
        moved[0, index] += step
        yield moved


def _edges(sampling: Sampling, allowed: float) -> Iterator[Sampling]:
    """The settings, and those with the edge of a probability filter moved as far, on a logarithmic scale."""
    yield sampling
    for share in (math.exp(-allowed), math.exp(allowed)):
        if sampling.top_p < 1.0:
            yield replace(sampling, top_p=min(1.0, sampling.top_p * share))
        if sampling.min_p > 0.0:
            yield replace(sampling, min_p=min(1.0, sampling.min_p * share))
