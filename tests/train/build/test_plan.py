"""What is left of a stage: nothing tried, so the rates are round numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy import Toy

from paceline.errors import TrainingError
from paceline.train.build.plan import Rates, Row, plan
from paceline.train.build.stages import Stage
from paceline.train.fit.average import Average
from paceline.train.fit.checkpoint import Trained, save
from paceline.train.options import ResponsesConfig

RATES = Rates(training_flop=0.5, drafter_step=3.0, answer_token=0.25)
ANSWERS = ResponsesConfig(count=10, max_tokens=8, part=4)


def planned(folder: Path, answers: ResponsesConfig | None = ANSWERS) -> Row:
    stage = Stage(folder, ("config.json",), lambda: None, "drafter", 6, 100, 1e6, answers)
    (row,) = plan([stage], RATES)
    return row


def trained() -> Trained:
    toy = Toy()
    return Trained(toy, [], Average(toy, 0.0))


def test_a_new_stage_takes_all_its_answers_and_steps(tmp_path: Path) -> None:
    row = planned(tmp_path / "new")
    assert (row.name, row.steps, row.steps_done, row.answers, row.tokens) == ("new", 6, 0, 10, 6 * 100 + 10 * 8)
    assert row.flops > 6e6
    assert row.seconds == 6 * 3.0 + 10 * 8 * 0.25
    assert planned(tmp_path / "new", None).seconds == 6 * 3.0


@pytest.mark.parametrize(("parts", "left"), [(1, 6), (2, 2), (3, 0)])
def test_parts_that_are_there_are_not_answered_again(tmp_path: Path, parts: int, left: int) -> None:
    (tmp_path / "answers").mkdir()
    for part in range(parts):
        (tmp_path / "answers" / f"part-{part:04d}.npz").touch()
    assert planned(tmp_path).seconds == 6 * 3.0 + left * 8 * 0.25


def test_steps_are_done_that_a_checkpoint_holds_and_not_those_in_the_log_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "log.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    assert planned(tmp_path).steps_done == 0
    save(run, trained(), 2, {})
    assert (planned(tmp_path).steps_done, planned(tmp_path).seconds) == (2, 4 * 3.0)
    (run / "checkpoint.pt").write_bytes(b"cut")
    with pytest.raises(TrainingError, match=r"checkpoint\.pt is no whole checkpoint. Remove it to start anew"):
        planned(tmp_path)
    (run / "checkpoint.pt").unlink()
    (run / "checkpoint.pt").mkdir()
    with pytest.raises(TrainingError, match=r"checkpoint\.pt cannot be read: .* See to that"):
        planned(tmp_path)


def test_nothing_is_left_of_a_finished_stage(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    assert (planned(tmp_path).steps_done, planned(tmp_path).seconds) == (6, 0.0)


def test_a_transformer_is_reckoned_by_its_operations_and_so_are_answers_of_many_rows(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "new", ("config.json",), lambda: None, "transformer", 6, 100, 1e6, ANSWERS, "samples", 48)
    (row,) = plan([stage], RATES)
    assert row.seconds == row.flops * 0.5
    (tmp_path / "new" / "samples").mkdir(parents=True)
    for part in range(3):
        (tmp_path / "new" / "samples" / f"part-{part:04d}.npz").touch()
    (row,) = plan([stage], RATES)
    assert row.seconds == 6 * 1e6 * 0.5
