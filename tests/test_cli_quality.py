"""`paceline bench quality` and `paceline bench frontier`, run as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from talking import DRAFT, TARGET, Run, run, talking
from tiny import GOLDEN

__all__ = ["run"]  # a fixture


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    place, apd = tmp_path_factory.mktemp("quality"), GOLDEN / "apd-tiny"
    dllm, verifier = talking(apd / "dream", place / "dllm"), talking(apd / "qwen2", place / "verifier")
    target = talking(TARGET, place / "target")
    return ("--dllm", dllm, "--verifier", verifier, "--target", target, "--drafter", DRAFT)


def test_quality_measures_the_usual_settings_and_writes(run: Run, models: Any, tmp_path: Path) -> None:
    shape = ("--problems", 2, "--kinds", "sums,functions", "--max-tokens", 6, "--batch", 2)
    told = run("bench", "quality", *models, *shape, "--json", tmp_path / "out.json")
    assert told.code == 0, told.err
    assert "dllm + verifier beside target" in told.out
    assert "[178.5]" in told.out
    assert told.err == "", "a bar is for terminals"
    result = json.loads((tmp_path / "out.json").read_text())
    settings = [point["setting"] for point in result["points"]]
    assert settings == result["settings"]["settings"]
    assert {"ar", "dflash", "verifier", "apd", result["settings"]["reference"]} <= set(settings)
    assert {"sums", "functions"} == set(result["points"][0]["kinds"])


def test_a_target_alone_is_measured_without_a_diffusion_model(run: Run, models: Any) -> None:
    target = models[4:6]
    told = run("bench", "quality", *target, "--setting", "ar", "--problems", 1, "--max-tokens", 4)
    assert (told.code, told.err) == (0, ""), told.err
    assert "ar" in told.out


def test_frontier_measures_what_is_asked_and_draws(run: Run, models: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "run.yaml").write_text("settings: ['apd,kv_window=all', 'diffusion,threshold=0.5']\nproblems: 9\n")
    shape = ("--config", tmp_path / "run.yaml", "--problems", 1, "--max-tokens", 6, "--reference", "ar")
    told = run("bench", "frontier", *models, *shape, "--plot", tmp_path / "out.svg", "--json", tmp_path / "out.json")
    assert told.code == 0, told.err
    assert "Nothing is both as right and as fast as" in told.out
    assert "<!-- APD -->" in (tmp_path / "out.svg").read_text()
    result = json.loads((tmp_path / "out.json").read_text())
    assert [point["setting"] for point in result["points"]] == ["apd,kv_window=all", "diffusion,threshold=0.5", "ar"]
    assert result["bench"] == "frontier"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--setting", "apd,alhpa=0.5"), "setting 'apd,alhpa=0.5': alhpa is 0.5: no such setting. Did you mean alpha?"),
        (("--setting", "sd"), "There is no method 'sd'. Known: ar, dflash, verifier, diffusion, apd."),
        (("--kinds", "sums,riddles"), "kind is 'riddles'. There are: sums, records, functions."),
        (("--plot", "out.gif"), "has no known ending"),
        (("--plot", TARGET / "config.json" / "out.png"), "out.png' cannot be written"),
        (("--json", TARGET / "config.json" / "out.json"), "out.json' cannot be written"),
        (("--dllm", TARGET), "the model is autoregressive: it has no mask token"),
        (("--verifier", GOLDEN / "apd-tiny" / "dream"), "a diffusion language model: it has no next token"),
    ],
)
@pytest.mark.parametrize("command", ["quality", "frontier"])
def test_what_cannot_be_measured_is_one_line(run: Run, models: Any, command: str, flags: Any, message: str) -> None:
    told = run("bench", command, *models, *flags)
    assert (told.code, told.out) == (2, "")
    assert message in told.err
    assert told.err.count("\n") == 1
