"""A progress bar with an honest time of arrival on a terminal, and nothing elsewhere. Knows nothing of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["progress"]


@contextmanager
def progress(title: str, total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """Show a bar while the block runs; call what it yields once per finished unit, with a word on how it goes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[word]}"), console=console) as bar:
        task = bar.add_task(title, total=total, completed=done, word="")
        yield lambda word: bar.update(task, advance=1, word=word)
