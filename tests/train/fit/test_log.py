"""The log of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import TrainingError
from paceline.train.fit.log import append, forget_after, read_log


def test_a_line_that_a_kill_has_cut_is_not_read(tmp_path: Path) -> None:
    for step in (1, 2):
        append(tmp_path / "log", {"step": step, "loss": 0.5})
    with (tmp_path / "log").open("a") as log:
        log.write('{"step": 3, "lo')
    assert [line["step"] for line in read_log(tmp_path / "log")] == [1, 2]
    forget_after(tmp_path / "log", 1)
    assert (tmp_path / "log").read_text() == '{"step": 1, "loss": 0.5}\n'


@pytest.mark.parametrize("line", ["what", "3", "[]", '{"loss": 1}'])
def test_a_damaged_line_is_told(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f'{{"step": 1}}\n{line}\n')
    for read in (read_log, lambda path: forget_after(path, 1)):
        with pytest.raises(TrainingError, match=r"has a line that is none of a log: .* Remove that line"):
            read(tmp_path / "log")
