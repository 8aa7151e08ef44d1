"""The recipe of an AR target."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scripted import answer_all, plain
from tiny import same_weights, tiny_spec

from paceline.engine.loop import Job
from paceline.errors import ConfigError, TrainingError
from paceline.models.attention import dense_attention
from paceline.models.transformer import Transformer
from paceline.request import Sampling
from paceline.train import target
from paceline.train.options import FitConfig, TargetConfig
from paceline.train.target import bundled_target_spec, train_target

VOCAB = 64


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents that count on from anywhere."""
    for name, documents in (("train", 60), ("heldout", 20)):
        starts = np.random.default_rng(len(name)).integers(0, VOCAB, documents)
        tokens = ((starts[:, None] + np.arange(20)) % VOCAB).astype(np.uint16).ravel()
        offsets = np.arange(0, 20 * documents + 1, 20)
        np.savez(tmp_path / f"{name}.npz", tokens=tokens, starts=offsets, kinds=np.zeros(documents, dtype=np.uint8))
    return tmp_path


def config_for(corpus: Path, steps: int) -> TargetConfig:
    fit = FitConfig(steps=steps, learning_rate=0.02, warmup_steps=5, evaluate_every=steps // 2)
    return TargetConfig(corpus, fit, window_tokens=16, windows_per_batch=4, evaluation_windows=8)


def test_it_learns_to_count(corpus: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_spec(tied_head=True))
    train_target(model, config_for(corpus, 60), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[0]["loss"] == pytest.approx(math.log(VOCAB), abs=0.3), "it begins knowing nothing"
    assert lines[-1]["loss"] < 1.5
    assert lines[-1]["heldout_loss"] < lines[29]["heldout_loss"] < math.log(VOCAB)
    model.eval().requires_grad_(False)
    (answer,) = answer_all(plain(model), [Job((20, 21, 22), Sampling(max_tokens=6), 0)])
    assert answer.token_ids == [23, 24, 25, 26, 27, 28]


def test_it_is_resumable(corpus: Path, tmp_path: Path) -> None:
    models = [Transformer(tiny_spec()) for _ in range(2)]
    for model in models:
        train_target(model, config_for(corpus, 4), tmp_path / "run")
    assert same_weights(*models)


def test_the_averaged_weights_are_the_result(corpus: Path, tmp_path: Path) -> None:
    config = config_for(corpus, 4)
    models = [Transformer(tiny_spec(tied_head=True)) for _ in range(2)]
    for model in models:  # the second finds the run finished
        train_target(model, replace(config, fit=replace(config.fit, ema_decay=0.5)), tmp_path / "run")
        state = torch.load(tmp_path / "run" / "checkpoint.pt")
        assert all(torch.equal(p, state["average"][name]) for name, p in model.named_parameters())
        assert not torch.equal(model.embed.weight, state["module"]["embed.weight"])


def test_out_of_memory_names_the_windows(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_loss", out_of_memory)
    with pytest.raises(TrainingError, match=r"with windows_per_batch 4\. Lower windows_per_batch; raise micro_batches"):
        train_target(Transformer(tiny_spec()), config_for(corpus, 4), tmp_path / "run")


def out_of_memory(*_: object) -> torch.Tensor:
    raise MemoryError


def test_another_corpus_or_window_is_not_resumed(corpus: Path, tmp_path: Path) -> None:
    config = config_for(corpus, 4)
    train_target(Transformer(tiny_spec()), config, tmp_path / "run")
    with pytest.raises(TrainingError, match="windows_per_batch 4 instead of 3"):
        train_target(Transformer(tiny_spec()), replace(config, windows_per_batch=3), tmp_path / "run")
    (corpus / "train.npz").write_bytes((corpus / "heldout.npz").read_bytes())
    with pytest.raises(TrainingError, match="other settings: windows "):
        train_target(Transformer(tiny_spec()), config, tmp_path / "run")


def test_a_tied_head_stays_tied(corpus: Path, tmp_path: Path) -> None:
    model = Transformer(tiny_spec(tied_head=True))
    train_target(model, config_for(corpus, 4), tmp_path / "run")
    assert model.head.weight is model.embed.weight


def test_repetition_is_unlearned(corpus: Path, tmp_path: Path) -> None:
    """A corpus of cycles of three makes a model sure of the next round; repeated windows take that away."""
    cycles = np.array([[3 * (n % 8) + i % 3 for i in range(21)] for n in range(60)])
    offsets, kinds = np.arange(0, 60 * 21 + 1, 21), np.zeros(60, dtype=np.uint8)
    np.savez(corpus / "train.npz", tokens=cycles.astype(np.uint16).ravel(), starts=offsets, kinds=kinds)
    sure = []
    for repeated in (0, 2):
        torch.manual_seed(0)
        model = Transformer(tiny_spec(tied_head=True))
        config = replace(config_for(corpus, 100), repeated_windows=repeated)
        train_target(model, config, tmp_path / f"run{repeated}")
        row = torch.tensor([[6, 7, 8] * 5])
        with torch.no_grad():
            hidden = model(row[0, :-1], torch.arange(14), dense_attention(1, model.spec.windows)).hidden
            sure.append(float(model.head(hidden).softmax(-1).gather(-1, row[0, 1:, None])[5:].mean()))
    assert sure[0] > 0.8
    assert sure[1] < 0.6


@pytest.mark.parametrize("changes", [{"repeated_windows": 4}, {"repeated_windows": -1}])
def test_repeated_windows_leave_some_to_learn_from(corpus: Path, tmp_path: Path, changes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="repeated_windows"):
        train_target(Transformer(tiny_spec()), replace(config_for(corpus, 4), **changes), tmp_path / "run")


def test_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"train\.npz does not exist"):
        train_target(Transformer(tiny_spec()), config_for(tmp_path, 4), tmp_path / "run")


def test_the_bundled_target_is_deep_rather_than_wide() -> None:
    spec = bundled_target_spec()
    with torch.device("meta"):
        model = Transformer(spec)
    assert 12e6 < sum(parameter.numel() for parameter in model.parameters()) < 15e6
    assert spec.num_layers * spec.hidden_size == 16 * 256
