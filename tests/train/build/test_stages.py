"""When a stage is done: all that it promises is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_zoo import make_small

from paceline.train.build.recipe import bundled_recipe
from paceline.train.build.stages import Stage, stages
from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_DRAFTER, BUNDLED_TARGET, BUNDLED_VERIFIER

TEXT = ("train.npz", "heldout.npz", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json")
WEIGHTS = ("model.safetensors", "config.json")
MODEL = (*WEIGHTS, "tokenizer.json", "tokenizer_config.json")
PROMISED = {
    **dict.fromkeys(("corpus", "corpus-with-tasks", "corpus-of-tasks"), TEXT),
    **dict.fromkeys(("target-0", "target-1", "target-2", "diffusion-0"), MODEL),
    **dict.fromkeys((BUNDLED_TARGET, BUNDLED_DLLM, BUNDLED_VERIFIER), MODEL),
    BUNDLED_DRAFTER: WEIGHTS,
}


def found(out: Path) -> dict[str, Stage]:
    return {stage.folder.name: stage for stage in stages(out, bundled_recipe(out))}


def test_the_stages_are_those_that_promise_something(tmp_path: Path) -> None:
    assert found(tmp_path).keys() == PROMISED.keys()


@pytest.mark.parametrize("name", PROMISED)
def test_a_stage_is_done_when_none_of_its_files_is_missing(tmp_path: Path, name: str) -> None:
    stage = found(tmp_path)[name]
    assert not stage.done
    files = [stage.folder / file for file in PROMISED[name]]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert stage.done
    for file in files:
        file.unlink()
        assert not stage.done, file
        file.touch()


def test_what_was_lost_of_a_stage_is_made_again_and_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    corpus, target = stages(tmp_path, bundled_recipe(tmp_path, 0.001))[:2]
    for stage in (corpus, target):
        stage.complete()
    lost = [corpus.folder / "train.npz", target.folder / "tokenizer.json", target.folder / "config.json"]
    before = {path: path.read_bytes() for path in (*lost, target.folder / "model.safetensors")}
    for path in lost:
        path.unlink()
    for stage in (corpus, target):
        stage.complete()
    assert {path: path.read_bytes() for path in before} == before
