"""Which settings can have no effect beside the others, and what would give them one.

Such a setting is refused where a user asks for it, and does nothing where a profile does, or where a section does and
what was said outside of it took away the effect: `--lookup 0` over a file for lookup. Plain rules on settings; knows
nothing of what they do, and imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from paceline.errors import ConfigError

__all__ = ["check_effects"]


class _Need(NamedTuple):
    """What some settings need to have an effect.

    Attributes:
        settings: which.
        others: the settings that it hangs on; the first that is set is told.
        met: whether it is so, of the settings of a method.
        remedy: how it gets so.
        sections: refused inside of a section, too.
    """

    settings: tuple[str, ...]
    others: tuple[str, ...]
    met: Callable[[Any], bool]
    remedy: str
    sections: bool = True


_COPIES = ("lookup_file", "prompt_lookup_min", "prompt_lookup_max", "lookup_factor")
_TREES = ("rescorer", "max_nodes", "pruning_threshold")
_ENDS = ("initial_temperature", "final_temperature")

_NEEDS: dict[str, tuple[_Need, ...]] = {
    "dflash": (
        _Need(_COPIES, ("lookup",), lambda own: own.lookup > 0, "Set lookup"),
        _Need(("rescorer_weight",), ("rescorer",), lambda own: own.rescorer is not None, "Name a rescorer"),
        _Need(
            ("draft_temperature", "overlap", *_ENDS, *_TREES),
            ("block_size",),
            lambda own: own.block_size != 1,
            "Raise block_size",
        ),
        _Need(  # the command line hands on what a profile sets in a section as if a file did
            ("diffusion_steps",),
            ("block_size",),
            lambda own: own.block_size != 1,
            "Raise block_size",
            sections=False,
        ),
        _Need(
            ("candidate_num",),
            ("block_size", "lookup"),
            lambda own: own.block_size != 1 or own.lookup > 0,
            "Raise block_size",
        ),
        _Need(_TREES, ("candidate_num", "block_size"), lambda own: own.may_branch, "Raise candidate_num"),
        _Need(
            _ENDS,
            ("draft_temperature",),
            lambda own: own.draft_temperature != "off",
            "Set draft_temperature to adaptive or fixed",
        ),
        _Need(
            ("initial_temperature",),
            ("diffusion_steps", "draft_temperature"),
            lambda own: own.diffusion_steps > 1 or own.draft_temperature != "fixed",
            "Raise diffusion_steps: the only pass has the final temperature",
        ),
    ),
    "apd": (
        _Need(("tau",), ("schedule",), lambda own: own.schedule == "adaptive", "Set schedule to adaptive"),
        _Need(("tau",), ("alpha",), lambda own: 0 < own.alpha < 1, "Set alpha above 0 and below 1"),
    ),
    "diffusion": (
        _Need(("eps",), ("step_schedule",), lambda own: own.step_schedule == "linear", "Set step_schedule to linear"),
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
    for need in _NEEDS.get(method, ()):
        given = [*asked, *(inside if need.sections and not set(need.others) & set(asked) else ())]
        idle = [name for name in need.settings if name in given and not _asks_for_nothing(name, own)]
        if idle and not need.met(own):
            other = next((name for name in need.others if getattr(own, name) is not None), need.others[0])
            told = ", and ".join(f"{name} is {_word(getattr(own, name))}" for name in (idle[0], other))
            remedy = f"{need.remedy}, or leave {idle[0]} out."
            raise ConfigError(f"{told}: it has no effect.", remedy=remedy, param=idle[0])


def _asks_for_nothing(name: str, own: Any) -> bool:
    return name in _NOTHING and getattr(own, name) == _NOTHING[name]


def _word(value: object) -> str:
    return "not set" if value is None else f"{value if isinstance(value, int | float) else str(value)!r:.80}"
