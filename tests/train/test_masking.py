"""Rows of text and their masks. Draws are seeded, so a failure is a difference, not chance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paceline.train.data import Documents
from paceline.train.masking import masked_rows, text_rows

END = 9
DOCUMENTS = Documents(
    np.array([1, 2, 3, END, 4, 5, END, 6, 7, 8, 6, 7, 8, END]), np.array([0, 4, 7, 14]), np.zeros(3, dtype=np.int64)
)


def test_a_row_begins_with_a_document_or_ends_with_one_and_end_tokens() -> None:
    tokens = text_rows(DOCUMENTS, 400, 6, END, np.random.default_rng(0))
    text = DOCUMENTS.tokens.tolist()
    begun = {tuple((text[start:] + [END] * 6)[:6]) for start in (0, 4, 7)}
    ended = {tuple((text[max(0, stop - 6 + fill) : stop] + [END] * 6)[:6]) for stop in (4, 7, 14) for fill in (1, 2, 3)}
    assert {tuple(row) for row in tokens.tolist()} == begun | ended


def test_half_of_the_rows_begin_with_a_document_and_long_ones_are_drawn_more_often() -> None:
    """10,000 rows, 5 sigma: false alarm 6e-7 for each figure."""
    first = text_rows(DOCUMENTS, 10_000, 6, END, np.random.default_rng(1))
    for row, expected in (([1, 2, 3, END, 4, 5], 0.5 * 4 / 14), ([8, 6, 7, 8, END, END], 0.5 * 7 / 14 / 3)):
        share = (first == torch.tensor(row)).all(1).double().mean().item()
        assert abs(share - expected) < 5 * (expected * (1 - expected) / 10_000) ** 0.5


def test_at_most_64_end_tokens_stand_behind_a_document() -> None:
    documents = Documents(np.array([*[1] * 999, END]), np.array([0, 1000]), np.zeros(1, dtype=np.int64))
    ends = (text_rows(documents, 2000, 200, END, np.random.default_rng(2)) == END).sum(1)
    assert set(ends.tolist()) == {0, *range(2, 66)}


@pytest.mark.parametrize("run_share", [0.0, 0.5, 1.0])
def test_a_first_token_is_never_masked_and_only_masks_weigh(run_share: float) -> None:
    tokens = torch.arange(1, 9).repeat(300, 1)
    batch = masked_rows(tokens, END, run_share, 5, np.random.default_rng(2))
    assert torch.equal(batch.tokens, tokens)
    assert not batch.masked[:, 0].any()
    assert torch.equal(batch.weights > 0, batch.masked)


def test_a_run_is_a_tail_or_a_hole_and_weighs_one() -> None:
    """2,000 runs, 5 sigma: false alarm 6e-7."""
    batch = masked_rows(torch.ones(2000, 30, dtype=torch.int64), END, 1.0, 7, np.random.default_rng(3))
    sizes = batch.masked.sum(1)
    starts = batch.masked.int().argmax(1)
    assert set(sizes.tolist()) == set(range(1, 8))
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        assert batch.masked[row, start : start + size].all()
    assert torch.allclose(batch.weights.sum(1), torch.ones(2000))
    tails = (starts + sizes == 30).double().mean().item()
    expected = 0.5 + 0.5 * np.mean([1 / (30 - size) for size in range(1, 8)])
    assert abs(tails - expected) < 5 * (expected * (1 - expected) / 2000) ** 0.5


def test_scattered_masks_weigh_one_on_average() -> None:
    """The expected weight of a row is 1, whatever its share of masks is. 4,000 rows, 5 sigma: false alarm 6e-7."""
    batch = masked_rows(torch.ones(4000, 40, dtype=torch.int64), END, 0.0, 7, np.random.default_rng(4))
    weights = batch.weights.sum(1)
    assert abs(float(weights.mean()) - 1) < 5 * float(weights.std()) / 4000**0.5
    shares = batch.masked.double().mean(1)
    assert shares.min() < 0.01
    assert shares.max() > 0.95


@pytest.mark.parametrize("levels", [1, 4, 25, 2000])
def test_noise_levels_are_drawn_evenly_from_the_grid(levels: int) -> None:
    """A row's t is known by its weights, 1 / (t * 39). As many rows as levels draw each level once."""
    batch = masked_rows(torch.ones(levels, 40, dtype=torch.int64), END, 0.0, 7, np.random.default_rng(7), levels=levels)
    weighed = batch.masked.any(1)
    found = 1 / (39 * batch.weights[weighed].max(1).values.double()) * levels
    assert torch.allclose(found, found.round(), rtol=1e-5)
    assert len(set(found.round().tolist())) == len(found)
    assert found.round().max() == levels
    if levels == 1:
        assert batch.masked[:, 1:].all()


def test_rows_with_noise_levels_weigh_one_on_average() -> None:
    """Of 3 levels, 4,000 rows, 5 sigma: false alarm 6e-7."""
    batch = masked_rows(torch.ones(4000, 40, dtype=torch.int64), END, 0.0, 7, np.random.default_rng(8), levels=3)
    weights = batch.weights.sum(1)
    assert abs(float(weights.mean()) - 1) < 5 * float(weights.std()) / 4000**0.5


def test_end_tokens_behind_the_end_weigh_a_tenth() -> None:
    tokens = torch.tensor([[1, 2, END, END, END, END]])
    batch = masked_rows(tokens.repeat(200, 1), END, 0.0, 3, np.random.default_rng(5))
    both = batch.weights[batch.masked[:, 2] & batch.masked[:, 4]]
    assert len(both) > 20
    assert torch.allclose(both[:, 4], 0.1 * both[:, 2])


def test_the_same_seed_gives_the_same_batch() -> None:
    one, other = (
        masked_rows(text_rows(DOCUMENTS, 8, 6, END, rng), END, 0.5, 3, rng)
        for rng in (np.random.default_rng(6), np.random.default_rng(6))
    )
    assert torch.equal(one.tokens, other.tokens)
    assert torch.equal(one.weights, other.weights)
