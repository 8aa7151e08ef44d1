"""How far APD trusts the diffusion model, and how much it lets it see: settings and rules (arXiv 2506.00413).

    weight     R = 1 / (1 + e), e = (1 - alpha) / alpha * f: the dLLM's share of R log p_D + (1 - R) log p_AR
    fixed      f = 1, so R = alpha, and the window stays; the rule of the paper, and the default
    adaptive   f = 2 (1 - tau) (1 - c), c = the verifier's mean probability of this step's proposals: a sure verifier
               lets more through, and the next step sees more masks

Pure functions on numbers; imports no torch. Both rules know nothing but the request's own probabilities, so an answer
does not depend on the clock or on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from paceline.settings import Setting, check_kinds, check_ranges

__all__ = ["Adaptive", "KvWindow", "Window", "dllm_weight", "next_window"]

_NARROWEST = 4

Schedule = Literal["fixed", "adaptive"]

Window = Annotated[
    int | None,
    Setting(
        "APD, diffusion: masks that the model sees at most; 32 with apd, else all.",
        least=1,
        null_word="all",
        alias="window_size",
    ),
]
KvWindow = Annotated[
    int | None,
    Setting(
        "APD, diffusion: recompute the last pass's tokens and so many before, less one; 16 with apd, else all.",
        least=1,
        null_word="all",
    ),
]
"""Shared with the left-to-right decoding of masked diffusion; None is all."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """How APD decodes.

    Raises:
        ConfigError: a value out of range; names it and what is allowed.
    """

    alpha: Annotated[
        float,
        Setting(
            "APD: the diffusion model's weight; 1 keeps all it proposes, 0 what the verifier would say too; 0.5.",
            least=0,
            most=1,
        ),
    ] = 0.5
    tau: Annotated[
        float,
        Setting(
            "APD: how much a sure verifier adds to that weight, if it adapts, as it does where this is given; 0.5.",
            least=0,
            most=1,
        ),
    ] = 0.5
    schedule: Annotated[
        Schedule,
        Setting(
            "APD: whether weight and window follow the verifier's confidence; fixed, or adaptive where tau is given."
        ),
    ] = "fixed"
    window: Window = 32
    kv_window: KvWindow = 16
    ngrams: Annotated[
        str | Path | None,
        Setting("APD: folder that `paceline train ngram` wrote; skips passes of the verifier, may change the text."),
    ] = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_ranges(self)


def dllm_weight(settings: Adaptive, confidence: float) -> float:
    """R of a step, in [0, 1]: what the diffusion model weighs; 0 where alpha is 0.

    Args:
        confidence: the mean probability of this step's proposals under the verifier, in [0, 1].
    """
    if settings.alpha == 0.0:
        return 0.0
    doubt = 1.0 if settings.schedule == "fixed" else 2.0 * (1.0 - settings.tau) * (1.0 - confidence)
    return 1.0 / (1.0 + (1.0 - settings.alpha) / settings.alpha * doubt)


def next_window(settings: Adaptive, masks: int, confidence: float) -> int:
    """How many of the `masks` left the next step may see: the window, as far as there are so many.

    Where the schedule is adaptive, between 4 and so many, by the step's confidence.
    """
    if settings.window is None:
        return masks
    widest = min(settings.window, masks)
    if settings.schedule == "fixed" or widest <= _NARROWEST:
        return widest
    return _NARROWEST + round((widest - _NARROWEST) * confidence)
