"""Whether the extension is there, which instruction set it uses, and its threads.

The extension holds the kernels once for every instruction set it was built for; which of them run is decided here, once
for each thing that is packed. Knows nothing of what they compute.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paceline.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paceline.native._native import Pool

__all__ = [
    "VARIABLE",
    "applies",
    "applies_to",
    "array",
    "extension",
    "instruction_sets",
    "instructions",
    "pool",
    "why_not",
]

VARIABLE = "PACELINE_NATIVE"
"""Environment variable: a lower instruction set than the best, or "off"."""


def why_not() -> str | None:
    """Why torch computes what this package would, in one line; None where it does not.

    Raises:
        ConfigError: the environment asks for an instruction set that is not there.
    """
    if os.environ.get(VARIABLE) == "off":
        return f"{VARIABLE} is off."
    if _load() is None:
        return "The native extension was not built: there was no C++20 compiler, or it failed (pip install -v tells)."
    instructions()
    return None


def applies(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this package computes in this precision and place: float32 on the CPU, and the extension is there."""
    return dtype == torch.float32 and device.type == "cpu" and why_not() is None


def applies_to(weight: Tensor) -> bool:
    """`applies` to where and what a weight is."""
    return applies(weight.dtype, weight.device)


def instruction_sets() -> tuple[str, ...]:
    """Those that the extension was built for and this processor has, the best first; none without the extension."""
    native = _load()
    return () if native is None else tuple(native.instruction_sets())


def instructions() -> str:
    """The set to use: the best, or what the environment asks for.

    Raises:
        ConfigError: it asks for one that is not there.
    """
    usable = instruction_sets()
    asked = os.environ.get(VARIABLE) or usable[0]
    if asked not in usable:
        remedy = f"On this {platform.machine()} there are {', '.join(usable)}, or off."
        raise ConfigError(f"{VARIABLE} is {asked!r}.", remedy=remedy, param=VARIABLE)
    return asked


def extension() -> ModuleType:
    """The extension, where `why_not` has nothing to say."""
    native = _load()
    assert native is not None, "ask why_not first"
    return native


def array(tensor: Tensor) -> NDArray[Any]:
    """A contiguous view, or a copy, for a call of the extension: it takes those ten times as fast as tensors."""
    found: NDArray[Any] = tensor.contiguous().numpy()
    return found


def pool() -> Pool:
    """The threads of this process, as many as torch uses.

    One pool for everything: two would spin for the same processors.
    """
    return _pool(torch.get_num_threads())


@cache
def _pool(threads: int) -> Pool:
    found: Pool = extension().Pool(threads)
    return found


@cache
def _load() -> ModuleType | None:
    try:
        from paceline.native import _native
    except ImportError:
        return None
    return _native
