"""One process in a folder at a time, and nothing left of one that was killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import TrainingError
from paceline.lock import alone_in

HOLDER = """
import sys, time
from pathlib import Path
from paceline.lock import alone_in
with alone_in(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(600)
"""


def test_a_folder_is_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        with alone_in(tmp_path / "new"):
            assert (tmp_path / "new" / ".lock").read_text() == str(os.getpid())
        assert not list((tmp_path / "new").iterdir())


def test_it_is_given_back_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), alone_in(tmp_path):
        raise KeyboardInterrupt
    with alone_in(tmp_path):
        pass


def test_other_folders_are_free(tmp_path: Path) -> None:
    with alone_in(tmp_path), alone_in(tmp_path / "inside"):
        pass


def test_a_file_that_its_owner_has_just_removed_protects_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened before the owner ended, locked after: somebody else may have a new file by now."""

    def late(file: Any, how: int) -> None:
        (tmp_path / ".lock").unlink()
        flock(file, how)

    flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(TrainingError, match="is working in"), alone_in(tmp_path):
        pass


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "in\n"
        with (
            pytest.raises(TrainingError, match=rf"pid {holder.pid}\) is working in .*{tmp_path.name}"),
            alone_in(tmp_path),
        ):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert (tmp_path / ".lock").exists()
    with alone_in(tmp_path):
        pass
