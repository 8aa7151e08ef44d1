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
