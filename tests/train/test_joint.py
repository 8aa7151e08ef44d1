"""A diffusion model and its verifier trained together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import same_weights, tiny_spec, tiny_transformer

from paceline.errors import TrainingError
from paceline.models.attention import dense_attention
from paceline.models.diffusion_spec import Diffusion
from paceline.models.transformer import Transformer
from paceline.train.diffusion_options import DllmConfig, JointConfig
from paceline.train.joint import joint_loss, train_joint
from paceline.train.masking import masked_rows
from paceline.train.options import FitConfig

MASK, END = 63, 62


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shift", [0, 1])
def test_the_loss_of_a_run_is_that_of_the_normalised_product(shift: int, alpha: float) -> None:
    """Token by token; the verifier is asked for one prefix at a time. Six ids that only the dLLM has are out of it."""
    dllm = tiny_transformer(tiny_spec(vocab_size=70, diffusion=Diffusion(MASK, shift)))
    verifier = tiny_transformer(tiny_spec(num_layers=1), seed=3)
    tokens = torch.randint(60, (3, 12), generator=torch.Generator().manual_seed(1))
    batch = masked_rows(tokens, END, 1.0, 5, np.random.default_rng(2))
    expected = 0.0
    for row, masked, weights in zip(batch.tokens, batch.masked, batch.weights, strict=True):
        shown = torch.where(masked, MASK, row)
        seen = dllm.head(dllm(shown, torch.arange(12), dense_attention(1, (None, None), causal=False)).hidden)
        for place in masked.nonzero().flatten().tolist():
            hidden = verifier(row[:place], torch.arange(place), dense_attention(1, (None,))).hidden
            power = seen[place - shift, :64].softmax(-1) ** alpha * verifier.head(hidden[-1]).softmax(-1) ** (1 - alpha)
            expected -= float(weights[place] * (power / power.sum())[row[place]].log()) / 3
    assert float(joint_loss(dllm, verifier, batch, alpha)) == pytest.approx(expected, rel=1e-5)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents that count on from anywhere."""
    for name, documents in (("train", 40), ("heldout", 10)):
        tokens = (np.random.default_rng(len(name)).integers(0, 60, documents)[:, None] + np.arange(50)) % 60
        offsets, kinds = np.arange(0, 50 * documents + 1, 50), np.zeros(documents, dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", tokens=tokens.astype(np.uint16).ravel(), starts=offsets, kinds=kinds)
    return tmp_path


def config_for(corpus: Path, **changes: Any) -> JointConfig:
    fit = FitConfig(**{"steps": 40, "learning_rate": 0.02, "warmup_steps": 5, "evaluate_every": 20, **changes})
    return JointConfig(DllmConfig(corpus, fit, 32, 32, 256, longest_run=8, evaluation_rows=8))


def test_both_learn_and_a_run_is_resumable(corpus: Path, tmp_path: Path) -> None:
    config = config_for(corpus)
    torch.manual_seed(0)
    pairs = [
        (Transformer(tiny_spec(diffusion=Diffusion(MASK, 1), tied_head=True)), Transformer(tiny_spec(tied_head=True)))
        for _ in range(2)
    ]
    for dllm, verifier in pairs:  # the second pair finds the run finished
        train_joint(dllm, verifier, config, END, tmp_path / "run")
    for one, other in zip(*pairs, strict=True):
        assert same_weights(one, other)
    with pytest.raises(TrainingError, match=re.escape("starts [0, 0] instead of [0, 1]")):
        train_joint(*pairs[0], config, END, tmp_path / "run", (0, 1))
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["heldout_joint"] < lines[19]["heldout_joint"] < lines[0]["joint_loss"]
    assert lines[-1]["marginal_loss"] < lines[0]["marginal_loss"]


def test_layers_that_are_recomputed_change_nothing(corpus: Path, tmp_path: Path) -> None:
    """The diffusion model goes through two losses of each step. In mixed precision, `==` on a CPU."""
    trained = []
    for recomputed in (False, True):
        torch.manual_seed(0)
        pair = Transformer(tiny_spec(diffusion=Diffusion(MASK, 1))), Transformer(tiny_spec(tied_head=True))
        config = config_for(corpus, steps=4, gradient_checkpointing=recomputed)
        train_joint(*pair, config, END, tmp_path / str(recomputed))
        trained.append(pair)
    assert all(same_weights(one, other) for one, other in zip(*trained, strict=True))
