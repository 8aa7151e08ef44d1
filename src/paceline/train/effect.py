"""Which settings of training can have no effect beside the others, and what would give them one.

Such a setting is refused where a user asks for it. Plain rules on settings; knows nothing of what they do, and imports
no torch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, is_dataclass

from paceline.effects import Need, check_needs
from paceline.train.diffusion_options import DllmConfig
from paceline.train.options import Objective, ResponsesConfig, VersionConfig

__all__ = ["check_training"]

_NEEDS: dict[type, tuple[Need, ...]] = {
    Objective: (
        Need(("gamma",), ("weighting",), lambda own: own.weighting == "decay", "Set weighting to decay"),
        Need(("teacher_top_k",), ("distill_share",), lambda own: own.distill_share > 0, "Raise distill_share"),
        Need(
            ("teacher_steps",),
            ("step_distill_share",),
            lambda own: own.step_distill_share > 0,
            "Raise step_distill_share",
        ),
    ),
    VersionConfig: (
        Need(
            ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"),
            ("drafter_version",),
            lambda own: own.drafter_version == 2,
            "Set drafter_version to 2",
        ),
    ),
    ResponsesConfig: (
        Need(("temperatures",), ("sampled_share",), lambda own: own.sampled_share > 0, "Raise sampled_share"),
    ),
    DllmConfig: (Need(("diffusion_steps",), ("run_share",), lambda own: own.run_share < 1, "Lower run_share"),),
}


def check_training(asked: Collection[str], *configs: object) -> None:
    """Refuse a setting that was asked for and can have no effect beside the others.

    Args:
        asked: names of the settings that a user set.
        configs: with those inside them.

    Raises:
        ConfigError: names the setting, that which it hangs on, and what would give it an effect.
    """
    for config in configs:
        check_needs(_NEEDS.get(type(config), ()), config, asked)
        inner = [getattr(config, field.name) for field in fields(config)]  # type: ignore[arg-type]
        check_training(asked, *filter(is_dataclass, inner))
