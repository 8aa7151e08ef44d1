"""Samples of a diffusion model, and what it said of each of their tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rows import Rows
from tiny import tiny_spec, tiny_transformer

from paceline.decode.denoiser import Denoiser
from paceline.decode.noise import gumbel
from paceline.errors import ConfigError, ContextOverflow, TrainingError
from paceline.models.diffusion_spec import Diffusion
from paceline.request import Sampling
from paceline.train.diffusion_options import SamplesConfig
from paceline.train.options import ResponsesConfig
from paceline.train.responses import beginnings
from paceline.train.samples import generate_samples, load_samples, sample

MASK, END = 63, 7
TEXTS = ResponsesConfig(20, (4, 9), max_tokens=8, sampled_share=0.5, batch=3, part=8)


def dllm(shift: int = 1) -> Denoiser:
    spec = tiny_spec("qwen2", diffusion=Diffusion(MASK, shift), eos_token_ids=(END,))
    return Denoiser(tiny_transformer(spec), 62)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    tokens = np.random.default_rng(0).integers(8, 60, 40 * 30).astype(np.uint16)
    offsets, kinds = np.arange(0, 40 * 30 + 1, 30), np.zeros(40, dtype=np.uint8)
    np.savez(tmp_path / "train.npz", tokens=tokens, starts=offsets, kinds=kinds)
    return tmp_path / "train.npz"


@pytest.mark.parametrize(("shift", "step", "window"), [(0, 1, 4), (1, 1, 3), (1, 2, 5)])
def test_each_token_is_drawn_from_the_row_that_is_logged_for_it(shift: int, step: int, window: int) -> None:
    """Position by position, in passes without a cache."""
    model = dllm(shift)
    config = SamplesConfig(TEXTS, window=window, kv_window=None, tokens_per_step=step, teacher_top_k=5)
    prompts = [(3, 9, 20), (11, 12, 13, 14, 15)]
    canvases = [
        model.open(prompt, Sampling(max_tokens=7, temperature=0.8), seed) for seed, prompt in enumerate(prompts)
    ]
    for seed, (prompt, found) in enumerate(
        zip(prompts, sample(model, canvases, config, frozenset({END})), strict=True)
    ):
        text, answer = list(prompt), found.answer
        assert len(answer) == 7 or answer[-1] == END
        for first in range(0, len(answer), step):
            seen = min(len(prompt) + 7, len(text) + window)
            shown = [*text, *[MASK] * (seen - len(text))]
            logits = Rows(model.model, seen).logits(shown, range(seen), range(seen))
            for place, token in enumerate(answer[first : first + step], start=len(text)):
                scores = logits[place - shift].index_fill(0, torch.tensor([62, 63]), -torch.inf)
                values, ids = scores.float().log_softmax(-1).topk(5)
                index = place - len(prompt)
                assert found.ids[index].tolist() == ids.tolist()
                assert torch.allclose(found.log_probabilities[index], values, atol=1e-5)
                noise = gumbel(seed, "token", torch.tensor([place]), torch.arange(64)[None])[0]
                assert token == int((scores + 0.8 * noise.double()).argmax())
            text += answer[first : first + step]


def test_parts_are_kept_and_read_back_beside_their_texts(corpus: Path, tmp_path: Path) -> None:
    config, out = SamplesConfig(TEXTS, window=4, kv_window=2, teacher_top_k=3), tmp_path / "samples"
    generate_samples(dllm(), corpus, (1,), config, frozenset({END}), out)
    whole = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
    assert len(whole) == 3
    (out / "part-0001.npz").unlink()
    generate_samples(dllm(), corpus, (1,), config, frozenset({END}), out)
    texts, said = load_samples(out)
    again, said_again = load_samples(out)
    assert torch.equal(texts.tokens, again.tokens)
    assert torch.equal(said.ids, said_again.ids)
    assert len(texts.tokens) == 20
    for row in range(20):
        prompt, length = int(texts.prompt_lengths[row]), int(texts.lengths[row])
        assert not said.ids[row, : prompt - 1].any()
        assert not said.ids[row, length - 1 :].any()
        law = said.log_probabilities[row, prompt - 1 : length - 1].float()
        assert (law.diff(dim=-1) <= 0).all()
        assert (law.exp().sum(-1) <= 1.001).all()


def test_greedy_samples_take_the_likeliest_token(corpus: Path, tmp_path: Path) -> None:
    texts_config = ResponsesConfig(10, (4, 9), max_tokens=8, sampled_share=0.0, batch=3, part=8)
    generate_samples(
        dllm(), corpus, (1,), SamplesConfig(texts_config, teacher_top_k=3), frozenset({END}), tmp_path / "s"
    )
    texts, said = load_samples(tmp_path / "s")
    for row in range(10):
        answer = slice(int(texts.prompt_lengths[row]), int(texts.lengths[row]))
        before = slice(answer.start - 1, answer.stop - 1)
        assert texts.tokens[row, answer].tolist() == said.ids[row, before, 0].tolist()


def test_a_corpus_with_fewer_beginnings_than_asked_for(corpus: Path, tmp_path: Path) -> None:
    """Of five parts there are as many as have texts."""
    config = SamplesConfig(replace(TEXTS, count=100, part=20), teacher_top_k=3)
    with pytest.warns(UserWarning, match=r"has 40 beginnings of 4 to 18 tokens, count is 100"):
        generate_samples(dllm(), corpus, (1,), config, frozenset({END}), tmp_path / "s")
    assert [path.name for path in sorted((tmp_path / "s").iterdir())] == ["part-0000.npz", "part-0001.npz"]
    assert len(load_samples(tmp_path / "s")[0].tokens) == 40


@pytest.mark.parametrize("broken", [b"", b"PK", b"text"])
def test_a_damaged_part_is_named(corpus: Path, tmp_path: Path, broken: bytes) -> None:
    generate_samples(dllm(), corpus, (1,), SamplesConfig(TEXTS, teacher_top_k=3), frozenset({END}), tmp_path / "s")
    (tmp_path / "s" / "part-0001.npz").write_bytes(broken)
    with pytest.raises(TrainingError, match=r"part-0001.npz cannot be read: .* Remove it: the same command makes"):
        load_samples(tmp_path / "s")


def test_what_cannot_be_done(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="holds no texts"):
        load_samples(tmp_path)
    with pytest.raises(ConfigError, match="teacher_top_k is 63, of 62 tokens"):
        generate_samples(dllm(), corpus, (1,), SamplesConfig(TEXTS, teacher_top_k=63), frozenset({END}), tmp_path)
    narrow = Denoiser(tiny_transformer(replace(dllm().model.spec, context_tokens=9)), 62)
    with pytest.raises(ContextOverflow, match="The prompt has 9 tokens, the model's context is 9"):
        generate_samples(narrow, corpus, (1,), SamplesConfig(TEXTS), frozenset({END}), tmp_path)


def test_all_that_may_be_drawn_can_be_logged_and_texts_stand_in_the_order_of_their_prompts(
    corpus: Path, tmp_path: Path
) -> None:
    """Neither the mask nor padding is among the likeliest, whose logarithms are finite."""
    generate_samples(dllm(), corpus, (1,), SamplesConfig(TEXTS, teacher_top_k=62), frozenset({END}), tmp_path)
    texts, said = load_samples(tmp_path)
    assert int(said.ids.max()) == 61
    assert bool(said.log_probabilities.isfinite().all())
    prompts = [tuple(row[:size].tolist()) for row, size in zip(texts.tokens, texts.prompt_lengths, strict=True)]
    assert prompts == beginnings(corpus, (1,), TEXTS)
