"""Settings for a place to run in: a small machine, or a server.

A profile is written as a file of settings is, and is the lowest layer: files, flags and keywords win over it. What
stands in the section of a method counts for that method alone. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from paceline.errors import ConfigError
from paceline.settings import Setting

__all__ = ["PROFILES", "Profile", "ProfileSetting", "profile_of"]

Profile = Literal["edge", "cloud"]

PROFILES: dict[str, dict[str, Any]] = {
    "edge": {"precision": "half", "max_batch": 1, "dflash_params": {"block_size": 8, "diffusion_steps": 4}},
    "cloud": {"precision": "mixed", "max_batch": 8, "dflash_params": {"block_size": 16, "diffusion_steps": 6}},
}

ProfileSetting = Annotated[
    Profile | None,
    Setting(
        "Settings for a small machine or a server, below all others: precision, max_batch and, for dflash, block_size "
        "and diffusion_steps.",
        presets=PROFILES,
    ),
]


def profile_of(name: Profile | None) -> Mapping[str, Any]:
    """The settings of a profile; none for None.

    Raises:
        ConfigError: no such profile.
    """
    if name is None:
        return {}
    if not isinstance(name, str) or name not in PROFILES:
        remedy = f"There are: {', '.join(PROFILES)}."
        raise ConfigError(f"profile is {name!r:.40}.", remedy=remedy, param="profile")
    return PROFILES[name]
