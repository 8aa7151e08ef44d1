"""JSON objects in files of others, every key once, since readers would disagree on one that is there twice.

Knows nothing of what they mean. Imports no torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paceline.errors import CheckpointError, UnsafeCheckpoint

__all__ = ["parse_json", "read_json"]


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        CheckpointError: no such file, or not a JSON object.
        UnsafeCheckpoint: a key occurs twice in one object.
    """
    try:
        return parse_json(path.read_bytes(), path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from error


def parse_json(text: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in `text`, which was read from `path`.

    Raises:
        CheckpointError, UnsafeCheckpoint: as `read_json`.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        unique: dict[str, Any] = {}
        for key, value in items:
            if key in unique:
                raise UnsafeCheckpoint(f"{path}: the key {key!r} occurs twice.", remedy="Readers would disagree on it.")
            unique[key] = value
        return unique

    try:
        parsed = json.loads(text.decode(), object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: broken JSON: {error}.", remedy="Get or make it again.") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path}: not a JSON object.")
    return parsed
