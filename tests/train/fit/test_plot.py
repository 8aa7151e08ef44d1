"""The picture of a run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from toy import CONFIG, Toy, batch_at

from paceline.train.fit import plot
from paceline.train.fit.loop import fit
from paceline.train.fit.plot import draw, save_plot

LINES = [{"step": step, "loss": 3.0 / step, "learning_rate": 0.1, "seconds": 1.0} for step in range(1, 8)]
LINES[3]["score"], LINES[6]["score"] = 1.0, 2.0


def test_every_panel_shows_its_figures() -> None:
    panels = {axes.get_ylabel(): axes.lines[0].get_xydata().tolist() for axes in draw(LINES, ["score"]).axes}
    assert panels == {
        "loss": [[step, 3.0 / step] for step in range(1, 8)],
        "score": [[4, 1.0], [7, 2.0]],
        "learning rate": [[step, 0.1] for step in range(1, 8)],
    }


def test_a_run_without_held_out_figures_has_a_picture_too() -> None:
    assert [axes.get_ylabel() for axes in draw(LINES, []).axes] == ["loss", "learning rate"]


def test_without_matplotlib_only_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO):
        save_plot(tmp_path / "curve.png", LINES, ["score"])
    assert "matplotlib is not installed" in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_run_leaves_its_curve(tmp_path: Path) -> None:
    toy = Toy()
    fit(toy, batch_at, toy.loss, toy.score, CONFIG, tmp_path)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "curve.png", "log.jsonl"]
    assert "matplotlib.pyplot" not in sys.modules, "which would hold on to every figure"
