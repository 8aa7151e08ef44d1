"""Exact laws that random choices are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.decode.sampling import is_greedy, survivors
from paceline.request import Sampling


def probabilities(scores: Tensor, sampling: Sampling) -> Tensor:
    """The law of `sampling.choose` over the noise, [rows, vocab]; 1 at the argmax where greedy."""
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if is_greedy(sampling):
        return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
    kept = scores.masked_fill(~survivors(scores, sampling), -torch.inf)
    return ((kept - kept.amax(-1, keepdim=True)) / sampling.temperature).softmax(-1)
