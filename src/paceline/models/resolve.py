"""From what a user calls a model to its folder: a path, a bundled name, or a hub id. Imports no torch.

Knows nothing of what is in the folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from paceline.errors import CheckpointError
from paceline.zoo.catalog import bundled_folder

__all__ = ["resolve"]

_NAME = r"[A-Za-z0-9][\w.-]{0,95}"
_FORMS = "Give a folder, the name of a bundled model, or a hub id (owner/name)."


def resolve(name: str | Path, *, download: bool = True) -> Path:
    """The folder of a model: an existing folder, a bundled model, or a hub id, which is downloaded once.

    Args:
        download: False takes what was downloaded before.

    Raises:
        CheckpointError: it is none of the three, or the download failed.
    """
    if not isinstance(name, str | os.PathLike):
        raise CheckpointError(f"A model is named {name!r:.80}.", remedy=_FORMS)
    path = os.path.expanduser(name)
    # os.path.isdir is False, not an error, for names that no file system takes.
    if os.path.isdir(path):
        return Path(path)
    bundled = bundled_folder(str(name))
    if bundled is not None:
        return bundled
    if isinstance(name, str) and re.fullmatch(f"{_NAME}/{_NAME}", name):
        return _download(name) if download else _downloaded(name)
    raise CheckpointError(f"There is no model {str(name)!r}.", remedy=_FORMS)


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                hub_id,
                allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"],
                ignore_patterns=["*/*", "consolidated*"],
            )
        )
    except Exception as error:  # the hub client's errors have no common root
        raise CheckpointError(
            f"{hub_id!r} is no folder here and cannot be downloaded: {error}.", remedy=_FORMS
        ) from error


def _downloaded(hub_id: str) -> Path:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub_id, "config.json")
    if not isinstance(found, str):
        raise CheckpointError(f"{hub_id!r} is no folder here, and was not downloaded before.", remedy=_FORMS)
    return Path(found).parent
