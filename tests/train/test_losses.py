"""Losses against their definitions, one token at a time."""

from __future__ import annotations

import math

import pytest
import torch

from paceline.train.losses import next_token_loss, repetition_loss, slot_weights, weighted_cross_entropy

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


def test_repetition_loss() -> None:
    """Token by token: row 0 repeats from 2 on with period 2, row 1 from 1 on with period 1."""
    logits, targets = LOGITS.view(2, 3, 9), TARGETS.view(2, 3)
    starts, periods = torch.tensor([2, 1]), torch.tensor([2, 1])
    sure = [[math.exp(-nats(3 * row + at)) for at in range(3)] for row in range(2)]
    pairs = [(sure[0][2], sure[0][0]), (sure[1][1], sure[1][0]), (sure[1][2], sure[1][1])]
    expected = sum(-math.log(1 - abs(now - 0.5 * before)) for now, before in pairs) / 3
    assert float(repetition_loss(logits, targets, starts, periods)) == pytest.approx(expected, rel=1e-5)


def test_repetition_loss_has_no_gradient_through_the_repeated_and_is_finite_where_sure() -> None:
    logits = torch.zeros(1, 4, 5, requires_grad=True)
    targets = torch.tensor([[1, 2, 1, 2]])
    repetition_loss(logits, targets, torch.tensor([2]), torch.tensor([2])).backward()
    assert logits.grad is not None
    assert not logits.grad[0, :2].any()
    assert logits.grad[0, 2:].abs().sum(-1).gt(0).all()
    certain = torch.full((1, 4, 5), -1e4)
    certain[0, 2:, :3] = 1e4
    certain[0, :2, 4] = 1e4
    assert repetition_loss(certain, torch.tensor([[1, 1, 1, 1]]), torch.tensor([2]), torch.tensor([2])).isfinite()
