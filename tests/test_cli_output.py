"""Output that nobody takes: one line on stderr, a code, and no traceback at the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="There is no device that is always full.")


def ended(arguments: tuple[str, ...], out: str, err: str | None, unbuffered: str = "") -> tuple[int, str]:
    """Code and stderr of a command whose streams are files, or a pipe for None."""
    command, environment = (
        [sys.executable, "-m", "paceline", *arguments],
        {**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    with Path(out).open("w") as stdout, Path(err or os.devnull).open("w") as told:
        stderr = subprocess.PIPE if err is None else told
        done = subprocess.run(command, stdout=stdout, stderr=stderr, env=environment, text=True, check=False)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("arguments", [("--version",), ("zoo", "list"), ("config", "show")])
def test_stdout_that_is_full_is_one_line(arguments: tuple[str, ...]) -> None:
    assert ended(arguments, "/dev/full", None) == (1, "Error: stdout cannot be written: No space left on device.\n")
    code, told = ended(arguments, "/dev/full", None, unbuffered="1")
    assert (code, told.count("\n"), "No space left on device" in told) == (1, 1, True)


@pytest.mark.parametrize("out", ["/dev/full", os.devnull])
def test_stderr_that_is_full_leaves_the_code(out: str) -> None:
    assert ended(("generate", "a", "--model", "/no"), out, "/dev/full")[0] == 2
    assert ended(("config", "show", "--model", "/no"), out, "/dev/full")[0] == 1


def test_a_reader_that_has_left_is_no_failure_to_tell_of() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "paceline", "config", "show"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
