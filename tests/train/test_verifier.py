"""The recipe of a verifier."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import same_weights, tiny_spec, tiny_transformer, write_checkpoint

from paceline.errors import TrainingError
from paceline.models.attention import dense_attention
from paceline.models.diffusion_spec import Diffusion
from paceline.models.load import load_transformer
from paceline.models.spec import Spec
from paceline.models.transformer import Transformer
from paceline.train.diffusion_options import VerifierConfig
from paceline.train.forward import next_logits
from paceline.train.options import FitConfig
from paceline.train.responses import Responses
from paceline.train.target import bundled_target_spec
from paceline.train.teacher import Teacher
from paceline.train.verifier import bundled_verifier_spec, distillation, train_verifier

VOCAB, WIDTH = 64, 14


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents that count on from anywhere."""
    for name, documents in (("train", 60), ("heldout", 20)):
        starts = np.random.default_rng(len(name)).integers(0, VOCAB, documents)
        tokens = ((starts[:, None] + np.arange(20)) % VOCAB).astype(np.uint16).ravel()
        offsets = np.arange(0, 20 * documents + 1, 20)
        np.savez(tmp_path / f"{name}.npz", tokens=tokens, starts=offsets, kinds=np.zeros(documents, dtype=np.uint8))
    return tmp_path


def samples(count: int = 24) -> tuple[Responses, Teacher]:
    """Rows that count by two, of a dLLM that gives 3/4 to that and 1/4 to counting by one."""
    starts = torch.randint(VOCAB, (count, 1), generator=torch.Generator().manual_seed(0))
    tokens = (starts + 2 * torch.arange(WIDTH)) % VOCAB
    lengths = torch.tensor([WIDTH - index % 3 for index in range(count)])
    ids = torch.stack((tokens + 2, tokens + 1), -1) % VOCAB
    law = torch.tensor([0.75, 0.25]).log().half().expand(*ids.shape)
    return Responses(tokens, torch.full((count,), 3), lengths), Teacher(ids.int(), law)


def config_for(corpus: Path, steps: int, distill_share: float = 0.7) -> VerifierConfig:
    fit = FitConfig(steps=steps, learning_rate=0.02, warmup_steps=5, evaluate_every=steps // 2)
    return VerifierConfig(corpus, fit, 16, 2, 8, distill_share, heldout_samples=4)


def test_the_divergence_is_that_of_the_answers_tokens() -> None:
    """Token by token, in a model that is asked for one prefix at a time."""
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    rows, said = samples(5)
    parts = []
    for row in range(5):
        for at in range(int(rows.prompt_lengths[row]) - 1, int(rows.lengths[row]) - 1):
            prefix = rows.tokens[row, : at + 1]
            hidden = model(prefix, torch.arange(at + 1), dense_attention(1, (None, None))).hidden
            law = model.head(hidden[-1:]).log_softmax(-1)[0].double()
            known = said.log_probabilities[row, at].double()
            own = law[said.ids[row, at].long()]
            rest = 1 - known.exp().sum()
            others = torch.log1p(-own.exp().sum())
            parts.append(float((known.exp() * (known - own)).sum() + torch.xlogy(rest, rest) - rest * others))
    found = distillation(model, rows.tokens, rows.prompt_lengths, rows.lengths, *said)
    assert float(found) == pytest.approx(np.mean(parts), rel=1e-4)


def test_it_learns_the_samples_and_the_language(corpus: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_spec(tied_head=True))
    train_verifier(model, *samples(64), config_for(corpus, 80), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["heldout_divergence"] < 0.3 < lines[0]["distillation"]
    assert lines[-1]["heldout_loss"] < 2.5 < lines[0]["next_token_loss"]
    with torch.no_grad():
        row = (10 + 2 * torch.arange(6)) % VOCAB
        law = model.head(model(row, torch.arange(6), dense_attention(1, (None, None))).hidden[-1:]).softmax(-1)[0]
    assert law[22] > law[21] > 0.1, "three to one"


def test_it_is_resumable(corpus: Path, tmp_path: Path) -> None:
    models = [Transformer(tiny_spec()) for _ in range(2)]
    for model in models:
        train_verifier(model, *samples(), config_for(corpus, 4), tmp_path / "run")
    assert same_weights(*models)


def test_what_would_be_mixed_is_not_resumed(corpus: Path, tmp_path: Path) -> None:
    rows, said = samples()
    train_verifier(Transformer(tiny_spec()), rows, said, config_for(corpus, 4), tmp_path / "run")

    def again(teacher: Teacher = said, start: int = 0, **changes: int) -> None:
        config = replace(config_for(corpus, 4), **changes)
        train_verifier(Transformer(tiny_spec()), rows, teacher, config, tmp_path / "run", start)

    with pytest.raises(TrainingError, match="heldout_samples 4 instead of 5"):
        again(heldout_samples=5)
    with pytest.raises(TrainingError, match="windows "):
        again(window_tokens=15)
    with pytest.raises(TrainingError, match="said "):
        again(Teacher(said.ids[..., :1], said.log_probabilities[..., :1]))
    with pytest.raises(TrainingError, match="start 0 instead of 7"):
        again(start=7)


def test_too_few_samples(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="There are 7 samples"):
        train_verifier(Transformer(tiny_spec()), *samples(7), config_for(corpus, 4), tmp_path / "run")


@pytest.mark.parametrize("dllm", [bundled_target_spec(8192), bundled_target_spec(8192, (3,))])
def test_the_bundled_verifier_has_a_sixth_of_its_dllm(dllm: Spec) -> None:
    spec = bundled_verifier_spec(dllm)
    small, large = (sum(each.numel() for each in Transformer(kind).parameters()) for kind in (spec, dllm))
    assert 0.1 < small / large < 0.2
    assert spec.eos_token_ids == dllm.eos_token_ids
    assert bundled_verifier_spec(tiny_spec(diffusion=Diffusion(63, 1))).diffusion is None


@pytest.mark.parametrize("family", ["qwen3", "dream", "llada"])
@pytest.mark.parametrize("heads", [(4, 2), (1, 1), (10, 5)])
def test_the_verifier_of_any_dllm_opens_again_as_an_autoregressive_model(
    family: str, heads: tuple[int, int], tmp_path: Path
) -> None:
    """Five key heads halved are two, which do not divide the five heads that ten become."""
    shape = {"num_heads": heads[0], "num_kv_heads": heads[1], "qkv_bias": family == "dream"}
    spec = bundled_verifier_spec(tiny_spec(family, diffusion=Diffusion(63, 1), **shape))
    model = Transformer(spec)
    write_checkpoint(tmp_path, model)
    again = load_transformer(tmp_path, trainable=True)
    assert again.spec == spec
    tokens = torch.arange(12).view(2, 6)
    assert torch.equal(next_logits(model, tokens), next_logits(again, tokens))
