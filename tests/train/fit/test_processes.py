"""Training in processes of its own: several at once, and one that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import toy
from toy import CONFIG, log_of

from paceline.errors import ConfigError
from paceline.train.fit import processes
from paceline.train.fit.processes import join, own_share
from paceline.train.options import FitConfig

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PATIENCE_SECONDS = 600


def start(
    run: Path, config: FitConfig, launcher: Iterable[str] = (), pause_seconds: float = 0
) -> subprocess.Popen[str]:
    command = [sys.executable, *launcher, toy.__file__, str(run), json.dumps(asdict(config)), str(pause_seconds)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def finish(process: subprocess.Popen[str]) -> str:
    _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, told
    return told


def checkpoint(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoint.pt")["module"]


def test_processes_share_out_all_micro_batches() -> None:
    assert [list(own_share(6, index, 2)) for index in (0, 1)] == [[0, 2, 4], [1, 3, 5]]
    assert list(own_share(3, 0, 1)) == [0, 1, 2]


def test_micro_batches_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(ConfigError, match="micro_batches is 3, for 2 processes"):
        own_share(3, 0, 2)


def test_without_accelerate_training_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"paceline\[train\]"):
        join()


@pytest.mark.slow
def test_two_processes_give_the_curve_of_one(tmp_path: Path) -> None:
    """gloo, started by torchrun: losses, figures, norms and weights, with dropout, average and two batches each."""
    config = replace(CONFIG, steps=6, micro_batches=4, ema_decay=0.5)
    two = start(tmp_path / "two", config, TORCHRUN)
    toy.main(str(tmp_path / "one"), json.dumps(asdict(config)))
    finish(two)
    curves = [[line | {"seconds": 0.0} for line in log_of(tmp_path / run)] for run in ("two", "one")]
    for ours, theirs in zip(*curves, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    assert sorted(os.listdir(tmp_path / "two")) == sorted(os.listdir(tmp_path / "one"))
    one, two_weights = checkpoint(tmp_path / "one"), checkpoint(tmp_path / "two")
    for name, weight in one.items():
        torch.testing.assert_close(two_weights[name], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_what_two_processes_cannot_share_out_ends_both(tmp_path: Path) -> None:
    process = start(tmp_path, replace(CONFIG, micro_batches=3), TORCHRUN)
    _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert "micro_batches is 3, for 2 processes" in told


@pytest.mark.slow
def test_a_run_that_is_killed_twice_and_resumed_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """SIGKILL: nothing of the process can tidy up. Weights and their average to the bit, on a CPU."""
    config = replace(CONFIG, steps=12, ema_decay=0.7)
    toy.main(str(tmp_path / "whole"), json.dumps(asdict(config)))
    for steps in (3, 7):
        process = start(tmp_path / "killed", config, pause_seconds=0.3)
        kill_after(process, tmp_path / "killed" / "log.jsonl", steps)
    finish(start(tmp_path / "killed", config))
    ours, theirs = (torch.load(tmp_path / run / "checkpoint.pt") for run in ("killed", "whole"))
    for part in ("module", "average"):
        assert ours[part].keys() == theirs[part].keys()
        assert all(torch.equal(ours[part][name], theirs[part][name]) for name in theirs[part])
    lines = [log_of(tmp_path / run) for run in ("killed", "whole")]
    assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]


def kill_after(process: subprocess.Popen[str], log: Path, steps: int) -> None:
    """SIGKILL as soon as the log has so many lines."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not log.exists() or log.read_text().count("\n") < steps:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < give_up
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
