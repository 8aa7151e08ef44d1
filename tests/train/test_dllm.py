"""The recipe of a diffusion language model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusing import Request, uncover
from tiny import same_weights, tiny_spec, tiny_transformer

from paceline.decode.denoiser import Denoiser
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.remasking import Remasking
from paceline.errors import TrainingError
from paceline.models.attention import dense_attention
from paceline.models.diffusion_spec import Diffusion
from paceline.models.transformer import Transformer
from paceline.request import Sampling
from paceline.train.diffusion_options import DllmConfig
from paceline.train.dllm import masked_loss, train_dllm
from paceline.train.masking import masked_rows
from paceline.train.options import FitConfig

VOCAB, MASK, END = 64, 63, 62


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents that count on from anywhere, and end after 70 tokens."""
    for name, documents in (("train", 60), ("heldout", 20)):
        starts = np.random.default_rng(len(name)).integers(0, 60, documents)
        tokens = (starts[:, None] + np.arange(70)) % 60
        tokens[:, -1] = END
        offsets, kinds = np.arange(0, 70 * documents + 1, 70), np.zeros(documents, dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", tokens=tokens.astype(np.uint16).ravel(), starts=offsets, kinds=kinds)
    return tmp_path


def config_for(corpus: Path, steps: int, **changes: int) -> DllmConfig:
    fit = FitConfig(steps=steps, learning_rate=0.02, warmup_steps=5, evaluate_every=steps // 2)
    sizes = {"shortest_row": 32, "longest_row": 64, "tokens_per_batch": 256, "longest_run": 12, "evaluation_rows": 8}
    return DllmConfig(corpus, fit, **{**sizes, **changes})


@pytest.mark.parametrize("shift", [0, 1])
def test_the_loss_is_what_each_row_says_of_its_own_masks(shift: int) -> None:
    """Row by row and position by position, in float64; the model sees both sides."""
    model = tiny_transformer(tiny_spec(diffusion=Diffusion(MASK, shift)))
    tokens = torch.randint(60, (5, 32), generator=torch.Generator().manual_seed(1))
    batch = masked_rows(tokens, END, 0.5, 9, np.random.default_rng(2))
    expected = 0.0
    for row, masked, weights in zip(batch.tokens, batch.masked, batch.weights, strict=True):
        shown = torch.where(masked, MASK, row)
        hidden = model(shown, torch.arange(32), dense_attention(1, (None, None), causal=False)).hidden
        law = model.head(hidden).float().log_softmax(-1)
        expected -= sum(float(weights[i] * law[i - shift, row[i]]) for i in range(32) if masked[i]) / 5
    assert float(masked_loss(model, batch)) == pytest.approx(expected, rel=1e-5)


def test_rows_see_both_sides() -> None:
    attend = dense_attention(1, (None,), causal=False)
    queries, keys, values = torch.randn(3, 4, 2, 8, generator=torch.Generator().manual_seed(0)).unbind()
    law = (torch.einsum("qhd,khd->hqk", queries, keys) / 8**0.5).softmax(-1)
    expected = torch.einsum("hqk,khd->qhd", law, values).flatten(1)
    assert torch.allclose(attend(0, queries, keys, values), expected, atol=1e-6)


def test_it_learns_to_count(corpus: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_spec(tied_head=True, diffusion=Diffusion(MASK, 1), eos_token_ids=(END,)))
    train_dllm(model, config_for(corpus, 150), END, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["heldout_runs"] < lines[74]["heldout_runs"] < 3
    assert lines[-1]["heldout_scattered"] < 1.5
    model.eval().requires_grad_(False)
    decoder = MaskedDiffusion(Denoiser(model, VOCAB), Remasking("left_to_right"))
    request = Request(tuple(range(10, 36)), Sampling(max_tokens=6), 0)
    assert uncover(decoder, [request])[0].tokens == [36, 37, 38, 39, 40, 41]


def test_it_is_resumable(corpus: Path, tmp_path: Path) -> None:
    models = [Transformer(tiny_spec(diffusion=Diffusion(MASK, 1))) for _ in range(2)]
    for model in models:
        train_dllm(model, config_for(corpus, 4), END, tmp_path / "run")
    assert same_weights(*models)


def test_a_corpus_that_holds_nothing_back(corpus: Path, tmp_path: Path) -> None:
    empty = np.zeros(0, dtype=np.uint16)
    np.savez(corpus / "heldout.npz", tokens=empty, starts=np.zeros(1, dtype=np.int64), kinds=empty)
    with pytest.raises(TrainingError, match=r"heldout\.npz holds no text"):
        train_dllm(Transformer(tiny_spec(diffusion=Diffusion(MASK, 1))), config_for(corpus, 4), END, tmp_path / "run")


@pytest.mark.parametrize(
    ("diffusion", "end_id", "start", "told"),
    [
        (Diffusion(61, 1), END, 0, "diffusion {'mask_token_id': 63, 'logit_shift': 1} instead of"),
        (Diffusion(MASK, 0), END, 0, "'logit_shift': 1} instead of"),
        (Diffusion(MASK, 1), 61, 0, "end_id 62 instead of 61"),
        (Diffusion(MASK, 1), END, 5, "start 0 instead of 5"),
    ],
)
def test_what_would_be_mixed_is_not_resumed(
    corpus: Path, tmp_path: Path, diffusion: Diffusion, end_id: int, start: int, told: str
) -> None:
    config = config_for(corpus, 2)
    train_dllm(Transformer(tiny_spec(diffusion=Diffusion(MASK, 1))), config, END, tmp_path / "run")
    with pytest.raises(TrainingError, match=re.escape(told)):
        train_dllm(Transformer(tiny_spec(diffusion=diffusion)), config, end_id, tmp_path / "run", start)
