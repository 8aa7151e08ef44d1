"""Commands that make models: corpus, target, drafter; and the list of what is bundled."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_zoo import build_small
from talking import Run, run, talking_pair
from tiny import tiny_transformer
from tiny_tokenizers import save
from tokenizers import Tokenizer

from paceline import LLM, Sampling
from paceline.cli import train
from paceline.lock import alone_in
from paceline.models.drafter_spec import DFlash2, drafter_spec
from paceline.models.load import load_drafter, load_transformer
from paceline.models.safetensors_file import read_json
from paceline.models.save import save_transformer
from paceline.models.spec import transformer_spec
from paceline.settings import fields_of
from paceline.train.diffusion_options import DllmConfig, JointConfig, SamplesConfig, VerifierConfig
from paceline.train.options import (
    DrafterConfig,
    FitConfig,
    Objective,
    ResponsesConfig,
    TargetConfig,
    UnloopConfig,
    VersionConfig,
)
from paceline.train.shape import ShapeConfig
from paceline.zoo import catalog

__all__ = ["run"]  # a fixture


@pytest.fixture
def built(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return build_small(run, tmp_path / "corpus", monkeypatch)


def train_pair(run: Run, corpus: Path, out: Path, steps: int = 2) -> SimpleNamespace:
    common = ("--corpus", corpus, "--steps", steps, "--warmup-steps", 1)
    windows = ("--window-tokens", 16, "--windows-per-batch", 2, "--evaluation-windows", 2)
    told = run("train", "target", *common, "--out", out / "target", *windows)
    if told.code:
        return told
    answers = ("--count", 12, "--max-tokens", 12, "--part", 6, "--batch", 6, "--prompt-tokens", 8, 60)
    rows = ("--rows-per-batch", 2, "--block-rows", 16, "--heldout-rows", 2)
    return run("train", "drafter", *common, "--target", out / "target", "--out", out / "draft", *answers, *rows)


def test_a_trained_pair_decodes(run: Run, built: Path, tmp_path: Path) -> None:
    told = train_pair(run, built, tmp_path / "out")
    assert told.code == 0, told.err
    target, draft = tmp_path / "out" / "target", tmp_path / "out" / "draft"
    assert {path.name for path in target.iterdir()} == {
        "config.json", "model.safetensors", "run", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert {path.name for path in draft.iterdir()} == {"answers", "config.json", "model.safetensors", "run"}
    fast, plain = LLM(target, drafter=draft), LLM(target)
    assert fast.end_token_ids == {0, 2}
    chat = [{"role": "user", "content": "hi"}]
    for prompt in ("Once", chat):
        first, second = (llm.generate([prompt], Sampling(max_tokens=20))[0] for llm in (fast, plain))
        assert first.token_ids == second.token_ids


def test_a_drafter_of_version_2_is_trained_and_decodes(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_pair(run, built, tmp_path / "out", 1).code == 0
    target, second = tmp_path / "out" / "target", tmp_path / "second"
    given = ("--drafter-version", 2, "--selector-rank", 4, "--selector-top-k", 5)
    told = learn_from(run, built, target, tmp_path / "out" / "draft" / "answers", second, *given)
    assert told.code == 0, told.err
    drafter = load_drafter(second, load_transformer(target))
    assert drafter.spec.v2 == DFlash2(kernel_size=2, group_size=16, selector_rank=4, selector_top_k=5)
    fast, plain = (
        llm.generate("Once", Sampling(max_tokens=20))[0] for llm in (LLM(target, drafter=second), LLM(target))
    )
    assert fast.token_ids == plain.token_ids
    told = learn_from(run, built, target, tmp_path / "out" / "draft" / "answers", second)
    assert told.code == 1
    assert "was trained with other settings" in told.err


def test_a_drafter_goes_on_from_another_as_the_second_version(run: Run, built: Path, tmp_path: Path) -> None:
    """With a rate of next to nothing, all that both versions have stays."""
    assert train_pair(run, built, tmp_path / "out", 1).code == 0
    target, first, second = tmp_path / "out" / "target", tmp_path / "out" / "draft", tmp_path / "second"
    given = ("--start", first, "--drafter-version", 2, "--learning-rate", 1e-7, "--block-size", 12)
    told = learn_from(run, built, target, first / "answers", second, *given)
    assert told.code == 0, told.err
    begun, found = (load_drafter(folder, load_transformer(target)) for folder in (first, second))
    assert (begun.spec.v2, found.spec.v2 is not None, found.spec.block_size) == (None, True, 12)
    for name, tensor in begun.state_dict().items():
        assert torch.allclose(found.state_dict()[name], tensor, atol=1e-2)
    told = learn_from(run, built, target, first / "answers", second, *given[2:])
    assert told.code == 1
    assert "was trained with other settings: start" in told.err


def test_a_drafter_that_goes_on_keeps_its_blocks(run: Run, built: Path, tmp_path: Path) -> None:
    """Unless another length is asked for."""
    assert train_pair(run, built, tmp_path / "out", 1).code == 0
    target, answers = tmp_path / "out" / "target", tmp_path / "out" / "draft" / "answers"
    ways = {"shorter": ("--block-size", 7), "on": (), "longer": ("--block-size", 12), "guessed": ("--block-size", 0)}
    sizes, start = {}, tmp_path / "out" / "draft"
    for name, given in ways.items():
        told = learn_from(run, built, target, answers, tmp_path / name, "--start", start, *given)
        assert told.code == 0, told.err
        sizes[name] = drafter_spec({"num_target_layers": 4, **read_json(tmp_path / name / "config.json")}).block_size
        start = tmp_path / name
    assert sizes == {"shorter": 7, "on": 7, "longer": 12, "guessed": 8}


def test_a_target_is_taught_out_of_its_loops(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_pair(run, built, tmp_path / "out").code == 0
    windows = ("--window-tokens", 16, "--windows-per-batch", 2, "--evaluation-windows", 2)
    answers = ("--count", 12, "--max-tokens", 60, "--part", 6, "--batch", 6, "--prompt-tokens", 8, 20)
    given = ("--target", tmp_path / "out" / "target", "--corpus", built, "--out", tmp_path / "better")
    told = run("train", "unloop", *given, *windows, *answers, "--steps", 2, "--loop-share", 0.0)
    assert told.code == 0, told.err
    assert LLM(tmp_path / "better").generate(["Once"], Sampling(max_tokens=5))[0].token_ids


@pytest.mark.filterwarnings("default")
def test_a_target_that_does_not_loop_stays_as_it_is_and_that_is_told(run: Run, built: Path, tmp_path: Path) -> None:
    """As in a round of `zoo build`, which goes on."""
    assert train_pair(run, built, tmp_path / "out").code == 0
    target, same = tmp_path / "out" / "target", tmp_path / "same"
    answers = ("--count", 12, "--max-tokens", 12, "--part", 6, "--batch", 6, "--prompt-tokens", 8, 20)
    given = ("--target", target, "--corpus", built, "--out", same, "--window-tokens", 16)
    told = run("train", "unloop", *given, *answers, "--loop-share", 1.0)
    assert told.code == 0, told.err
    assert re.search(r"none of the \d+ answers loops; the target stays as it is", told.err)
    assert (same / "model.safetensors").read_bytes() == (target / "model.safetensors").read_bytes()


def test_the_same_command_again_changes_nothing(run: Run, built: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert train_pair(run, built, out).code == 0
    before = {path: path.read_bytes() for path in out.rglob("*.safetensors")}
    answers = {path: path.stat().st_mtime_ns for path in out.rglob("part-*")}
    assert len(answers) == 2
    assert train_pair(run, built, out).code == 0
    assert {path: path.read_bytes() for path in out.rglob("*.safetensors")} == before
    assert {path: path.stat().st_mtime_ns for path in out.rglob("part-*")} == answers


def test_a_seed_that_torch_cannot_take_is_refused(run: Run, built: Path, tmp_path: Path) -> None:
    told = run("train", "target", "--corpus", built, "--out", tmp_path / "t", "--seed", 2**64)
    assert told.code == 2
    assert "4294967295" in told.err


def test_help_shows_pairs_as_they_are_given(run: Run) -> None:
    told = run("train", "drafter", "--help").out
    assert "--temperatures NUMBER NUMBER" in told
    assert "--prompt-tokens INTEGER INTEGER" in told


def test_other_settings_in_the_same_folder_are_refused(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_pair(run, built, tmp_path / "out").code == 0
    told = train_pair(run, built, tmp_path / "out", steps=3)
    assert told.code == 1
    assert "other settings" in told.err
    target, draft = tmp_path / "out" / "target", tmp_path / "out" / "draft"
    told = run("train", "drafter", "--target", target, "--corpus", built, "--out", draft, "--count", 8)
    assert told.code == 1
    assert "answers of other settings: count 12 instead of 8" in told.err


def test_other_tokens_in_the_same_folder_are_refused(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_pair(run, built, tmp_path / "out").code == 0
    target, draft = tmp_path / "out" / "target", tmp_path / "out" / "draft"
    answers = draft / "answers"
    told = learn_from(run, built, target, answers, draft, "--mask-token", "<|im_end|>")
    assert (told.code, "other settings: mask_token_id 3 instead of 2" in told.err) == (1, True), told.err
    told = learn_from(run, built, target, answers, draft, "--turn-start", "<|im_start|>")
    assert told.code == 1
    assert re.search(r"answers of other settings: turn_start_ids \[1, .*\] instead of \[1\]", told.err), told.err

    settings = json.loads((answers / "settings.json").read_text())
    del settings["turn_start_ids"]
    (answers / "settings.json").write_text(json.dumps(settings))
    assert learn_from(run, built, target, answers, draft).code == 0


def test_another_objective_learns_from_the_same_answers(run: Run, built: Path, tmp_path: Path) -> None:
    """Everything on: what the target says is written beside the answers of the first run, which stay as they are."""
    assert train_pair(run, built, tmp_path / "out").code == 0
    answers, second = tmp_path / "out" / "draft" / "answers", tmp_path / "out" / "second"
    before = {path.name: path.read_bytes() for path in answers.iterdir()}
    given = ("--corpus", built, "--target", tmp_path / "out" / "target", "--out", second, "--answers", answers)
    same = ("--count", 12, "--max-tokens", 12, "--part", 6, "--batch", 6, "--prompt-tokens", 8, 60)
    rows = ("--steps", 2, "--rows-per-batch", 2, "--block-rows", 16, "--heldout-rows", 2, "--block-size", 0)
    shares = ("--distill-share", 0.3, "--step-distill-share", 0.3, "--reveal-share", 0.5, "--teacher-top-k", 4)
    told = run("train", "drafter", *given, *same, *rows, *shares)
    assert told.code == 0, told.err
    after = {path.name: path.read_bytes() for path in answers.iterdir()}
    assert after.keys() - before.keys() == {"teacher-0000.npz"}
    assert {name: after[name] for name in before} == before
    assert {path.name for path in second.iterdir()} == {"config.json", "model.safetensors", "run"}
    assert json.loads((second / "config.json").read_text())["block_size"] == 8
    refused = run("train", "drafter", *given, "--count", 8)
    assert "answers of other settings" in refused.err
    empty = run("train", "drafter", *given[:-1], built, *same)
    assert "holds no answers" in empty.err


def learn_from(run: Run, corpus: Path, target: Path, answers: Path, out: Path, *more: object) -> SimpleNamespace:
    """A drafter of the answers that `train_pair` leaves."""
    given = (
        "--corpus",
        corpus,
        "--target",
        target,
        "--out",
        out,
        "--answers",
        answers,
        "--steps",
        2,
        "--warmup-steps",
        1,
    )
    same = ("--count", 12, "--max-tokens", 12, "--part", 6, "--batch", 6, "--prompt-tokens", 8, 60)
    return run("train", "drafter", *given, *same, "--rows-per-batch", 2, "--block-rows", 16, "--heldout-rows", 2, *more)


def test_answers_belong_to_the_weights_of_a_target_wherever_they_lie(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_pair(run, built, tmp_path / "out").code == 0
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    target, answers = moved / "target", moved / "draft" / "answers"
    assert learn_from(run, built, target, answers, tmp_path / "second").code == 0
    other = tmp_path / "other"
    shutil.copytree(target, other)
    save_transformer(tiny_transformer(transformer_spec(read_json(target / "config.json"))), other)
    refused = learn_from(run, built, other, answers, tmp_path / "third")
    assert refused.code == 1
    assert f"{answers} holds answers of another target than {other}." in refused.err
    assert not list((tmp_path / "third").iterdir())


def test_older_answers_belong_to_the_place_of_a_target(run: Run, built: Path, tmp_path: Path) -> None:
    """Files written before the checksum name an absolute path."""
    assert train_pair(run, built, tmp_path / "out").code == 0
    target, answers = tmp_path / "out" / "target", tmp_path / "out" / "draft" / "answers"
    settings = json.loads((answers / "settings.json").read_text())
    del settings["target_checksum"], settings["turn_start_ids"]
    (answers / "settings.json").write_text(json.dumps({"target": str(target.resolve()), **settings}))
    assert learn_from(run, built, target, answers, tmp_path / "second").code == 0
    target.rename(tmp_path / "moved")
    refused = learn_from(run, built, tmp_path / "moved", answers, tmp_path / "third")
    assert f"another target than {tmp_path / 'moved'}: of {target}." in refused.err


def test_a_folder_in_which_another_process_works_is_refused(run: Run, built: Path, tmp_path: Path) -> None:
    with alone_in(tmp_path / "out" / "target"):
        told = train_pair(run, built, tmp_path / "out")
    assert told.code == 1
    assert re.search(rf"process \(pid {os.getpid()}\) is working in .*target\. Wait", told.err), told.err
    assert not list((tmp_path / "out" / "target").iterdir())


def test_what_training_needs_is_asked_for(run: Run, built: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    told = run("train", "target", "--corpus", tmp_path / "empty", "--out", tmp_path / "out")
    assert "has no tokenizer" in told.err
    target, draft = talking_pair(tmp_path)
    for command in ("unloop", "drafter"):
        told = run("train", command, "--target", draft, "--corpus", built, "--out", tmp_path / "out")
        assert f"{draft} is a DFlash drafter, not a model" in told.err
    settings = ("--target", target, "--corpus", built, "--out", tmp_path / "out")
    assert "lacks the mask token" in run("train", "drafter", *settings, "--mask-token", "<none>").err
    assert "lacks the turn start" in run("train", "drafter", *settings, "--turn-start", "").err


def test_blocks_that_do_not_fit_are_refused_before_the_answers(run: Run, built: Path, tmp_path: Path) -> None:
    target, _ = talking_pair(tmp_path)
    save(target, Tokenizer.from_file(str(built / "tokenizer" / "tokenizer.json")), {})
    settings = ("--target", target, "--corpus", built, "--out", tmp_path / "out")
    assert "shortest_block is 17" in run("train", "drafter", *settings, "--shortest-block", 17).err
    assert "block_rows is 31" in run("train", "drafter", *settings, "--block-size", 32, "--block-rows", 31).err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "configs"),
    [
        (train.target, (FitConfig, TargetConfig)),
        (train.drafter, (FitConfig, DrafterConfig, Objective, VersionConfig, ResponsesConfig)),
    ],
)
def test_flags_are_the_fields_of_the_configurations(command: Callable[..., None], configs: Any) -> None:
    flags = signature(command).parameters
    for config in configs:
        for field in dataclasses.fields(config):
            if field.name in ("fit", "objective", "version"):
                continue
            assert field.name in flags, field.name
            if field.default is not dataclasses.MISSING:
                assert flags[field.name].default == field.default, field.name


@pytest.mark.parametrize(
    ("command", "configs"),
    [
        ("target", (TargetConfig,)),
        ("unloop", (UnloopConfig,)),
        ("drafter", (DrafterConfig, ResponsesConfig)),
        ("dllm", (DllmConfig, ShapeConfig)),
        ("verifier", (VerifierConfig, SamplesConfig)),
        ("joint", (JointConfig,)),
    ],
)
def test_help_tells_every_field(run: Run, command: str, configs: Any) -> None:
    told = " ".join(run("train", command, "--help").out.split())
    for field in (field for config in configs for field in fields_of(config)):
        assert f"--{field.name.replace('_', '-')} " in told
        assert field.name == "corpus" or field.setting.help in told, field.name


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TargetConfig]:
    """What the recipe of a target is asked for, instead of training."""
    asked: list[TargetConfig] = []
    monkeypatch.setattr("paceline.train.recipes.train_target", lambda model, config, run: asked.append(config))
    return asked


def settings_file(folder: Path, **settings: Any) -> Path:
    """As people write it: a key and a value on a line."""
    path = folder / "run.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    return path


def test_settings_come_from_a_file_and_flags_win(run: Run, built: Path, tmp_path: Path, trained: Any) -> None:
    common = {"corpus": built, "out": tmp_path / "out", "threads": "null"}
    file = settings_file(tmp_path, **common, steps=7, learning_rate="1e-3", compile="true", window_tokens=32)
    told = run("train", "target", "--config", file)
    assert told.code == 0, told.err
    assert run("train", "target", "--steps", 9, "--config", file, "--no-compile").code == 0
    first = TargetConfig(built, FitConfig(7, learning_rate=1e-3, compile=True), window_tokens=32)
    second = TargetConfig(built, FitConfig(9, learning_rate=1e-3), window_tokens=32)
    assert trained == [first, second]


def test_a_drafter_is_configured_by_a_file_too(run: Run, built: Path, tmp_path: Path) -> None:
    target, _ = talking_pair(tmp_path)
    settings = {"target": target, "corpus": built, "out": tmp_path / "out", "prompt_tokens": [9, 5]}
    told = run("train", "drafter", "--config", settings_file(tmp_path, **settings, turn_start="hi"))
    assert told.code != 0
    assert "prompt_tokens is (9, 5)" in told.err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"windows_per_batc": 3}, "sets 'windows_per_batc' to 3: no such setting. Did you mean windows_per_batch?"),
        ({"rows_per_batch": 3}, "no such setting"),
        ({"config": "x"}, "no such setting"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": "many"}, "steps is 'many'"),
        ({"final_share": 1.5}, "final_share is 1.5"),
        ({"threads": 0}, "threads is 0"),
        ({"corpus": 3}, "corpus is 3"),
        ({"ema_decay": 1.0}, "ema_decay is 1.0"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    run: Run, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = settings_file(tmp_path, **settings)
    told = run("train", "target", "--config", file, "--out", tmp_path / "out", "--corpus", tmp_path)
    assert told.code == 2
    assert message in told.err
    assert "Traceback" not in told.err


def test_zoo_list_reads_what_is_there(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_WEIGHTS", tmp_path)
    assert "no models" in run("zoo", "list").err
    target, _ = talking_pair(tmp_path)
    (target / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Card\n\nA tiny model.\n")
    told = run("zoo", "list")
    assert told.code == 0
    assert "DFlash drafter" in told.out
    assert "A tiny model." in told.out
