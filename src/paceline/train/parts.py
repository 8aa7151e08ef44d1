"""Texts that a model writes to be learned from, in files of some prompts each: made one by one, so that a killed run
goes on with the next, and read back whole. Knows nothing of what stands in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from paceline.errors import TrainingError

__all__ = ["Part", "decisive", "parts_of", "read_parts"]


class Part(NamedTuple):
    """A file, and the prompts whose texts it holds; the first of them is number `first` of all."""

    path: Path
    first: int
    prompts: Sequence[tuple[int, ...]]


def parts_of(prompts: Sequence[tuple[int, ...]], size: int, folder: Path) -> list[Part]:
    """All parts in order, each of `size` prompts, but for the last."""
    firsts = range(0, len(prompts), size)
    return [
        Part(folder / f"part-{number:04d}.npz", first, prompts[first : first + size])
        for number, first in enumerate(firsts)
    ]


def read_parts(folder: Path, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
    """The arrays of these names, part by part.

    Raises:
        TrainingError: there is none, or one that cannot be read.
    """
    paths = sorted(folder.glob("part-*.npz"))
    if not paths:
        raise TrainingError(f"{folder} holds no texts.", remedy="Generate them first.")
    for path in paths:
        try:
            with np.load(path, allow_pickle=False) as part:
                arrays = [part[name] for name in names]
        except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
            remedy = "Remove it: the same command makes it again."
            raise TrainingError(f"{path} cannot be read: {error}.", remedy=remedy) from error
        yield arrays


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide what is written; the batch, which may be lowered where memory is short, does not.

    Those of the texts may stand by themselves, under `texts`.
    """
    flat = {**settings, **settings.get("texts", {})}
    return {name: value for name, value in flat.items() if name not in ("batch", "texts")}
