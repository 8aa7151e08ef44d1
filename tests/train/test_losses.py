"""Losses against their definitions, one token at a time."""

from __future__ import annotations

import math

import pytest
import torch

from paceline.train.losses import (
    decay_weights,
    divergence,
    next_token_loss,
    pace_weights,
    repetition_loss,
    token_nats,
    truncated_divergence,
    unlikelihood_loss,
    weighted_mean,
)

LOGITS = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 8, 3, 3, 1, 5])


def nats(row: int) -> float:
    scores = [math.exp(x) for x in LOGITS[row].double().tolist()]
    return -math.log(scores[int(TARGETS[row])] / sum(scores))


def test_next_token_loss() -> None:
    assert float(next_token_loss(LOGITS, TARGETS)) == pytest.approx(sum(map(nats, range(6))) / 6, rel=1e-6)


def test_token_nats_keep_the_shape() -> None:
    ours = token_nats(LOGITS.view(2, 3, 9), TARGETS.view(2, 3))
    assert ours.shape == (2, 3)
    assert ours.flatten().tolist() == pytest.approx(list(map(nats, range(6))), rel=1e-5)


def test_weighted_mean() -> None:
    weights = [0.0, 1.0, 0.5, 0.25, 0.0, 2.0]
    expected = sum(weight * row for row, weight in enumerate(weights)) / sum(weights)
    assert float(weighted_mean(torch.arange(6.0), torch.tensor(weights))) == pytest.approx(expected, rel=1e-6)
    assert float(weighted_mean(torch.arange(6.0), torch.zeros(6))) == 0.0


def test_divergence() -> None:
    """Term by term; of a distribution from itself it is 0, from another it is not the same both ways."""
    teacher, student = LOGITS[:3].double(), LOGITS[3:].double()
    for row, value in enumerate(divergence(student, teacher).tolist()):
        p, q = (logits[row].softmax(-1).tolist() for logits in (teacher, student))
        assert value == pytest.approx(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)), rel=1e-5)
    assert divergence(student, student).abs().max() < 1e-6
    assert not torch.allclose(divergence(student, teacher), divergence(teacher, student))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_truncated_divergence(k: int) -> None:
    """Token by token, then the bucket of all others; cutting a distribution never adds to the distance."""
    teacher, student = LOGITS[:3], LOGITS[3:]
    known, ids = teacher.log_softmax(-1).topk(k)
    ours = truncated_divergence(student, ids, known)
    for row, value in enumerate(ours.tolist()):
        p, q = (logits[row].double().softmax(-1).tolist() for logits in (teacher, student))
        chosen = ids[row].tolist()
        rest_p, rest_q = (sum(x for i, x in enumerate(each) if i not in chosen) for each in (p, q))
        expected = sum(p[i] * math.log(p[i] / q[i]) for i in chosen) + rest_p * math.log(rest_p / rest_q)
        assert value == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert (ours <= divergence(student, teacher) + 1e-6).all()


def test_truncated_divergence_of_the_whole_vocabulary_is_the_divergence() -> None:
    teacher, student = LOGITS[:3], LOGITS[3:].clone().requires_grad_()
    known, ids = teacher.log_softmax(-1).topk(9)
    torch.testing.assert_close(truncated_divergence(student, ids, known), divergence(student, teacher))
    truncated_divergence(student, ids, known).sum().backward()
    assert student.grad is not None
    expected = student.detach().softmax(-1) - teacher.softmax(-1)
    torch.testing.assert_close(student.grad, expected, atol=1e-5, rtol=1e-4)


def test_truncated_divergence_bears_rounded_probabilities_and_sure_students() -> None:
    """The teacher's sum to more than 1; the student leaves nothing to the others."""
    known, ids = torch.tensor([[math.log(0.6), math.log(0.41)]]).half(), torch.tensor([[4, 2]], dtype=torch.int32)
    student = torch.full((1, 9), -1e4).index_fill(-1, torch.tensor([2, 4]), 1e4).requires_grad_()
    distance = truncated_divergence(student, ids, known)
    distance.sum().backward()
    assert float(distance.detach()) == pytest.approx(0.6 * math.log(1.2) + 0.41 * math.log(0.82), abs=1e-3)
    assert student.grad is not None
    assert student.grad.isfinite().all()


def test_half_precision_logits_are_summed_in_float32() -> None:
    loss = next_token_loss(LOGITS.bfloat16(), TARGETS)
    assert loss.dtype == torch.float32


def test_decay_weights() -> None:
    """exp(-(k - 1) / gamma): 1 for the first slot, 1/e for slot gamma + 1."""
    weights = decay_weights(torch.tensor([1, 2, 8]), gamma=7.0)
    assert weights.tolist() == pytest.approx([1.0, math.exp(-1 / 7), math.exp(-1)])


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_pace_weights(alpha: float) -> None:
    """The sum of products as it is written; with alpha 1 the weights fall by 1 from slot to slot."""
    right = torch.rand(4, 7, generator=torch.Generator().manual_seed(1))
    for row, weights in zip(right.tolist(), pace_weights(right, alpha).tolist(), strict=True):
        softened = [(1 - alpha) * q + alpha for q in row]
        expected = [sum(math.prod(softened[: m + 1]) for m in range(j, 7)) for j in range(7)]
        assert weights == pytest.approx(expected, rel=1e-5)
    assert pace_weights(torch.zeros(3), 1.0).tolist() == [3.0, 2.0, 1.0]


def test_pace_weights_are_not_differentiated() -> None:
    assert not pace_weights(torch.rand(3, requires_grad=True)).requires_grad


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


def test_unlikelihood_loss() -> None:
    marked = torch.tensor([True, False, True, False, False, True])
    expected = sum(-math.log(1 - math.exp(-nats(row))) for row in (0, 2, 5)) / 3
    assert float(unlikelihood_loss(LOGITS, TARGETS, marked)) == pytest.approx(expected, rel=1e-5)
    assert float(unlikelihood_loss(LOGITS, TARGETS, torch.zeros(6, dtype=torch.bool))) == 0.0
    certain = torch.full((1, 3), -1e4).index_fill(-1, torch.tensor([1]), 1e4)
    assert unlikelihood_loss(certain, torch.tensor([1]), torch.tensor([True])).isfinite()
