"""What settings name on disk is there, and is what its place wants: drafter, verifier, rescorer, table, text file.

Goes by names and config.json, so that a wrong one is told before any weights are read; imports no torch. Whether tokens
fit as well, `models.pairs` says; what is in a table or a text file, who reads it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from paceline.decode.adaptive import Adaptive
from paceline.decode.choice import Choice
from paceline.decode.speculation import Lookup, Speculation
from paceline.errors import CheckpointError, ConfigError, UnsafeCheckpoint, VocabularyMismatch
from paceline.models.config_file import model_config
from paceline.models.drafter_spec import DrafterSpec, check_pair, drafter_spec
from paceline.models.json_file import read_json
from paceline.models.resolve import resolve
from paceline.models.spec import Spec, transformer_spec

__all__ = [
    "NGRAMS",
    "Partner",
    "check_files",
    "find_lookup_file",
    "find_ngrams",
    "find_partner",
    "find_rescorer",
    "named_by",
]

NGRAMS = "ngrams.npz"
"""The file of a table of n-grams in its folder."""

Find = Callable[[str | Path, str], Path]
"""The folder of a model, from its name and the setting that names it."""


class Partner(NamedTuple):
    """A drafter or a small model beside a target, and the setting that names it.

    `spec` is None for a table of n-grams.
    """

    param: str
    name: str | Path
    folder: Path
    spec: DrafterSpec | Spec | None


@contextmanager
def named_by(param: str, name: object) -> Iterator[None]:
    """Tell of a checkpoint that cannot be used as of the setting that names it.

    Raises:
        ConfigError: for a CheckpointError in the block. One of unsafe files or of other tokens stays what it is.
    """
    try:
        yield
    except CheckpointError as error:
        kind = type(error) if isinstance(error, UnsafeCheckpoint | VocabularyMismatch) else ConfigError
        remedy = error.remedy or "Name another one."
        raise kind(f"{param} is {str(name)!r:.200}: {error.message}", remedy=remedy, param=param) from error


def find_partner(choice: Choice, target: Spec, find: Find = resolve) -> Partner | None:
    """The drafter or the verifier of a choice, for its target; None where it has none.

    Raises:
        ConfigError: there is no such model, it is of another kind, or it was made for another target.
        UnsafeCheckpoint, VocabularyMismatch: as they say; all name the setting.
    """
    if choice.partner is None:
        return None
    if choice.method == "apd":
        return _small_model("verifier", choice.partner, find)
    folder = find(choice.partner, "drafter")
    with named_by("drafter", choice.partner):
        spec = drafter_spec({"num_target_layers": target.num_layers, **read_json(folder / "config.json")})
        check_pair(spec, target)
    return Partner("drafter", choice.partner, folder, spec)


def find_rescorer(settings: object, find: Find = resolve) -> Partner | None:
    """The rescorer that settings of any method name; None where they name none, or there is nothing to weigh.

    Raises:
        ConfigError, UnsafeCheckpoint: as `find_partner`.
    """
    if not isinstance(settings, Speculation) or settings.rescorer is None or not settings.may_branch:
        return None
    folder = find(settings.rescorer, "rescorer")
    if (folder / NGRAMS).is_file():
        return Partner("rescorer", settings.rescorer, folder, None)
    return _small_model("rescorer", settings.rescorer, find)


def find_ngrams(settings: object) -> Path | None:
    """The folder of the table that settings of any method name for APD; None where they name none.

    Raises:
        ConfigError: there is no table.
    """
    if not isinstance(settings, Adaptive) or settings.ngrams is None:
        return None
    folder = Path(os.path.expanduser(settings.ngrams))
    if not os.path.isfile(folder / NGRAMS):
        told = f"ngrams is {str(folder)!r:.200}: it has no {NGRAMS}."
        raise ConfigError(told, remedy="Make it: paceline train ngram.", param="ngrams")
    return folder


def find_lookup_file(settings: object) -> Path | None:
    """The text file that settings of any method name; None where they name none, or nothing is looked up.

    Raises:
        ConfigError: no file that may be read.
    """
    if not isinstance(settings, Lookup | Speculation) or settings.lookup_file is None:
        return None
    if isinstance(settings, Speculation) and not settings.lookup:
        return None
    path = Path(os.path.expanduser(settings.lookup_file))
    if why := _unreadable(path):
        told = f"lookup_file is {str(path)!r:.200}: it cannot be read: {why}."
        raise ConfigError(told, remedy="Name a file of UTF-8 text.", param="lookup_file")
    return path


def check_files(settings: object, find: Find = resolve) -> None:
    """Refuse settings of any method that name something which cannot be used.

    Raises:
        ConfigError, UnsafeCheckpoint: as the others here.
    """
    find_rescorer(settings, find)
    find_ngrams(settings)
    find_lookup_file(settings)


def _small_model(param: str, name: str | Path, find: Find) -> Partner:
    """An autoregressive model that a setting names."""
    folder = find(name, param)
    with named_by(param, name):
        spec = transformer_spec(model_config(folder))
    if spec.diffusion is not None:
        told = f"{param} is {str(name)!r:.200}, a diffusion language model: it has no next token."
        raise ConfigError(told, remedy="Give a small autoregressive model of the same tokenizer.", param=param)
    return Partner(param, name, folder, spec)


def _unreadable(path: Path) -> str:
    """Why a file cannot be read; nothing where it can. It is not opened, since a pipe can be read only once."""
    try:
        path.stat()
    except (OSError, ValueError) as error:  # also a name with a zero in it
        return getattr(error, "strerror", None) or str(error)
    if path.is_dir():
        return os.strerror(errno.EISDIR)
    return "" if os.access(path, os.R_OK) else os.strerror(errno.EACCES)
