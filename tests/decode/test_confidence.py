"""How sure a model is, on laws that are written down."""

from __future__ import annotations

import math

import torch

from paceline.decode.confidence import best, confidence

LAWS = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], dtype=torch.float64)
TOKENS = torch.tensor([1, 2])


def test_probability_is_that_of_the_drawn_token() -> None:
    assert torch.allclose(confidence(LAWS.log(), TOKENS, "low_confidence"), torch.tensor([0.25, 0.8]).double())


def test_margin_is_between_the_two_most_probable() -> None:
    assert torch.allclose(confidence(LAWS.log(), TOKENS, "margin"), torch.tensor([0.25, 0.7]).double())


def test_entropy_is_negated() -> None:
    exact = [sum(p * math.log(p) for p in law) for law in LAWS.tolist()]
    assert torch.allclose(confidence(LAWS.log(), TOKENS, "entropy"), torch.tensor(exact).double())


def test_banned_ids_have_no_share() -> None:
    scores = torch.tensor([[1.0, -math.inf, 1.0]])
    assert confidence(scores, TOKENS[1:], "low_confidence").tolist() == [0.5]
    assert confidence(scores, TOKENS[1:], "margin").tolist() == [0.0]
    assert confidence(scores, TOKENS[1:], "entropy").tolist() == [math.log(0.5)]


def test_half_precision_is_judged_in_float64() -> None:
    worth = confidence(LAWS.log().bfloat16(), TOKENS, "low_confidence")
    assert worth.dtype is torch.float64


def test_of_equal_ones_the_first_comes_first() -> None:
    assert best(torch.tensor([0.5, 0.9, 0.5, 0.9])).tolist() == [1, 3, 0, 2]
    assert best(torch.full((100,), 0.5)).tolist() == list(range(100))
