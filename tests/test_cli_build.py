"""`paceline zoo build`: every stage, in order, once; a plan before, figures and cards after."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_zoo import make_small, tiny_target
from talking import DRAFT, Run, run
from tiny import edit_config, tiny_transformer

from paceline import LLM, Sampling
from paceline.lock import alone_in
from paceline.models.save import save_transformer
from paceline.train.build import recipe, stages
from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_DRAFTER, BUNDLED_TARGET, BUNDLED_VERIFIER

__all__ = ["run"]  # a fixture

INTERRUPTED = "Interrupted. The same command goes on from what is saved."
PAIR = ["target-0", "target-1", "target-2", BUNDLED_TARGET, BUNDLED_DRAFTER]
DLLM = ["corpus-with-tasks", "diffusion-0", "corpus-of-tasks", BUNDLED_DLLM]
STAGES = ["corpus", *PAIR, *DLLM, BUNDLED_VERIFIER]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.strip()]


@pytest.mark.usefixtures("small")
def test_a_plan_names_every_stage_and_builds_nothing(run: Run, tmp_path: Path) -> None:
    told = run("zoo", "build", tmp_path / "zoo", "--scale", 0.001, "--plan")
    assert told.code == 0, told.err
    assert first_words(told.out) == ["stage", *STAGES, "all"]
    assert not (tmp_path / "zoo").exists()
    assert told.err == "Trying some steps, to say how long it takes: about a minute …\n"


@pytest.mark.usefixtures("small")
def test_a_terminal_is_told_what_is_tried(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    told = run("zoo", "build", tmp_path / "zoo", "--scale", 0.001, "--plan")
    assert re.search(r"(?s)Trying.*steps of a target ….*steps of a drafter ….*answers …", told.err)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.filterwarnings("ignore:.*there will be no more texts")
def test_a_build_makes_all_models_and_their_cards_and_goes_on_where_it_stopped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "zoo"
    with monkeypatch.context() as killed:
        killed.setattr(stages, "make_drafter", lambda *args, **names: (_ for _ in ()).throw(KeyboardInterrupt))
        told = run("zoo", "build", out, "--scale", 0.001)
    assert (told.code, told.err.splitlines()[-1]) == (130, INTERRUPTED)
    kept = {name: (out / name / "model.safetensors").stat().st_mtime_ns for name in PAIR[:4]}
    assert not (out / BUNDLED_DRAFTER / "config.json").exists()

    told = run("zoo", "build", out, "--scale", 0.001)
    assert told.code == 0, told.err
    assert {name: (out / name / "model.safetensors").stat().st_mtime_ns for name in PAIR[:4]} == kept
    target, drafter = out / BUNDLED_TARGET, out / BUNDLED_DRAFTER
    assert "bits/byte" in told.out
    assert "| dialogue |" in (target / "README.md").read_text(encoding="utf-8")
    assert re.search(
        r"target included: \d\.\d\d .*, \d\.\d\d dialogue, \d\.\d\d code", (drafter / "README.md").read_text("utf-8")
    )
    fast, plain = LLM(target, drafter=drafter), LLM(target)
    answers = [llm.generate(["Once"], Sampling(max_tokens=20))[0].token_ids for llm in (fast, plain)]
    assert answers[0] == answers[1]
    assert "| `apd` | " in (out / BUNDLED_DLLM / "README.md").read_text(encoding="utf-8")
    assert "KL divergence" in (out / BUNDLED_VERIFIER / "README.md").read_text(encoding="utf-8")
    apd = LLM(out / BUNDLED_DLLM, verifier=out / BUNDLED_VERIFIER)
    assert apd.generate(["Once"], Sampling(max_tokens=20))[0].stats.method == "apd"


@pytest.mark.parametrize("flags", [(), ("--plan",)])
def test_a_folder_of_another_recipe_is_refused_before_anything_is_tried(
    run: Run, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    recipe.open_build(tmp_path, recipe.bundled_recipe(tmp_path, 0.05))
    refused = run("zoo", "build", tmp_path, "--scale", 0.1, *flags)
    assert refused.code == 1
    assert "another recipe: " in refused.err
    assert "target.fit.steps 150 instead of 300" in refused.err
    assert "Trying" not in refused.err


def test_two_builds_in_one_folder_are_refused(run: Run, tmp_path: Path) -> None:
    with alone_in(tmp_path):
        refused = run("zoo", "build", tmp_path)
    assert refused.code == 1
    assert f"is working in {tmp_path}" in refused.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scale", [0, -1, 1.5, "nan"])
def test_a_scale_out_of_range_is_refused(run: Run, tmp_path: Path, scale: object) -> None:
    told = run("zoo", "build", tmp_path, "--scale", scale)
    assert told.code == 2
    assert "scale is" in told.err


@pytest.mark.usefixtures("small")
def test_a_score_sets_the_target_beside_a_5_gram_model(run: Run, tmp_path: Path) -> None:
    assert run("zoo", "corpus", tmp_path / "corpus", "--stories", 12, "--dialogues", 24).code == 0
    windows = ("--window-tokens", 16, "--windows-per-batch", 2, "--evaluation-windows", 2, "--steps", 1)
    target = ("train", "target", "--corpus", tmp_path / "corpus", "--out", tmp_path / "target", *windows)
    assert run(*target).code == 0
    told = run("zoo", "score", "--model", tmp_path / "target", "--corpus", tmp_path / "corpus")
    assert told.code == 0, told.err
    assert first_words(told.out) == ["kind", "story", "dialogue"]

    drafter = run("zoo", "score", "--model", DRAFT, "--corpus", tmp_path / "corpus")
    assert drafter.code == 1
    assert f"{DRAFT} is a DFlash drafter, not a model. Give the target it was trained for" in drafter.err

    edit_config(tmp_path / "target", paceline={"diffusion": {"mask_token_id": 1}})
    refused = run("zoo", "score", "--model", tmp_path / "target", "--corpus", tmp_path / "corpus")
    assert "diffusion language model" in refused.err
    (tmp_path / "target" / "tokenizer_config.json").write_text("{}")
    refused = run("zoo", "score", "--model", tmp_path / "target", "--corpus", tmp_path / "corpus")
    assert "names no end token" in refused.err


@pytest.mark.usefixtures("small")
@pytest.mark.filterwarnings("default")
def test_a_kind_that_is_not_held_out_has_no_score_and_that_is_told(run: Run, tmp_path: Path) -> None:
    corpus, target = tmp_path / "corpus", tmp_path / "target"
    assert run("zoo", "corpus", corpus, "--stories", 3, "--dialogues", 12).code == 0
    save_transformer(tiny_transformer(tiny_target()), target)
    for file in (corpus / "tokenizer").iterdir():
        shutil.copyfile(file, target / file.name)
    with np.load(corpus / "heldout.npz") as file:
        tokens, starts, kinds = file["tokens"], file["starts"], file["kinds"]
    cut = int(np.flatnonzero(kinds != kinds[0])[0])
    np.savez(corpus / "heldout.npz", tokens=tokens[: starts[cut]], starts=starts[: cut + 1], kinds=kinds[:cut])
    told = run("zoo", "score", "--model", target, "--corpus", corpus)
    assert told.code == 0, told.err
    assert first_words(told.out) == ["kind", "story"]
    assert "heldout.npz has no text of kind dialogue: no score." in told.err
    np.savez(corpus / "heldout.npz", tokens=tokens[:0], starts=starts[:1], kinds=kinds[:0])
    told = run("zoo", "score", "--model", target, "--corpus", corpus)
    assert (told.code, "heldout.npz holds no text" in told.err) == (1, True), told.err
