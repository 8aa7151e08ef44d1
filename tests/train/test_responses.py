"""Answers for a drafter to learn from."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripted import chain
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer

from paceline.decode.target import Target
from paceline.errors import ConfigError, TrainingError
from paceline.train import responses
from paceline.train.options import ResponsesConfig
from paceline.train.responses import Responses, beginnings, features, generate_responses, load_responses

TURN = (60, 61)
CONFIG = ResponsesConfig(count=9, prompt_tokens=(3, 5), max_tokens=6, batch=4, part=4)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """20 documents of 12 counting tokens; every fourth holds two turns, which end after its 7th token."""
    documents = [[(3 * n + i) % 50 for i in range(12)] for n in range(20)]
    for document in documents[::4]:
        document[1:3] = document[5:7] = TURN
    path = tmp_path / "train.npz"
    tokens = np.array(documents, dtype=np.uint16).ravel()
    np.savez(path, tokens=tokens, starts=np.arange(0, 241, 12), kinds=np.zeros(20, dtype=np.uint8))
    return path


def generate(corpus: Path, out: Path, target: Target | None = None, **changes: Any) -> dict[str, bytes]:
    config = ResponsesConfig(**{name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__} | changes)
    target = target or Target(tiny_transformer(tiny_spec()), 64)
    generate_responses(target, corpus, TURN, config, frozenset({7}), out)
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def test_it_goes_on_part_by_part(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the second part; resumed, it makes only what is missing, and the same as at one go."""
    whole = generate(corpus, tmp_path / "whole")
    assert list(whole) == ["part-0000.npz", "part-0001.npz", "part-0002.npz"]
    write, written = responses._write, list[str]()

    def killed(path: Path, answers: Any) -> None:
        written.append(path.name)
        if len(written) == 2:
            next(answers)
            raise KeyboardInterrupt
        write(path, answers)

    monkeypatch.setattr(responses, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        generate(corpus, tmp_path / "killed")
    first = (tmp_path / "killed" / "part-0000.npz").stat().st_mtime_ns
    resumed = generate(corpus, tmp_path / "killed")
    assert written == ["part-0000.npz", "part-0001.npz", "part-0001.npz", "part-0002.npz"]
    assert (tmp_path / "killed" / "part-0000.npz").stat().st_mtime_ns == first
    for name in whole:
        with np.load(tmp_path / "whole" / name) as ours, np.load(tmp_path / "killed" / name) as theirs:
            assert all(np.array_equal(ours[key], theirs[key]) for key in ours.files)
    assert resumed.keys() == whole.keys()


def test_prompts_are_beginnings_and_answers_are_the_targets(corpus: Path, tmp_path: Path) -> None:
    """A document with turns is cut behind the last of them; the target counts on, from 49 to 0."""
    target = Target(chain({49: 0}), 64)
    generate(corpus, tmp_path / "out", target, sampled_share=0.0)
    with pytest.raises(TrainingError, match="8 tokens"):  # shorter answers are left out
        load_responses(tmp_path / "out", width=16)
    generate(corpus, tmp_path / "long", target, sampled_share=0.0, max_tokens=8)
    loaded = load_responses(tmp_path / "long", width=16)
    assert 0 < len(loaded.tokens) <= 9
    for row, prompt, length in zip(loaded.tokens.tolist(), loaded.prompt_lengths, loaded.lengths, strict=True):
        if TURN[0] in row:
            assert prompt == 7
            assert row[5:7] == list(TURN)
        else:
            assert 3 <= prompt <= 5
        answer = row[prompt:length]
        assert answer[1:] == [0 if token == 49 else (token + 1) % 64 for token in answer[:-1]]
        assert row[length:] == [0] * (16 - length)


def test_rows_are_cut_at_the_width(corpus: Path, tmp_path: Path) -> None:
    generate(corpus, tmp_path / "out", Target(chain({49: 0}), 64), max_tokens=20, sampled_share=0.0)
    loaded = load_responses(tmp_path / "out", width=14)
    assert loaded.tokens.shape[1] == 14
    assert loaded.lengths.max() <= 14


def test_a_share_is_sampled_and_every_answer_has_its_own_seed(corpus: Path, tmp_path: Path) -> None:
    greedy = generate(corpus, tmp_path / "greedy", sampled_share=0.0)
    sampled = generate(corpus, tmp_path / "sampled", sampled_share=1.0)
    assert greedy != sampled
    assert sampled == generate(corpus, tmp_path / "again", sampled_share=1.0)


def test_every_sampled_answer_draws_its_own_temperature(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uniform in the range; a resumed part draws the same ones. The expected ones follow from the seed alone."""
    decode, drawn = responses.decode_lockstep, list[float]()

    def watched(target: Target, jobs: Any, end_ids: frozenset[int]) -> list[list[int]]:
        drawn.extend(job.sampling.temperature for job in jobs)
        return decode(target, jobs, end_ids)

    monkeypatch.setattr(responses, "decode_lockstep", watched)
    generate(corpus, tmp_path / "out", sampled_share=0.5, temperatures=(0.2, 0.3), part=9)
    rng = np.random.default_rng((CONFIG.seed, 0))
    sampled = rng.random(9) < 0.5
    assert sorted(drawn) == sorted(np.where(sampled, rng.uniform(0.2, 0.3, 9), 0.0).tolist())
    hot = [temperature for temperature in drawn if temperature]
    assert 0 < len(hot) < 9
    assert len(set(hot)) == len(hot)
    first = drawn.copy()
    drawn.clear()
    (tmp_path / "out" / "part-0000.npz").unlink()
    generate(corpus, tmp_path / "out", sampled_share=0.5, temperatures=(0.2, 0.3), part=9)
    assert drawn == first


@pytest.mark.parametrize(
    ("share", "count", "chats"), [(0.5, 8, 4), (0.0, 8, 0), (1.0, 4, 4), (1.0, 8, 5), (0.0, 18, 3), (0.5, 30, 5)]
)
def test_turns_of_a_chat_have_their_share_as_far_as_there_are_some(
    corpus: Path, tmp_path: Path, share: float, count: int, chats: int
) -> None:
    """The corpus has 5 chats and 15 other documents."""
    with pytest.warns(UserWarning, match="has 20 beginnings") if count > 20 else nullcontext():
        generate(corpus, tmp_path / "out", chat_share=share, count=count, part=30)
    with np.load(tmp_path / "out" / "part-0000.npz") as part:
        starts, prompts = part["starts"][:-1], part["prompt_lengths"]
        found = [part["tokens"][start : start + length].tolist() for start, length in zip(starts, prompts, strict=True)]
    assert len(found) == min(count, 20)
    assert sum(TURN[0] in prompt for prompt in found) == chats


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no texts"):
        load_responses(tmp_path, 10)


@pytest.mark.parametrize("batch", [1, 2, 32])
@pytest.mark.parametrize("windows", [(None, None), (5, None)])
def test_features_are_those_of_decoding(batch: int, windows: Any) -> None:
    """Whole rows at once, without a cache; kept in bfloat16, nothing behind the end of a row."""
    target = tiny_transformer(tiny_spec(windows=windows), dtype=torch.float32)
    tokens = torch.randint(64, (5, 12), generator=torch.Generator().manual_seed(0))
    lengths = [12, 3, 7, 12, 8]
    tapped = features(target, Responses(tokens, torch.ones(5, dtype=torch.long), torch.tensor(lengths)), (1, 0), batch)
    assert tapped.dtype == torch.bfloat16
    for row, length, ours in zip(tokens.tolist(), lengths, tapped, strict=True):
        expected = run_flat(target, [row[:length]], [tiny_cache(target)], (1, 0)).features
        assert expected is not None
        torch.testing.assert_close(ours[:length].float(), expected, atol=1e-3, rtol=1e-2)
        assert not ours[length:].any()


def test_prompts_longer_than_any_document_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", tokens=np.arange(30), starts=np.array([0, 30]), kinds=np.zeros(1))
    with pytest.raises(ConfigError, match=r"prompt_tokens is \[90, 99\]: no document"):
        beginnings(tmp_path / "train.npz", (1,), ResponsesConfig(8, (90, 99)))
