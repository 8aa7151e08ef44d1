"""From what a user calls a model to its folder: a path, a bundled name, or a hub id. Imports no torch.

Knows nothing of what is in the folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from paceline.errors import ConfigError
from paceline.zoo.catalog import bundled_folder

__all__ = ["resolve"]

_NAME = r"[A-Za-z0-9][\w.-]{0,95}"
_FORMS = "Give a folder, the name of a bundled model, or a hub id (owner/name)."


def resolve(name: str | Path, param: str = "model", *, download: bool = True) -> Path:
    """The folder of a model: an existing folder, a bundled model, or a hub id, which is downloaded once.

    Args:
        param: the setting that names it.
        download: False takes what was downloaded before.

    Raises:
        ConfigError: it is none of the three, or the download failed; names the setting.
    """
    if not isinstance(name, str | os.PathLike):
        raise _refusal(param, name, "that is no name of a model")
    path = os.path.expanduser(name)
    # os.path.isdir is False, not an error, for names that no file system takes.
    if os.path.isdir(path):
        return Path(path)
    bundled = bundled_folder(str(name))
    if bundled is not None:
        return bundled
    if isinstance(name, str) and re.fullmatch(f"{_NAME}/{_NAME}", name):
        return _downloaded_now(name, param) if download else _downloaded_before(name, param)
    raise _refusal(param, str(name), "there is no such model")


def _refusal(param: str, name: object, why: str) -> ConfigError:
    return ConfigError(f"{param} is {name!r:.200}: {why}.", remedy=_FORMS, param=param)


def _downloaded_now(hub_id: str, param: str) -> Path:
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
        raise _refusal(param, hub_id, f"it is no folder here and cannot be downloaded: {error}") from error


def _downloaded_before(hub_id: str, param: str) -> Path:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub_id, "config.json")
    if not isinstance(found, str):
        raise _refusal(param, hub_id, "it is no folder here, and was not downloaded before")
    return Path(found).parent
