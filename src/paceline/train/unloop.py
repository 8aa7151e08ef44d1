"""Teaching a target out of its loops: unlikelihood on what its own greedy answers say again (arXiv 1908.04319).

A step learns from windows of the corpus as before, and from answers that repeat themselves: there, each token that ends
a run of four tokens the answer has had before is made less likely. What an answer says for the first time is not
touched, and answers that do not loop are left out. Knows nothing of how answers are generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.models.transformer import Transformer
from paceline.train.data import fingerprint, load_windows
from paceline.train.fit.loop import fit
from paceline.train.forward import next_logits
from paceline.train.losses import next_token_loss, unlikelihood_loss
from paceline.train.options import UnloopConfig
from paceline.train.responses import Responses

__all__ = ["repeats", "train_unloop"]

_GRAM = 4


def train_unloop(model: Transformer, responses: Responses, config: UnloopConfig, run: Path) -> bool:
    """Train `model` in place on its own greedy `responses`; resumes from `run` where that holds a checkpoint.

    False where none of them loops: there is nothing to unlearn, and `model` stays as it is.

    Raises:
        TrainingError: no corpus; or as `fit`.
        ConfigError: as `fit`.
    """
    windows = load_windows(config.corpus / "train.npz", config.window_tokens)
    heldout = load_windows(config.corpus / "heldout.npz", config.window_tokens)
    again = repeats(responses)
    looping = (again.sum(-1) > config.loop_share * (responses.lengths - responses.prompt_lengths)).nonzero().flatten()
    if not len(looping):
        return False

    def batch_at(index: int) -> tuple[Tensor, ...]:
        chosen = np.random.default_rng((config.fit.seed, 4, index)).integers(0, len(looping), config.answers_per_batch)
        rows = looping[torch.from_numpy(chosen)]
        batch = windows.batch(config.fit.seed, index, config.windows_per_batch)
        return batch, responses.tokens[rows], again[rows]

    def loss(batch: Tensor, answers: Tensor, marked: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        learned = next_token_loss(next_logits(model, batch).flatten(0, 1), batch[:, 1:].flatten())
        unlearned = unlikelihood_loss(next_logits(model, answers), answers[:, 1:], marked[:, 1:])
        return learned + unlearned, {"next_token_loss": learned, "unlikelihood_loss": unlearned}

    @torch.no_grad()
    def evaluate() -> Mapping[str, float]:
        model.eval()
        batch = heldout.batch(0, 0, min(config.evaluation_windows, len(heldout.tokens)))
        return {"heldout_loss": float(next_token_loss(next_logits(model, batch).flatten(0, 1), batch[:, 1:].flatten()))}

    recipe = {
        "windows_per_batch": config.windows_per_batch,
        "answers_per_batch": config.answers_per_batch,
        "loop_share": config.loop_share,
        "windows": fingerprint(windows.tokens),
        "answers": fingerprint(responses.tokens),
    }
    fit(model, batch_at, loss, evaluate, config.fit, run, recipe, "windows_per_batch")
    return True


def repeats(responses: Responses) -> Tensor:
    """Which tokens of the answers end a run of four that the same answer has had before, bool [rows, width].

    answer   a b c d e a b c d f   ->   only the second d
    """
    marked = torch.zeros(responses.tokens.shape, dtype=torch.bool)
    spans = zip(responses.prompt_lengths.tolist(), responses.lengths.tolist(), strict=True)
    for row, (start, end) in enumerate(spans):
        ids = responses.tokens[row].tolist()
        seen: set[tuple[int, ...]] = set()
        for last in range(start + _GRAM - 1, end):
            gram = tuple(ids[last - _GRAM + 1 : last + 1])
            marked[row, last] = gram in seen
            seen.add(gram)
    return marked
