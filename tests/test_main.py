"""The start of the program: an interrupt is quiet from the first moment on."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from talking import Run, run

__all__ = ["run"]  # a fixture

INTERRUPTED_WHERE_TYPER_IS_IMPORTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
# Whatever was inherited: what a shell has put in the background ignores it.
signal.signal(signal.SIGINT, signal.SIG_IGN if "ignored" in sys.argv else signal.default_int_handler)
from paceline.__main__ import main
main()
"""


def started(*arguments: str) -> SimpleNamespace:
    command = [sys.executable, "-c", INTERRUPTED_WHERE_TYPER_IS_IMPORTED, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return SimpleNamespace(code=ended.returncode, out=ended.stdout, err=ended.stderr)


def test_an_interrupt_while_commands_are_imported_is_quiet() -> None:
    assert vars(started("--version")) == {"code": 130, "out": "", "err": ""}


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    told = started("ignored")
    assert "no such command 'ignored'" in told.err.lower()


def test_an_interrupt_before_a_command_runs_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.cli.app.app", interrupted)
    assert vars(run("--version")) == {"code": 130, "out": "", "err": ""}


def test_the_program_begins_there() -> None:
    project = Path(__file__).parents[1] / "pyproject.toml"
    assert (
        tomllib.loads(project.read_text(encoding="utf-8"))["project"]["scripts"]["paceline"] == "paceline.__main__:main"
    )
