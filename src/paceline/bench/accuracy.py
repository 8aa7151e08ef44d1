"""From answers to the figures of one setting: how many are right, how fast they came, and in how many passes.

Pure arithmetic: knows nothing of models, clocks or texts. Tells the accuracy that a setting keeps of a reference on
the same problems (`intervals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from paceline.bench.intervals import Pairs, kept_share_low, wilson

__all__ = ["ACCURACY_DEFINITIONS", "GradedAnswer", "accuracy_figures", "kept_figures", "speed_figures"]

ACCURACY_DEFINITIONS = {
    "problems": "how many were answered; in kinds and levels, of that kind or level",
    "right": "how many of the answers are right, by the check of each problem",
    "accuracy": "right / problems",
    "accuracy_interval": "its 95 % interval (Wilson's score test)",
    "kinds": "accuracy and its interval by kind of problem",
    "levels": "the same by steps of thought, with the passes that an answer and a token of it took",
    "kept_share": "accuracy / accuracy of the reference on the same problems; null where that is 0",
    "kept_share_low": "what kept_share is at least, with 95 % confidence on one side: score test of the ratio of "
    "paired proportions (Nam and Blackwelder 2002; Tang, Tang and Chan 2003)",
    "pairs": "on how many problems both were right, only one of them, neither",
    "tokens": "of all answers together, end tokens included; what stands behind an end token is not counted",
    "seconds": "sum over batches of the median over repeats, wall clock from the token ids of the prompts to the last "
    "token of the last answer, prompt passes included",
    "tokens_per_second": "tokens / seconds",
    "tokens_per_forward": "tokens / forwards",
    "forwards": "passes of the model whose tokens these are, the prompt pass included where it gives a token; the "
    "drafter or verifier, which works beside it, not counted",
    "forwards_per_answer": "forwards / answers: the steps of an answer",
    "first_token_ms": "median over problems: milliseconds from the token ids of the prompt to the first token that "
    "stays where it is, of one repeat",
    "prefix_hit_rate": "of the tokens before the first mask, over all passes of a diffusion model: the share whose "
    "keys and values were there from earlier passes; null for other models",
}
"""What each figure means; part of every result."""


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """One answer to one problem, and whether it is right.

    Attributes:
        tokens, forwards: of the answer, as in `Stats`.
        first_seconds: up to the first token that stays.
        prefix_tokens, reused_tokens: as in `Stats`.
    """

    kind: str
    level: int
    right: bool
    tokens: int
    forwards: int
    first_seconds: float
    prefix_tokens: int
    reused_tokens: int


def accuracy_figures(graded: Sequence[GradedAnswer]) -> dict[str, Any]:
    """How many are right, in all, by kind and by level."""
    kinds = dict.fromkeys(each.kind for each in graded)
    levels = sorted({each.level for each in graded})
    by_level = {level: [each for each in graded if each.level == level] for level in levels}
    return {
        **_right(graded),
        "kinds": {kind: _right([each for each in graded if each.kind == kind]) for kind in kinds},
        "levels": {str(level): _right(found) | _steps(found) for level, found in by_level.items()},
    }


def _right(graded: Sequence[GradedAnswer]) -> dict[str, Any]:
    right, total = sum(each.right for each in graded), len(graded)
    interval = list(wilson(right, total))
    return {"problems": total, "right": right, "accuracy": right / total, "accuracy_interval": interval}


def _steps(graded: Sequence[GradedAnswer]) -> dict[str, Any]:
    tokens, forwards = (sum(getattr(each, name) for each in graded) for name in ("tokens", "forwards"))
    return {"forwards_per_answer": forwards / len(graded), "tokens_per_forward": tokens / forwards}


def speed_figures(graded: Sequence[GradedAnswer], seconds: float) -> dict[str, Any]:
    """How fast they came, all of them in so many seconds."""
    tokens, forwards, prefix, reused = (
        sum(getattr(each, name) for each in graded) for name in ("tokens", "forwards", "prefix_tokens", "reused_tokens")
    )
    return {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "forwards": forwards,
        **_steps(graded),
        "first_token_ms": 1000.0 * median(each.first_seconds for each in graded),
        "prefix_hit_rate": reused / prefix if prefix else None,
    }


def kept_figures(graded: Sequence[GradedAnswer], reference: Sequence[GradedAnswer]) -> dict[str, Any]:
    """How much of the accuracy of a reference is left; both answered the same problems in the same order."""
    outcomes = [(mine.right, theirs.right) for mine, theirs in zip(graded, reference, strict=True)]
    pairs = Pairs(*(outcomes.count(each) for each in ((True, True), (True, False), (False, True), (False, False))))
    return {"kept_share": pairs.share, "kept_share_low": kept_share_low(pairs), "pairs": pairs._asdict()}
