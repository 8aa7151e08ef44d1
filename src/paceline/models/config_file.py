"""config.json of a folder that is to be a model. Imports no torch. What is in it, `spec` and `drafter_spec` say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.errors import CheckpointError
from paceline.models.drafter_spec import DRAFTERS
from paceline.models.json_file import read_json

__all__ = ["model_config"]


def model_config(folder: Path) -> dict[str, Any]:
    """The config.json of a model that decodes by itself.

    Raises:
        CheckpointError: there is none, or it is a drafter's.
    """
    config = read_json(folder / "config.json")
    if config.get("architectures") in [[name] for name in DRAFTERS]:
        remedy = "Give the target it was trained for; a drafter goes beside its target, where one is asked for."
        raise CheckpointError(f"{folder} is a DFlash drafter, not a model.", remedy=remedy)
    return config
