"""Draws against torch on the same scores: the choice to the bit, the ranking within the noise's thousandth."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from paceline import native
from paceline.decode.noise import NoiseCache, gumbel

pytestmark = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))

VOCABS = (1, 5, 64, 65, 1000, 8192)


def scores_of(seed: int, rows: int, vocab: int, spread: float) -> Tensor:
    scores = spread * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))
    if seed % 3 == 0:
        scores[:, 1::2] = -torch.inf
    return scores


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("heat", [0.05, 0.7, 1.0, 3.0])
def test_the_choice_is_that_of_exact_noise(vocab: int, heat: float) -> None:
    for seed in range(40):
        scores, noise = scores_of(seed, 5, vocab, (0.0, 0.01, 1.0, 6.0)[seed % 4]), NoiseCache(seed, vocab)
        places = range(7 * seed, 7 * seed + 5)
        exact = heat * noise.at(places) + scores
        assert native.drawn(scores, heat, noise.keys(places)).tolist() == exact.numpy().argmax(-1).tolist()


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize(("scale", "heat"), [(1.0, 0.0), (1.0, 1.0), (1 / 0.7, 1.0), (0.5, 0.5)])
def test_ranked_are_the_greatest_with_their_probabilities(vocab: int, scale: float, heat: float) -> None:
    for seed in range(20):
        scores, noise = scores_of(seed, 3, vocab, 2.0), NoiseCache(seed, vocab)
        width = min(16, vocab)
        found = native.ranked(scores, scale, heat, noise.keys(range(3)), width)
        assert found is not None
        ids, log_probs = found
        law = (scale * scores + heat * noise.at(range(3))).log_softmax(-1)
        values = law.topk(width).values
        torch.testing.assert_close(log_probs, values, atol=2e-3, rtol=0)
        possible = log_probs > -torch.inf
        torch.testing.assert_close(law.gather(-1, ids)[possible], log_probs[possible], atol=2e-3, rtol=0)
        assert all(len(set(row)) == len(row) for row in (ids[i][possible[i]].tolist() for i in range(3)))


def test_noise_is_exact_where_it_is_rare() -> None:
    """The greatest of two million numbers, of equal scores: an edge that the vectors do not reach by themselves."""
    vocab, rows = 8192, 256
    noise = NoiseCache(3, vocab)
    chosen = native.drawn(torch.zeros(rows, vocab), 1.0, noise.keys(range(rows)))
    exact = gumbel(3, "token", torch.arange(rows), torch.arange(vocab)[None])
    assert exact.max() > 13.8
    assert chosen.tolist() == exact.numpy().argmax(-1).tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 77, 199])
def test_unsound_rows_are_told(bad: float, place: int) -> None:
    scores = torch.zeros(3, 200)
    scores[1, place] = bad
    keys = NoiseCache(1, 200).keys(range(3))
    assert [token < 0 for token in native.drawn(scores, 1.0, keys).tolist()] == [False, True, False]
    assert native.ranked(scores, 1.0, 0.0, keys, 4) is None


def test_a_row_without_any_token_is_told() -> None:
    scores = torch.full((1, 200), -math.inf)
    assert native.drawn(scores, 1.0, [5]).tolist() == [-1]
    assert native.ranked(scores, 1.0, 1.0, [5], 4) is None


def test_the_lowest_scores_there_are() -> None:
    """Scores that others mask with: a little below them there is no number, but what fills the last block."""
    scores = torch.full((2, 65), torch.finfo(torch.float32).min)
    scores[1] = 9.0
    assert 0 <= int(native.drawn(scores, 1.0, [1, 2])[0]) < 65
    found = native.ranked(scores, 1.0, 1.0, [1, 2], 65)
    assert found is not None
    assert found[0].max() < 65


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="width"):
        native.ranked(torch.zeros(2, 9), 1.0, 1.0, [1, 2], 0)
    with pytest.raises(ValueError, match="noise"):
        native.drawn(torch.zeros(2, 9), math.nan, [1, 2])
    with pytest.raises(ValueError, match="noise"):
        native.drawn(torch.zeros(2, 9), -1.0, [1, 2])
    with pytest.raises(ValueError, match="as many keys"):
        native.drawn(torch.zeros(2, 9), 1.0, [1])
    with pytest.raises(ValueError, match="no scores"):
        native.drawn(torch.zeros(1, 0), 1.0, [1])
    with pytest.raises(TypeError):
        native.drawn(torch.zeros(2, 9, dtype=torch.float64), 1.0, [1, 2])
