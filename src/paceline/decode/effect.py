"""Which settings of decoding can have no effect beside the others, and what would give them one.

Such a setting is refused where a user asks for it, and does nothing where a profile does, or where a section does and
what was said outside of it took away the effect: `--lookup 0` over a file for lookup. Plain rules on settings; knows
nothing of what they do, and imports no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from paceline.decode.speculation import Speculation
from paceline.effects import Limit, Need, check_limits, check_needs

__all__ = ["check_effects"]


_COPIES = ("lookup_file", "prompt_lookup_min", "prompt_lookup_max", "lookup_factor")
_TREES = ("rescorer", "max_nodes", "pruning_threshold")
_ENDS = ("initial_temperature", "final_temperature")

_NEEDS: dict[str, tuple[Need, ...]] = {
    "dflash": (
        Need(_COPIES, ("lookup",), lambda own: own.lookup > 0, "Set lookup"),
        Need(("rescorer_weight",), ("rescorer",), lambda own: own.rescorer is not None, "Name a rescorer"),
        Need(
            ("draft_temperature", *_ENDS, *_TREES),
            ("block_size",),
            lambda own: own.block_size != 1,
            "Raise block_size",
        ),
        Need(
            ("candidate_num",),
            ("block_size", "lookup"),
            lambda own: own.block_size != 1 or own.lookup > 0,
            "Raise block_size",
        ),
        Need(_TREES, ("candidate_num", "block_size"), lambda own: own.may_branch, "Raise candidate_num"),
        Need(
            _ENDS,
            ("draft_temperature",),
            lambda own: own.draft_temperature != "off",
            "Set draft_temperature to adaptive or fixed",
        ),
        Need(
            ("initial_temperature",),
            ("diffusion_steps", "draft_temperature"),
            lambda own: own.diffusion_steps > 1 or own.draft_temperature != "fixed",
            "Raise diffusion_steps: the only pass has the final temperature",
        ),
    ),
    "apd": (
        Need(("tau",), ("schedule",), lambda own: own.schedule == "adaptive", "Set schedule to adaptive"),
        Need(("tau",), ("alpha",), lambda own: 0 < own.alpha < 1, "Set alpha above 0 and below 1"),
    ),
    "diffusion": (
        Need(("eps",), ("step_schedule",), lambda own: own.step_schedule == "linear", "Set step_schedule to linear"),
    ),
}

_NOTHING: Mapping[str, object] = {
    "candidate_num": 1,
    "diffusion_steps": 1,
    "draft_temperature": "off",
    "lookup_file": None,
    "overlap": 0,
    "pruning_threshold": 0,
    "rescorer": None,
}
"""What asks for nothing: it may be said where nothing would come of it anyway."""


def check_effects(method: str, own: Any, asked: Collection[str], inside: Collection[str] = ()) -> None:
    """Refuse a setting that was asked for and can have no effect beside the others.

    Args:
        own: the settings of the method.
        asked: names of those that a user set outside of a section.
        inside: of those set in the section of the method; one of them may lose its effect by what was asked for.

    Raises:
        ConfigError: names the setting, that which it hangs on, and what would give it an effect.
    """
    check_needs(_NEEDS.get(method, ()), own, asked, inside, _NOTHING)
    check_limits(_LIMITS.get(method, ()), own, asked, inside)


def _largest_overlap(own: Speculation) -> int | None:
    """Behind the anchor a block has a slot that is drafted anew, and in the others what was left."""
    return None if own.block_size == "auto" else max(0, own.block_size - 2)


def _most_steps(own: Speculation) -> int | None:
    """A pass fixes one slot at least. On a schedule, the number of passes also says how fast the temperature falls."""
    if own.block_size == "auto" or (own.draft_temperature != "off" and own.block_size > 1):
        return None
    return max(1, own.block_size - 1)


_LIMITS: dict[str, tuple[Limit, ...]] = {
    "dflash": (
        Limit("overlap", "block_size", _largest_overlap, 0, "Raise block_size"),
        Limit("diffusion_steps", "block_size", _most_steps, 1, "Raise block_size"),
    ),
}
