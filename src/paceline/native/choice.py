"""Whether the extension is there, and which of its instruction sets is used. Imports no torch.

The environment is read in every call, so that it may change; what follows from it is worked out once. Knows nothing of
what the extension computes.
"""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from pathlib import Path
from types import ModuleType

from paceline.errors import ConfigError

__all__ = ["VARIABLE", "build", "extension", "in_use", "instruction_sets", "instructions", "why_not"]

VARIABLE = "PACELINE_NATIVE"
"""Environment variable: a lower instruction set than the best, or "off"."""


def why_not() -> str | None:
    """Why torch computes what this package would, in one line; None where it does not.

    Raises:
        ConfigError: the environment asks for an instruction set that is not there.
    """
    return _why_not(os.environ.get(VARIABLE), _load())


def instruction_sets() -> tuple[str, ...]:
    """Those that the extension was built for and this processor has, the best first; none without the extension."""
    return _instruction_sets(_load())


def instructions() -> str:
    """The set to use: the best, or what the environment asks for.

    Raises:
        ConfigError: it asks for one that is not there.
    """
    return _instructions(os.environ.get(VARIABLE), _load())


def in_use() -> str:
    """What to tell of a measurement: the set that is used, or why none is.

    Raises:
        ConfigError: as `why_not`.
    """
    return why_not() or instructions()


def build() -> str:
    """A name of what was compiled, another one for every build; empty without the extension."""
    return _build(_load())


def extension() -> ModuleType:
    """The extension, where `why_not` has nothing to say."""
    native = _load()
    assert native is not None, "ask why_not first"
    return native


@cache
def _why_not(asked: str | None, native: ModuleType | None) -> str | None:
    if asked == "off":
        return f"{VARIABLE} is off."
    if native is None:
        return "The native extension was not built: there was no C++20 compiler, or it failed (pip install -v tells)."
    _instructions(asked, native)
    return None


@cache
def _instructions(asked: str | None, native: ModuleType | None) -> str:
    usable = _instruction_sets(native)
    chosen = asked or usable[0]
    if chosen not in usable:
        remedy = f"On this {platform.machine()} there are {', '.join(usable)}, or off."
        raise ConfigError(f"{VARIABLE} is {chosen!r}.", remedy=remedy, param=VARIABLE)
    return chosen


@cache
def _instruction_sets(native: ModuleType | None) -> tuple[str, ...]:
    return () if native is None else tuple(native.instruction_sets())


@cache
def _build(native: ModuleType | None) -> str:
    if native is None or native.__file__ is None:
        return ""
    return hashlib.blake2b(Path(native.__file__).read_bytes(), digest_size=8).hexdigest()


@cache
def _load() -> ModuleType | None:
    try:
        from paceline.native import _native
    except ImportError:
        return None
    return _native
