"""The optimisers and their learning rate.

Matrices are trained with Muon (K. Jordan 2024; arXiv 2502.16982 for the RMS-matched learning rate), everything else
with AdamW. The rate is a function of the step.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from paceline.train.options import FitConfig

__all__ = ["new_optimizers", "rate_at", "step_all"]


def new_optimizers(module: nn.Module, config: FitConfig) -> list[torch.optim.Optimizer]:
    """Muon for the trained matrices but tables whose rows are looked up, AdamW for the rest."""
    trained = [(_is_product(name, p), p) for name, p in module.named_parameters() if p.requires_grad]
    matrices = [p for product, p in trained if product]
    others = [p for product, p in trained if not product]
    return [
        torch.optim.Muon(matrices, lr=config.learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _is_product(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and "embed" not in name and "codebook" not in name


def step_all(optimizers: list[torch.optim.Optimizer], rate: float) -> None:
    """One step of each at this learning rate; the gradients are gone afterwards."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def rate_at(step: int, config: FitConfig) -> float:
    """A linear rise over the warm-up, then a cosine down to the final share of the peak."""
    rise = min(1.0, (step + 1) / max(1, config.warmup_steps))
    share = max(0.0, (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps))
    falling = config.final_share + (1 - config.final_share) * 0.5 * (1 + math.cos(math.pi * share))
    return config.learning_rate * rise * falling
