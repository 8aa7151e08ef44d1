"""The bundled models: their names, where they lie, and what they are.

Knows nothing of how a checkpoint is read.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "BUNDLED_DLLM",
    "BUNDLED_DRAFTER",
    "BUNDLED_TARGET",
    "BUNDLED_VERIFIER",
    "bundled_folder",
    "bundled_names",
]

BUNDLED_TARGET = "pace-13m"
BUNDLED_DRAFTER = "pace-13m-dflash"
BUNDLED_DLLM = "pace-13m-diffusion"
BUNDLED_VERIFIER = "pace-2m-verifier"

_WEIGHTS = Path(__file__).parent / "weights"


def bundled_names() -> list[str]:
    """Names that `LLM` and the commands accept, in order."""
    return sorted(path.parent.name for path in _WEIGHTS.glob("*/config.json"))


def bundled_folder(name: str) -> Path | None:
    """The checkpoint folder of a bundled model, or None where there is no such model."""
    return _WEIGHTS / name if name in bundled_names() else None
