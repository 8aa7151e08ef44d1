"""What a build is made with: written down once, and held against what it goes on with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import TrainingError
from paceline.train.build.recipe import Counts, bundled_recipe, check_build, open_build


def written(out: Path) -> Any:
    return json.loads((out / "recipe.json").read_text(encoding="utf-8"))


def test_the_recipe_is_written_down_once(tmp_path: Path) -> None:
    recipe = bundled_recipe(tmp_path)
    check_build(tmp_path, recipe)
    assert not (tmp_path / "recipe.json").exists()
    open_build(tmp_path, recipe)
    assert (written(tmp_path)["target"]["fit"]["steps"], written(tmp_path)["rounds"]) == (
        recipe.target.fit.steps,
        recipe.rounds,
    )
    assert written(tmp_path)["target"]["corpus"] == "corpus"
    before = (tmp_path / "recipe.json").stat().st_mtime_ns
    open_build(tmp_path, recipe)
    assert (tmp_path / "recipe.json").stat().st_mtime_ns == before


def test_a_folder_may_be_moved(tmp_path: Path) -> None:
    open_build(tmp_path / "here", bundled_recipe(tmp_path / "here"))
    (tmp_path / "here").rename(tmp_path / "there")
    check_build(tmp_path / "there", bundled_recipe(tmp_path / "there"))


@pytest.mark.parametrize("keys", [("text", "tasks"), ("dllm", "fit", "clip"), ("drafter", "objective", "gamma")])
def test_a_setting_that_an_older_folder_does_not_know_had_its_default(tmp_path: Path, keys: tuple[str, ...]) -> None:
    recipe = bundled_recipe(tmp_path)
    open_build(tmp_path, recipe)
    older = written(tmp_path)
    section = older
    for key in keys[:-1]:
        section = section[key]
    del section[keys[-1]]
    (tmp_path / "recipe.json").write_text(json.dumps(older), encoding="utf-8")
    check_build(tmp_path, recipe)


def test_another_setting_is_named_with_both_values(tmp_path: Path) -> None:
    recipe = bundled_recipe(tmp_path)
    open_build(tmp_path, recipe)
    older = written(tmp_path)
    del older["text"]["tasks"], older["text"]["stories"]
    older["unknown"] = 5
    (tmp_path / "recipe.json").write_text(json.dumps(older), encoding="utf-8")
    other = replace(recipe, text=Counts(3600, 10_000, 1000, tasks=7), rounds=2)
    told = "recipe: rounds 3 instead of 2, text.stories None instead of 3600, text.tasks 0 instead of 7, unknown 5"
    with pytest.raises(TrainingError, match=told):
        check_build(tmp_path, other)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_what_is_no_recipe_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.json").write_text(text, encoding="utf-8")
    with pytest.raises(TrainingError, match=r"recipe\.json.*Build into another folder"):
        check_build(tmp_path, bundled_recipe(tmp_path))
