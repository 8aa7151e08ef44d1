"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.files import check_writable, write_atomically


def test_a_file_is_replaced_and_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_atomically(path, lambda draft: draft.write_text("one"))
    write_atomically(path, lambda draft: draft.write_text("two"))
    assert path.read_text() == "two"
    assert [found.name for found in path.parent.iterdir()] == ["file.txt"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    write_atomically(link, lambda draft: draft.write_text("new"))
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, lambda draft: draft.write_text("told"))
    assert os.read(reader, 10) == b"told"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail(draft: Path) -> None:
        draft.write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_can_be_written_is_found_out_and_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for place in (tmp_path / "file", tmp_path / "new", tmp_path / "some" / "folder" / "new", Path("/dev/null")):
        check_writable(place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for place in (tmp_path / "file" / "new", tmp_path):
        with pytest.raises(OSError, match="directory"):
            check_writable(place)
