"""A model to train in milliseconds; as a program, a run of it that can be killed or started several times at once.

python tests/toy.py RUN '{"steps": 9}' [SECONDS]     a run with these settings, pausing so long before each batch
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.train.fit.loop import fit
from paceline.train.options import FitConfig

CONFIG = FitConfig(steps=9, learning_rate=0.02, warmup_steps=3, save_every=2, evaluate_every=4)


class Toy(nn.Module):
    """A matrix, an embedding and a bias: all that the two optimisers share out between them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.embed = nn.Embedding(10, 6)
        self.matrix = nn.Linear(6, 10)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)

    def loss(self, tokens: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        """With dropout, so that what is drawn matters."""
        hidden = nn.functional.dropout(self.embed(tokens[:, 0]), 0.1)
        logits = self.matrix(hidden).float()
        return nn.functional.cross_entropy(logits, tokens[:, 1]), {"figure": logits.mean()}

    def score(self) -> Mapping[str, float]:
        return {"score": float(self.matrix.weight.detach().double().sum())}


def batch_at(index: int) -> tuple[Tensor]:
    tokens = torch.randint(10, (8,), generator=torch.Generator().manual_seed(index))
    return (torch.stack((tokens, (tokens * 3 + 1) % 10), 1),)


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def main(run: str, settings: str, pause_seconds: str = "0") -> None:
    def slowly(index: int) -> tuple[Tensor]:
        time.sleep(float(pause_seconds))
        return batch_at(index)

    torch.set_num_threads(1)
    toy = Toy()
    fit(toy, slowly, toy.loss, toy.score, FitConfig(**json.loads(settings)), Path(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
