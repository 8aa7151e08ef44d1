"""Writing files so that a reader, or a killed run, never meets half of one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

__all__ = ["check_writable", "write_atomically", "write_text"]


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a draft beside `path`, which then takes its place; on an error nothing is left.

    The draft keeps the ending of `path`, which some writers look at. Missing folders are made. Where `path` is a link,
    what it points to is replaced; a device or a pipe is written to as it is, since nothing may take its place.
    """
    if path.exists() and not path.is_file():
        write(path)
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        write(draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole, in UTF-8."""
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def check_writable(path: Path) -> None:
    """Find out whether a file could be written, before there is anything to write; nothing is made of it.

    Raises:
        OSError: it could not.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        return
    folder = next(each for each in path.resolve().parents if each.exists())
    with TemporaryFile(dir=folder):
        pass
