"""What the target says along its answers, on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer

from paceline.errors import ConfigError
from paceline.models.transformer import Transformer
from paceline.train import teacher as module
from paceline.train.responses import Responses
from paceline.train.teacher import Teacher, teach

TOKENS = torch.randint(64, (10, 12), generator=torch.Generator().manual_seed(0))
ANSWERS = Responses(TOKENS, torch.ones(10, dtype=torch.long), torch.tensor([12, 5, 12, 1, 9, 12, 12, 12, 3, 7]))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parts, the last one smaller; rows are read three at a time."""
    monkeypatch.setattr(module, "_PART_ROWS", 4)
    monkeypatch.setattr(module, "_BATCH_ROWS", 3)


@pytest.fixture(scope="module")
def target() -> Transformer:
    return tiny_transformer(tiny_spec(), dtype=torch.float32)


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in sorted(folder.iterdir())}


def same(ours: Teacher, theirs: Teacher) -> bool:
    return all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("k", [1, 5, 64])
def test_the_likeliest_tokens_of_every_row(target: Transformer, tmp_path: Path, k: int) -> None:
    ours = teach(target, ANSWERS, k, tmp_path)
    assert ours.ids.shape == ours.log_probabilities.shape == (10, 12, k)
    for row, length in enumerate(ANSWERS.lengths.tolist()):
        logits = target.head(run_flat(target, [TOKENS[row, :length].tolist()], [tiny_cache(target)]).hidden)
        values, ids = logits.log_softmax(-1).topk(k)
        assert torch.equal(ours.ids[row, :length].long(), ids)
        torch.testing.assert_close(ours.log_probabilities[row, :length].float(), values, atol=1e-3, rtol=1e-3)
        assert not ours.ids[row, length:].any()


def test_what_is_said_of_a_token_stands_at_the_one_before(target: Transformer, tmp_path: Path) -> None:
    """Positions over the width are clamped: those slots do not count."""
    ours = teach(target, ANSWERS, 3, tmp_path).of(torch.tensor([7, 2]), TOKENS.shape[1])
    positions = torch.tensor([[[1, 2], [5, 6]], [[10, 11], [12, 14]]])
    at = ours.at(positions)
    assert at.ids.shape == (2, 2, 2, 3)
    assert torch.equal(at.ids[0, 1, 1], ours.ids[0, 5])
    assert torch.equal(at.log_probabilities[1, 0, 0], ours.log_probabilities[1, 9])
    assert torch.equal(at.ids[1, 1], ours.ids[1, [11, 11]])


def test_it_goes_on_part_by_part(target: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the second part; resumed, it makes only what is missing, and the same as at one go."""
    whole = teach(target, ANSWERS, 5, tmp_path / "whole")
    likeliest, made = module._likeliest, list[int]()

    def killed(*given: Any) -> Teacher:
        made.append(len(given[1]))
        if len(made) == 2:
            raise KeyboardInterrupt
        return likeliest(*given)

    monkeypatch.setattr(module, "_likeliest", killed)
    with pytest.raises(KeyboardInterrupt):
        teach(target, ANSWERS, 5, tmp_path / "killed")
    first = times(tmp_path / "killed")
    assert list(first) == ["teacher-0000.npz"]
    assert same(teach(target, ANSWERS, 5, tmp_path / "killed"), whole)
    assert made == [4, 4, 4, 2]
    again = times(tmp_path / "killed")
    assert again["teacher-0000.npz"] == first["teacher-0000.npz"]
    assert same(teach(target, ANSWERS, 5, tmp_path / "killed"), whole)
    assert times(tmp_path / "killed") == again
    with np.load(tmp_path / "killed" / "teacher-0002.npz") as file:
        assert (file["ids"].dtype, file["log_probabilities"].dtype) == (np.uint16, np.float16)


@pytest.mark.parametrize("other", ["answers", "order", "lengths", "target", "k", "damage", "nothing"])
def test_what_belongs_to_something_else_is_written_anew(target: Transformer, tmp_path: Path, other: str) -> None:
    first = teach(target, ANSWERS, 5, tmp_path)
    model, answers, k = target, ANSWERS, 5
    if other == "answers":
        answers = replace(answers, tokens=(TOKENS + 1) % 64)
    elif other == "order":
        answers = replace(answers, tokens=TOKENS.flip(0))
    elif other == "lengths":
        answers = replace(answers, lengths=ANSWERS.lengths.flip(0))
    elif other == "target":
        model = tiny_transformer(tiny_spec(), seed=5, dtype=torch.float32)
    elif other == "k":
        k = 6
    else:
        (tmp_path / "teacher-0001.npz").write_bytes(b"PK half of a file" if other == "damage" else b"")
    again = teach(model, answers, k, tmp_path)
    assert same(again, teach(model, answers, k, tmp_path / "fresh"))
    assert same(again, first) == (other in ("damage", "nothing"))
    assert same(again, teach(model, answers, k, tmp_path))


def test_more_tokens_than_there_are(target: Transformer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="teacher_top_k is 65, of 64"):
        teach(target, ANSWERS, 65, tmp_path)
    assert not list(tmp_path.iterdir())
