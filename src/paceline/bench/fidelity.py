"""How good an answer is in the eyes of the exact target, whoever gave it, in whatever precision.

The answer is fed through the target in one pass (teacher forcing), and each of its tokens is compared with what the
target itself chooses there, and has a probability. Knows nothing of speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.bench.forced import ROWS, read_forced
from paceline.decode.processors import process, widen
from paceline.decode.sampling import choose
from paceline.decode.target import Target
from paceline.request import Sampling

__all__ = ["FIDELITY_DEFINITIONS", "Fidelity", "fidelity_figures", "fidelity_of"]

FIDELITY_DEFINITIONS = {
    "same_answers": "share of answers with the very token ids of plain decoding in exact",
    "agreement": "share of tokens that the exact target itself chooses after the tokens before them, with the same "
    "settings and seed: its greedy choice at temperature 0",
    "log_likelihood": "mean over tokens of the natural logarithm of the exact target's probability, at temperature 1",
}
"""What each figure means; part of every curve."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """One answer: its tokens, how many of them the target would choose, and the sum of their log-probabilities."""

    tokens: int
    agreed: int
    log_likelihood: float
    same: bool


@torch.inference_mode()
def fidelity_of(
    target: Target, prompt: Sequence[int], sampling: Sampling, seed: int, *, own: Sequence[int], other: Sequence[int]
) -> Fidelity:
    """Judge the answer `other`.

    Args:
        target: plain, in exact precision.
        prompt, sampling, seed: of the request; no penalties and biases.
        own: the target's answer to it.
    """
    sequence = target.open(prompt, sampling, seed, None)
    agreed, total = 0, 0.0
    for hidden in torch.split(read_forced(target, sequence, other).hidden, ROWS):
        first = len(sequence.tokens)
        part = other[first - len(prompt) :][: len(hidden)]
        scores = widen(process(target.model.head(hidden), sampling, banned=target.banned()))
        chosen = choose(scores, sampling, sequence.noise, range(first, first + len(part))).tolist()
        agreed += sum(token == ours for token, ours in zip(part, chosen, strict=True))
        logs = scores.double().log_softmax(-1)
        total += float(logs.gather(-1, torch.tensor(part, device=logs.device).unsqueeze(-1)).sum())
        sequence.commit(part)
    return Fidelity(len(other), agreed, total, list(own) == list(other))


def fidelity_figures(found: Sequence[Fidelity]) -> dict[str, Any]:
    """The figures of many answers (`FIDELITY_DEFINITIONS`)."""
    tokens = sum(each.tokens for each in found)
    return {
        "same_answers": sum(each.same for each in found) / len(found),
        "agreement": sum(each.agreed for each in found) / tokens,
        "log_likelihood": sum(each.log_likelihood for each in found) / tokens,
    }
