"""What every peer is given: the same weights, precision and end tokens. Knows nothing of the peers."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from paceline.errors import ConfigError

__all__ = ["Given", "peer_library"]


@dataclass(frozen=True, slots=True)
class Given:
    """One pair of checkpoints and how it is measured.

    Attributes:
        folder: the target.
        drafter_folder: its DFlash drafter, where there is one.
        assistant_folder: a smaller model of the same tokens, where the user named one.
        dtype, device: of the weights.
        exact: our own target computes with the weights of its file in float32.
        end_token_ids: an answer ends behind the first of them.
        most_tokens: of the longest prompt and its answer together.
        temperature: of every request; above 0 only for a peer that samples.
    """

    folder: Path
    drafter_folder: Path | None
    assistant_folder: Path | None
    dtype: torch.dtype
    device: torch.device
    exact: bool
    end_token_ids: frozenset[int]
    most_tokens: int
    temperature: float = 0.0


def peer_library(module: str, install: str) -> Any:
    """The module of a peer, imported now.

    Raises:
        ConfigError: it is not installed; `install` is the command to run.
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ConfigError(
            f"{name}, which a peer needs, is not installed.", remedy=f"Install it: {install}.", param="peers"
        ) from error
