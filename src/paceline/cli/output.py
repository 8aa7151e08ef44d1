"""What commands write: text to stdout, everything about it to stderr.

Knows the terminal and the records of `completion`, nothing of models.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TextIO

import typer
from rich.console import Console
from rich.text import Text

from paceline.completion import Completion, Stats

__all__ = [
    "abandon_output",
    "completion_json",
    "printable",
    "resumable",
    "say",
    "say_error",
    "say_if_watched",
    "say_lines",
    "say_warning",
    "stats_line",
    "write",
]

_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}


def printable(text: str) -> str:
    """`text` with the control characters a terminal would obey as visible signs; line breaks and tabs stay."""
    return text.translate(_CONTROLS)


def write(text: str) -> None:
    """Send text to stdout at once; on a terminal only what is `printable`.

    Raises:
        OSError: nobody can read it.
    """
    if sys.stdout is None:  # it was closed before Python started
        raise OSError(errno.EBADF, "stdout is closed")
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def abandon_output() -> bool:
    """Give up what stdout and stderr do not take; whether stdout did not.

    At its end Python would try once more to write it, tell of that with a traceback, and change the exit code to 120.
    """
    lost = [stream for stream in (sys.stdout, sys.stderr) if not _flushed(stream)]
    for stream in lost:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    return sys.stdout in lost


def _flushed(stream: TextIO | None) -> bool:
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        return False
    return True


def say(line: str, style: str = "") -> None:
    """One line on stderr."""
    Console(stderr=True, highlight=False).print(Text(" ".join(line.split()), style=style), soft_wrap=True)


def say_lines(text: str) -> None:
    """Lines on stderr as they are, blanks before them too."""
    Console(stderr=True, highlight=False).print(Text(text), soft_wrap=True)


def say_if_watched(word: str) -> None:
    """On a terminal, what is being done; nothing elsewhere."""
    if Console(stderr=True).is_terminal:
        say(f"{word} …", "dim")


def say_error(message: str) -> None:
    """One red line on stderr."""
    say(f"Error: {message}", "bold red")


def say_warning(message: str) -> None:
    """One yellow line on stderr."""
    say(f"Warning: {message}", "yellow")


@contextmanager
def resumable() -> Iterator[None]:
    """Tell of an interrupt (Ctrl-C) that nothing finished is lost; then end with 130, as shells do."""
    try:
        yield
    except KeyboardInterrupt:
        say("Interrupted. The same command goes on from what is saved.")
        raise typer.Exit(130) from None


def stats_line(stats: Stats, finish_reason: str, seed: int) -> str:
    """What `--stats` shows."""
    other = max(0.0, stats.total_seconds - stats.draft_seconds - stats.verify_seconds)
    done = f"acceptance length {stats.acceptance_length:.2f} over {stats.rounds} rounds"
    spent = f"draft {stats.draft_seconds:.2f} s, verify {stats.verify_seconds:.2f} s"
    if stats.method in ("diffusion", "apd"):
        done = f"{stats.tokens_per_forward:.2f} tokens per forward over {stats.forward_passes} passes"
    if stats.method == "diffusion":
        spent = f"passes {stats.draft_seconds:.2f} s"
    if stats.method == "apd":
        done += f", accepted {stats.accepted_tokens} of {stats.checked_tokens} checked"
        done += f", {stats.prefix_hit_rate:.0%} of the prefix reused"
    if stats.contexts_looked_up:
        done += f", {stats.verifier_skip_rate:.0%} of the verifier's passes skipped"
        done += f" ({stats.context_hit_rate:.0%} of the contexts found)"
    return (
        f"{stats.method}: {stats.completion_tokens} tokens in {stats.total_seconds:.2f} s, "
        f"{stats.tokens_per_second:.1f} tokens/s | {done} | {spent}, other {other:.2f} s | "
        f"ended by {finish_reason}, seed {seed}"
    )


def completion_json(completion: Completion) -> str:
    """What `--json` prints: one object on one line."""
    figures = completion.stats
    fields = {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "usage": {**asdict(completion.usage), "total_tokens": completion.usage.total_tokens},
        "stats": {
            **asdict(figures),
            "acceptance_length": figures.acceptance_length,
            "forward_passes": figures.forward_passes,
            "tokens_per_forward": figures.tokens_per_forward,
            "tokens_per_second": figures.tokens_per_second,
            "prefix_hit_rate": figures.prefix_hit_rate,
            "context_hit_rate": figures.context_hit_rate,
            "verifier_skip_rate": figures.verifier_skip_rate,
        },
        "seed": completion.seed,
        "rounds": [asdict(round) for round in completion.rounds],
    }
    return json.dumps(fields, ensure_ascii=False)
