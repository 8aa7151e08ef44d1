"""In which order a masked answer is uncovered, and how many of its tokens a forward pass fixes: settings and rules.

    published as                              settings
    LLaDA (2502.09992)             strategy low_confidence or random, steps, block_length; confidence_eos_eot_inf of its
                                   released code is end_last
    Fast-dLLM (2505.22618)         strategy low_confidence, threshold or factor, block_length, cache
    Dream (2508.15487)             step_schedule linear, steps; maskgit_plus is strategy low_confidence, topk_margin is
                                   margin, entropy is entropy, origin is random
    APD alone (2506.00413)         strategy left_to_right, tokens_per_step, window, kv_window

Pure functions on numbers; imports no torch. Knows nothing of models, caches or how tokens are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from paceline.decode.adaptive import KvWindow, Window
from paceline.errors import SettingError
from paceline.settings import Setting, check_kinds, check_ranges

__all__ = [
    "Freeze",
    "Remasking",
    "StepSchedule",
    "Strategy",
    "Turn",
    "above_threshold",
    "even_share",
    "how_many",
    "linear_share",
    "within_factor",
]

Strategy = Literal["low_confidence", "margin", "entropy", "random", "left_to_right"]
StepSchedule = Literal["even", "linear"]
Freeze = Literal["none", "prefix", "dual"]

_COUNTS = ("steps", "threshold", "factor", "tokens_per_step")


@dataclass(frozen=True, slots=True)
class Remasking:
    """How an answer is uncovered. Without steps, threshold, factor and tokens_per_step: one token per pass.

    Raises:
        ConfigError: a value out of range, or two settings that exclude each other; names them and what is allowed.
    """

    strategy: Annotated[Strategy, Setting("Diffusion: which tokens are fixed first; low_confidence if left out.")] = (
        "low_confidence"
    )
    steps: Annotated[
        int | None, Setting("Diffusion: passes of the whole answer, shared evenly by its blocks.", least=1)
    ] = None
    threshold: Annotated[
        float | None, Setting("Diffusion: fix every token with at least this probability.", above=0, most=1)
    ] = None
    factor: Annotated[
        float | None,
        Setting("Diffusion: fix n tokens while the n-th has a probability of at least 1 - factor / (n + 1).", above=0),
    ] = None
    tokens_per_step: Annotated[int | None, Setting("Diffusion: fix so many tokens in every pass; 1.", least=1)] = None
    step_schedule: Annotated[
        StepSchedule, Setting("Diffusion: how a block's steps share its tokens: even, or linear, as in Dream; even.")
    ] = "even"
    eps: Annotated[float, Setting("Diffusion: where Dream's schedule ends; 0.001.", least=0, below=1)] = 1e-3
    block_length: Annotated[
        int | None, Setting("Diffusion: fill the answer block by block, each so many tokens long.", least=1)
    ] = None
    cache: Annotated[
        Freeze, Setting("Diffusion: keys and values that a block's first pass freezes: before it, or around it; none.")
    ] = "none"
    end_last: Annotated[
        bool, Setting("Diffusion: end tokens rank behind all other tokens that a pass may fix; no.")
    ] = False
    window: Window = None
    kv_window: KvWindow = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_ranges(self)
        _check_companions(self)


class Turn(NamedTuple):
    """Where a block stands: passes done in it, passes it gets in all (where `steps` says), and tokens it has."""

    passes: int
    steps: int
    tokens: int


def how_many(settings: Remasking, ranked: list[float], turn: Turn) -> int:
    """How many of the open tokens of a block are fixed in this pass: 0 … len(ranked).

    Args:
        ranked: their worths, falling; probabilities where there is a threshold or a factor.
    """
    if settings.threshold is not None:
        return above_threshold(ranked, settings.threshold)
    if settings.factor is not None:
        return within_factor(ranked, settings.factor)
    if settings.steps is None:
        return min(settings.tokens_per_step or 1, len(ranked))
    if settings.step_schedule == "linear":
        return linear_share(len(ranked), turn.steps, turn.passes, settings.eps)
    return even_share(turn.tokens, turn.steps, turn.passes)


def even_share(total: int, parts: int, index: int) -> int:
    """Part `index` of `total`, split into `parts` as even as can be; earlier parts take the remainder."""
    return total // parts + (index < total % parts)


def linear_share(masked: int, steps: int, index: int, eps: float) -> int:
    """Dream's schedule: int(masked * (1 - t[index + 1] / t[index])), t falling evenly from 1 to eps; all in the last.

    1 - t[i + 1] / t[i] = (1 - eps) / (steps - (1 - eps) i), which rounds once less.
    """
    if index == steps - 1:
        return masked
    return int(masked * (1 - eps) / (steps - (1 - eps) * index))


def above_threshold(ranked: list[float], threshold: float) -> int:
    """How many of the falling probabilities reach the threshold; the best always counts."""
    return max(1, sum(probability >= threshold for probability in ranked))


def within_factor(ranked: list[float], factor: float) -> int:
    """The most n so that each of the first n falling probabilities is c_n >= 1 - factor / (n + 1); at least 1.

    Fast-dLLM also takes the last candidate where only that one fails; this is the published rule.
    """
    count = 0
    while count < len(ranked) and ranked[count] >= 1 - factor / (count + 2):
        count += 1
    return max(1, count)


def _check_companions(settings: Remasking) -> None:
    """Settings that exclude or need each other."""
    given = [name for name in _COUNTS if getattr(settings, name) is not None]
    if len(given) > 1:
        _refuse(settings, given[1], "give at most one of " + ", ".join(_COUNTS), beside=given[0])
    if given and given[0] in ("threshold", "factor") and settings.strategy != "low_confidence":
        _refuse(settings, given[0], f"{given[0]} needs strategy low_confidence", beside="strategy")
    if settings.step_schedule == "linear" and settings.steps is None:
        _refuse(settings, "step_schedule", "step_schedule linear needs steps", beside="steps")
    if settings.end_last and settings.strategy == "left_to_right":
        _refuse(
            settings, "end_last", "from left to right, an end token waits for all before it anyway", beside="strategy"
        )
    for name in ("window", "kv_window"):
        if getattr(settings, name) is not None:
            _check_window(settings, name)


def _check_window(settings: Remasking, name: str) -> None:
    """A window moves with the first mask: it knows no blocks, and no other order."""
    for other, needed in (("strategy", "left_to_right"), ("steps", None), ("block_length", None), ("cache", "none")):
        if getattr(settings, other) != needed:
            _refuse(
                settings, name, f"with {name}, {other} must be {'left out' if needed is None else needed}", beside=other
            )
    if settings.window is not None and (settings.tokens_per_step or 1) > settings.window:
        _refuse(settings, "tokens_per_step", "a pass fixes no more masks than it sees", beside="window")


def _refuse(settings: Remasking, name: str, rule: str, *, beside: str) -> None:
    told = {each: f"is {getattr(settings, each)!r}" for each in (name, beside)}
    raise SettingError(told, remedy=f"Change one of them: {rule}.")
