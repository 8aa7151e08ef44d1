"""How far APD trusts the diffusion model, and how much it lets it see: settings and rules (arXiv 2506.00413).

    weight     R = 1 / (1 + e), e = (1 - alpha) / alpha * f: the dLLM's share of R log p_D + (1 - R) log p_AR
    fixed      f = 1, so R = alpha, and the window stays
    adaptive   f = 2 (1 - tau) (1 - c), c = the verifier's mean probability of this step's proposals: a sure verifier
               lets more through, and the next step sees more masks

Pure functions on numbers; imports no torch. Both rules know nothing but the request's own probabilities, so an answer
does not depend on the clock or on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from paceline.settings import Setting, check_kinds, check_ranges

__all__ = ["Adaptive", "dllm_weight", "next_window"]

_NARROWEST = 4

Schedule = Literal["fixed", "adaptive"]


@dataclass(frozen=True, slots=True)
class Adaptive:
    """How APD decodes.

    Raises:
        ConfigError: a value out of range; names it and what is allowed.
    """

    alpha: Annotated[
        float,
        Setting(
            "The diffusion model's weight: 1 keeps all it proposes, 0 all that the verifier would say.", least=0, most=1
        ),
    ] = 0.7
    tau: Annotated[
        float, Setting("How much a sure verifier adds to that weight, where the schedule is adaptive.", least=0, most=1)
    ] = 0.5
    schedule: Annotated[Schedule, Setting("Whether weight and window follow the verifier's confidence.")] = "adaptive"
    window: Annotated[int | None, Setting("Masks that the diffusion model sees at most; all if null.", least=1)] = 32
    kv_window: Annotated[
        int | None,
        Setting("Recompute the tokens of the last step and so many before them, less one; all if null.", least=1),
    ] = 16

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
    """How many of the `masks` left the next step may see: between 4 and the window, by the step's confidence."""
    if settings.window is None:
        return masks
    widest = min(settings.window, masks)
    if settings.schedule == "fixed" or widest <= _NARROWEST:
        return widest
    return _NARROWEST + round((widest - _NARROWEST) * confidence)
