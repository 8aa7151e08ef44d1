"""How good an answer is in the eyes of the exact target, whoever gave it, in whatever precision.

The answer is fed through the target in one pass (teacher forcing), and each of its tokens is compared with what the
target itself chooses there, and has a probability. Knows nothing of speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.bench.forced import ROWS, read_forced
from paceline.decode.processors import process, widen
from paceline.decode.sampling import choose
from paceline.decode.sequence import Sequence as Committed
from paceline.decode.target import Target
from paceline.request import Sampling

__all__ = ["FIDELITY_DEFINITIONS", "Fidelity", "fidelity_figures", "fidelity_of", "log_likelihood_of"]

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
    for part, scores in _scored(target, sequence, other):
        first = len(sequence.tokens)
        chosen = choose(scores, sampling, sequence.noise, range(first, first + len(part))).tolist()
        agreed += sum(token == ours for token, ours in zip(part, chosen, strict=True))
        total += _log_likelihood(part, scores)
    return Fidelity(len(other), agreed, total, list(own) == list(other))


@torch.inference_mode()
def log_likelihood_of(target: Target, prompt: Sequence[int], sampling: Sampling, answer: Sequence[int]) -> float:
    """The sum over tokens of an answer of the natural logarithm of the target's probability, at temperature 1.

    Args:
        target, prompt, sampling: as in `fidelity_of`; whoever gave the answer, no seed matters.
    """
    scored = _scored(target, target.open(prompt, sampling, 0, None), answer)
    return sum(_log_likelihood(part, scores) for part, scores in scored)


def _scored(target: Target, sequence: Committed, answer: Sequence[int]) -> Iterator[tuple[Sequence[int], Tensor]]:
    """Some tokens of an answer at a time, [tokens], and the target's scores where they stand, [tokens, vocab].

    Args:
        sequence: opened for the prompt; the tokens are committed to it when the next ones are asked for.
    """
    for hidden in torch.split(read_forced(target, sequence, answer).hidden, ROWS):
        part = answer[len(sequence.tokens) - sequence.prompt_tokens :][: len(hidden)]
        yield part, widen(process(target.model.head(hidden), sequence.sampling, banned=target.banned()))
        sequence.commit(part)


def _log_likelihood(tokens: Sequence[int], scores: Tensor) -> float:
    logs = scores.double().log_softmax(-1)
    return float(logs.gather(-1, torch.tensor(tokens, device=logs.device).unsqueeze(-1)).sum())


def fidelity_figures(found: Sequence[Fidelity]) -> dict[str, Any]:
    """The figures of many answers (`FIDELITY_DEFINITIONS`)."""
    tokens = sum(each.tokens for each in found)
    return {
        "same_answers": sum(each.same for each in found) / len(found),
        "agreement": sum(each.agreed for each in found) / tokens,
        "log_likelihood": sum(each.log_likelihood for each in found) / tokens,
    }
