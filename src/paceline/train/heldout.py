"""How well a target predicts held-out text, kind by kind, beside what a 5-gram model of the same corpus manages.

In bits per byte of text, control tokens being paid for like any other: a figure that does not depend on the tokenizer.
Knows nothing of how the target was trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.models.attention import dense_attention
from paceline.models.load import check_same_tokens, load_transformer
from paceline.models.transformer import Transformer
from paceline.progress import progress
from paceline.train.data import Documents, load_documents, tokenizer_of
from paceline.train.losses import token_nats
from paceline.train.ngram import ngrams
from paceline.zoo.documents import KINDS

__all__ = ["Score", "document_nats", "score"]

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Score:
    """Held-out text of one kind; both figures are bits per byte."""

    kind: str
    tokens: int
    bytes: int
    model: float
    ngram: float


def score(folder: Path, corpus: Path) -> list[Score]:
    """Score the target in `folder` on heldout.npz, and a 5-gram model of train.npz with it.

    Raises:
        TrainingError: no corpus, or a target without a tokenizer.
        VocabularyMismatch: the corpus has another tokenizer.
    """
    tokenizer = tokenizer_of(folder)
    check_same_tokens(tokenizer.vocabulary, tokenizer_of(corpus / "tokenizer").vocabulary)
    heldout, train = load_documents(corpus / "heldout.npz"), load_documents(corpus / "train.npz")
    model = load_transformer(folder, torch.float32)
    by_model = document_nats(model, heldout, min(tokenizer.eos_ids))
    by_ngram = ngrams(train.tokens, train.starts, model.spec.vocab_size).nats(heldout.tokens, heldout.starts)
    kinds = np.repeat(heldout.kinds, np.diff(heldout.starts))
    sizes = np.array([len(tokenizer.raw_bytes(token) or b"") for token in range(model.spec.vocab_size)])
    return [
        _score(_name(kind), kinds == kind, sizes[heldout.tokens], by_model, by_ngram)
        for kind in np.unique(kinds).tolist()
    ]


def _name(kind: int) -> str:
    return KINDS[kind] if kind < len(KINDS) else f"kind {kind}"


def _score(name: str, here: NDArray[np.bool_], sizes: NDArray[np.int64], *nats: NDArray[np.float64]) -> Score:
    size = int(sizes[here].sum())
    model, ngram = (float(each[here].sum()) / math.log(2) / max(1, size) for each in nats)
    return Score(name, int(here.sum()), size, model, ngram)


@torch.no_grad()
def document_nats(model: Transformer, documents: Documents, before: int) -> NDArray[np.float64]:
    """-log p of every token given its document up to there, and the token `before` as in training: [tokens]."""
    nats = np.zeros(len(documents.tokens))
    batches = list(_batches(np.diff(documents.starts)))
    with progress("held-out text", len(batches)) as advance:
        for batch in batches:
            for index, values in zip(batch, _nats(model, [documents[index] for index in batch], before), strict=True):
                nats[documents.starts[index] : documents.starts[index + 1]] = values[: len(documents[index])]
            advance("")
    return nats


def _batches(lengths: NDArray[np.int64]) -> Iterator[list[int]]:
    """Documents of like length together, about as many tokens in each batch."""
    batch: list[int] = []
    for index in np.argsort(lengths, kind="stable").tolist():
        if batch and (len(batch) + 1) * int(lengths[index]) > _ROWS_AT_ONCE:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _nats(model: Transformer, texts: list[NDArray[np.int64]], before: int) -> NDArray[np.float32]:
    """[texts, longest]; what stands behind the end of a text means nothing."""
    width = max(map(len, texts))
    tokens = torch.full((len(texts), width + 1), before)
    for row, text in zip(tokens, texts, strict=True):
        row[1 : len(text) + 1] = torch.from_numpy(text)
    attend = dense_attention(len(texts), model.spec.windows)
    hidden = model(tokens[:, :-1].flatten(), torch.arange(width).repeat(len(texts)), attend).hidden
    logits: Tensor = model.head(hidden)
    found: NDArray[np.float32] = token_nats(logits.view(len(texts), width, -1), tokens[:, 1:]).numpy()
    return found
