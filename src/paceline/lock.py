"""A folder for one process at a time. Knows nothing of what is done in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from paceline.errors import TrainingError

__all__ = ["alone_in"]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for the same out of `folder`, which is made where it does not exist.

    The system gives the lock back when the process ends, by `kill -9` too; `.lock` is there until then.

    Raises:
        TrainingError: another process is in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    with path.open("a+", encoding="utf-8") as file:
        if not _take(file):
            file.seek(0)
            told = f"Another process (pid {file.read() or 'unknown'}) is working in {folder}."
            raise TrainingError(told, remedy="Wait for it, or use another folder.")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _take(file: TextIO) -> bool:
    import fcntl  # Windows, where the other commands may run, has none

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(file.fileno()).st_nlink > 0  # what its owner has just removed protects nothing
