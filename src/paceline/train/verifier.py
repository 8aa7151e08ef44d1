"""The recipe of a verifier: a small autoregressive model that knows what a diffusion model says from left to right.

For every token of the diffusion model's own samples, the verifier learns the distribution that the token was drawn from
(KL of the dLLM's row at the moment when its left-to-right sampler fixed the token; arXiv 2506.00413), and beside that
the next tokens of a corpus, from which it learns the language. With a user's own text as the corpus, and samples that
go on with that text, the same recipe adapts a verifier to a domain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.errors import TrainingError
from paceline.models.checksum import checksum
from paceline.models.spec import Spec
from paceline.models.transformer import Transformer
from paceline.train.data import fingerprint, load_windows
from paceline.train.diffusion_options import VerifierConfig
from paceline.train.fit.loop import fit
from paceline.train.forward import next_logits
from paceline.train.losses import next_token_loss, truncated_divergence, weighted_mean
from paceline.train.responses import Responses
from paceline.train.teacher import Teacher

__all__ = ["bundled_verifier_spec", "distillation", "train_verifier"]

_AUTOREGRESSIVE = {"dream": "qwen2", "llada": "llama"}
"""The family with the layers of a diffusion model's, and attention to one side."""


def bundled_verifier_spec(dllm: Spec) -> Spec:
    """Half as wide as its dLLM and with three eighths of its layers: about a sixth of the parameters."""
    layers = max(1, dllm.num_layers * 3 // 8)
    heads = max(1, dllm.num_heads // 2)
    return replace(
        dllm,
        family=_AUTOREGRESSIVE.get(dllm.family, dllm.family),
        hidden_size=dllm.hidden_size // 2,
        intermediate_size=dllm.intermediate_size // 2,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=math.gcd(heads, max(1, dllm.num_kv_heads // 2)),
        windows=(None,) * layers,
        diffusion=None,
    )


def train_verifier(
    model: Transformer, samples: Responses, said: Teacher, config: VerifierConfig, run: Path, start: int = 0
) -> None:
    """Train `model` in place; resumes from `run` where that holds a checkpoint.

    Args:
        samples: the dLLM's own; said: what it said behind each of their tokens but the last (only the answers count).
        start: checksum of the weights that `model` begins with, 0 for random ones: a run is resumed only with the same.

    Raises:
        TrainingError: no corpus, or too few samples to keep some back; or as `fit`.
        ConfigError: as `fit`.
    """
    if len(samples.tokens) < 8:
        raise TrainingError(f"There are {len(samples.tokens)} samples.", remedy="It takes at least 8.")
    windows = load_windows(config.corpus / "train.npz", config.window_tokens)
    texts = load_windows(config.corpus / "heldout.npz", config.window_tokens)
    heldout = torch.arange(min(config.heldout_samples, len(samples.tokens) // 4))
    training = torch.arange(len(heldout), len(samples.tokens))

    def batch_at(index: int) -> tuple[Tensor, ...]:
        rng = np.random.default_rng((config.fit.seed, 8, index))
        rows = training[torch.from_numpy(rng.integers(0, len(training), config.samples_per_batch))]
        return (windows.batch(config.fit.seed, index, config.windows_per_batch), *_rows(samples, said, rows))

    def loss(text: Tensor, *rows: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        learned = next_token_loss(next_logits(model, text).flatten(0, 1), text[:, 1:].flatten())
        distilled = distillation(model, *rows)
        share = config.distill_share
        return share * distilled + (1.0 - share) * learned, {"next_token_loss": learned, "distillation": distilled}

    @torch.no_grad()
    def evaluate() -> Mapping[str, float]:
        model.eval()
        parts = torch.split(heldout, 16)
        counts = [int((samples.lengths - samples.prompt_lengths)[part].sum()) for part in parts]
        nats = [
            count * float(distillation(model, *_rows(samples, said, part)))
            for part, count in zip(parts, counts, strict=True)
        ]
        text = texts.batch(0, 0, min(config.windows_per_batch, len(texts.tokens)))
        return {
            "heldout_divergence": math.fsum(nats) / sum(counts),
            "heldout_loss": float(next_token_loss(next_logits(model, text).flatten(0, 1), text[:, 1:].flatten())),
        }

    recipe = {
        "windows_per_batch": config.windows_per_batch,
        "samples_per_batch": config.samples_per_batch,
        "distill_share": config.distill_share,
        "windows": fingerprint(windows.tokens),
        "samples": fingerprint(samples.tokens),
        "said": checksum(*said),
        "heldout_samples": len(heldout),
        "start": start,
    }
    fit(model, batch_at, loss, evaluate, config.fit, run, recipe, "windows_per_batch")


def distillation(
    model: Transformer, tokens: Tensor, prompts: Tensor, lengths: Tensor, ids: Tensor, log_probabilities: Tensor
) -> Tensor:
    """Mean KL(dLLM || model) in nats over the answers' tokens.

    Args:
        tokens: [rows, length]; prompts, lengths: [rows], tokens of the prompt, and in all.
        ids, log_probabilities: [rows, length, k]; at i, what the dLLM said of token i + 1.
    """
    index = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    judged = (index >= prompts.unsqueeze(1) - 1) & (index < lengths.unsqueeze(1) - 1)
    logits = next_logits(model, tokens)[judged]
    losses = truncated_divergence(logits, ids[:, :-1][judged], log_probabilities[:, :-1][judged])
    return weighted_mean(losses, torch.ones_like(losses))


def _rows(samples: Responses, said: Teacher, rows: Tensor) -> tuple[Tensor, ...]:
    lengths = samples.lengths[rows]
    longest = int(lengths.max())
    return samples.tokens[rows, :longest], samples.prompt_lengths[rows], lengths, *said.of(rows, longest)
