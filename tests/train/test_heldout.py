"""Held-out scores: each token given its document, whatever stands beside it in a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import tiny_spec, tiny_transformer

from paceline.models.attention import dense_attention
from paceline.train import heldout
from paceline.train.data import Documents
from paceline.train.heldout import document_nats


def documents(lengths: list[int]) -> Documents:
    tokens = np.random.default_rng(0).integers(0, 64, sum(lengths))
    return Documents(tokens, np.cumsum([0, *lengths]), np.zeros(len(lengths), dtype=np.int64))


@pytest.mark.parametrize("rows_at_once", [1, 20, 4096])
def test_nats_are_those_of_each_document_alone(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heldout, "_ROWS_AT_ONCE", rows_at_once)
    model = tiny_transformer(tiny_spec())
    found = documents([5, 1, 17, 9, 9, 2])
    nats = document_nats(model, found, before=3)
    for index in range(len(found)):
        ids = torch.tensor([3, *found[index]])
        attend = dense_attention(1, model.spec.windows)
        logits = model.head(model(ids[:-1], torch.arange(len(ids) - 1), attend).hidden)
        alone = torch.nn.functional.cross_entropy(logits.double(), ids[1:], reduction="none")
        own = nats[found.starts[index] : found.starts[index + 1]]
        np.testing.assert_allclose(own, alone.numpy(), rtol=1e-5)


def test_a_document_longer_than_the_context_is_read_in_pieces() -> None:
    """As `load_transformer` gives it, the model knows the rotations of its context and no others."""
    model = tiny_transformer(tiny_spec(context_tokens=8))
    model.prepare()
    found = documents([20, 3])
    nats = document_nats(model, found, before=3)
    cut = Documents(found.tokens, np.array([0, 8, 16, 20, 23]), np.zeros(4, dtype=np.int64))
    for piece, before in enumerate((3, found.tokens[7], found.tokens[15], 3)):
        own = slice(cut.starts[piece], cut.starts[piece + 1])
        alone = Documents(cut[piece], np.array([0, len(cut[piece])]), cut.kinds[:1])
        np.testing.assert_allclose(nats[own], document_nats(model, alone, int(before)), rtol=1e-5)
