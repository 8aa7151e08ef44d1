"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.files import write_atomically


def test_a_file_is_replaced_and_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_atomically(path, lambda draft: draft.write_text("one"))
    write_atomically(path, lambda draft: draft.write_text("two"))
    assert path.read_text() == "two"
    assert [found.name for found in path.parent.iterdir()] == ["file.txt"]


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
