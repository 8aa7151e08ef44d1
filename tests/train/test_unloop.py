"""Loops are found by their definition, and unlearned."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import same_weights, tiny_spec
from torch import Tensor

from paceline.models.attention import dense_attention
from paceline.models.transformer import Transformer
from paceline.train.options import FitConfig, TargetConfig, UnloopConfig
from paceline.train.responses import Responses
from paceline.train.target import train_target
from paceline.train.unloop import repeats, train_unloop

CYCLES = [[3 * (n % 8) + i % 3 for i in range(21)] for n in range(60)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents that go round in circles of three."""
    for name in ("train", "heldout"):
        offsets, kinds = np.arange(0, 60 * 21 + 1, 21), np.zeros(60, dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", tokens=np.array(CYCLES, np.uint16).ravel(), starts=offsets, kinds=kinds)
    return tmp_path


def answers(rows: list[list[int]], prompt: int = 2) -> Responses:
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return Responses(tokens, torch.full((len(rows),), prompt), lengths)


def test_repeats_by_their_definition() -> None:
    rows = torch.randint(3, (6, 40), generator=torch.Generator().manual_seed(0)).tolist()
    rows[3] = rows[3][:17]
    found = repeats(answers(rows, prompt=4))
    for row, marked in zip(rows, found.tolist(), strict=True):
        answer = row[4:]
        grams = [answer[i : i + 4] for i in range(len(answer) - 3)]
        expected = [gram in grams[:i] for i, gram in enumerate(grams)]
        assert marked == [False] * 7 + expected + [False] * (40 - len(row))


def test_the_prompt_does_not_count_as_said() -> None:
    assert not repeats(answers([[1, 2, 3, 4, 1, 2, 3, 4]], prompt=4)).any()


def sureness(model: Transformer, row: Tensor) -> float:
    with torch.no_grad():
        hidden = model(row[:-1], torch.arange(len(row) - 1), dense_attention(1, model.spec.windows)).hidden
        return float(model.head(hidden).softmax(-1).gather(-1, row[1:, None])[6:].mean())


def test_a_loop_is_unlearned_and_the_run_is_resumable(corpus: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_spec(tied_head=True))
    fit = FitConfig(steps=140, learning_rate=0.02, warmup_steps=5)
    train_target(model, TargetConfig(corpus, fit, window_tokens=16, windows_per_batch=4), tmp_path / "target")
    loop = torch.tensor([6, 7, 8] * 5)
    before = sureness(model, loop)
    config = UnloopConfig(corpus, FitConfig(steps=40, learning_rate=0.02, warmup_steps=2), 16, 2, 6)
    responses = answers([row[:15] for row in CYCLES])
    assert train_unloop(model, responses, config, tmp_path / "run")
    assert before > 0.8
    assert sureness(model, loop) < 0.7  # 0.4 to 0.55, by processor
    again = Transformer(model.spec)
    train_unloop(again, responses, config, tmp_path / "run")
    assert sureness(again, loop) == sureness(model, loop)


def test_answers_that_do_not_loop_are_left_alone(corpus: Path, tmp_path: Path) -> None:
    config = UnloopConfig(corpus, FitConfig(steps=2), 16, 2, 6)
    model = Transformer(tiny_spec())
    before = deepcopy(model)
    assert not train_unloop(model, answers([list(range(20))] * 4), config, tmp_path / "run")
    assert same_weights(model, before)
