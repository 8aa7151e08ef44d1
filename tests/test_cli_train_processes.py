"""`paceline train` in processes of its own: one that is interrupted, and two that train together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_zoo import make_small
from talking import Run, run
from toy import log_of

__all__ = ["run"]  # a fixture

COMMAND = """
import signal
from paceline.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell has put in the background ignores it
main()
"""
PATIENCE_SECONDS = 600


@pytest.fixture
def program(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A target's training on a corpus of a few documents; the model is the bundled one, with few tokens."""
    make_small(monkeypatch)
    assert run("zoo", "corpus", tmp_path / "corpus", "--stories", 12, "--dialogues", 24).code == 0
    (tmp_path / "command.py").write_text(COMMAND)
    windows = ("--window-tokens", "16", "--windows-per-batch", "2", "--evaluation-windows", "2")
    folders = ("--corpus", str(tmp_path / "corpus"), "--out", str(tmp_path / "out"))
    return [str(tmp_path / "command.py"), "train", "target", *folders, *windows, "--micro-batches", "2"]


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *arguments], stderr=subprocess.PIPE, text=True, env=environment)


def wait_for(process: subprocess.Popen[str], log: Path, steps: int) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not log.exists() or log.read_text().count("\n") < steps:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.slow
def test_an_interrupt_is_told_in_a_line_and_the_same_command_goes_on(program: list[str], tmp_path: Path) -> None:
    run_folder = tmp_path / "out" / "run"
    for steps in (2, 4):
        process = start(*program, "--steps", "10000", "--save-every", "1")
        wait_for(process, run_folder / "log.jsonl", steps)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130, told
        assert told.splitlines() == ["Interrupted. The same command goes on from what is saved."]
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["run"]
    taken = [line["step"] for line in log_of(run_folder)]
    assert taken == list(range(1, len(taken) + 1))


@pytest.mark.slow
def test_two_processes_train_in_one_folder(program: list[str], tmp_path: Path) -> None:
    """The first one keeps all but its own out."""
    process = start("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program, "--steps", "2")
    _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, told
    assert (tmp_path / "out" / "config.json").is_file()
    assert not (tmp_path / "out" / ".lock").exists()
