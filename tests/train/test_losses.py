"""Losses against their definitions, one token at a time."""

from __future__ import annotations

import math

import pytest
import torch

from paceline.train.losses import next_token_loss, slot_weights, weighted_cross_entropy

LOGITS = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 8, 3, 3, 1, 5])


def nats(row: int) -> float:
    scores = [math.exp(x) for x in LOGITS[row].double().tolist()]
    return -math.log(scores[int(TARGETS[row])] / sum(scores))


def test_next_token_loss() -> None:
    assert float(next_token_loss(LOGITS, TARGETS)) == pytest.approx(sum(map(nats, range(6))) / 6, rel=1e-6)


def test_weighted_cross_entropy() -> None:
    weights = [0.0, 1.0, 0.5, 0.25, 0.0, 2.0]
    expected = sum(weight * nats(row) for row, weight in enumerate(weights)) / sum(weights)
    assert float(weighted_cross_entropy(LOGITS, TARGETS, torch.tensor(weights))) == pytest.approx(expected, rel=1e-6)


def test_no_weight_at_all_is_no_loss() -> None:
    assert float(weighted_cross_entropy(LOGITS, TARGETS, torch.zeros(6))) == 0.0


def test_half_precision_logits_are_summed_in_float32() -> None:
    loss = next_token_loss(LOGITS.bfloat16(), TARGETS)
    assert loss.dtype == torch.float32


def test_slot_weights() -> None:
    """exp(-(k - 1) / gamma): 1 for the first slot, 1/e for slot gamma + 1."""
    weights = slot_weights(torch.tensor([1, 2, 8]), gamma=7.0)
    assert weights.tolist() == pytest.approx([1.0, math.exp(-1 / 7), math.exp(-1)])
