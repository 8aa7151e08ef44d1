"""How well a target predicts held-out text, kind by kind, beside what a 5-gram model of the same corpus manages.

In bits per byte of text, control tokens being paid for like any other: a figure that does not depend on the tokenizer.
Knows nothing of how the target was trained.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.decode.target import Target
from paceline.errors import TrainingError
from paceline.models.attention import dense_attention
from paceline.models.load import check_same_tokens, load_transformer
from paceline.models.transformer import Transformer
from paceline.progress import progress
from paceline.text import Tokenizer
from paceline.train.data import Documents, load_text, target_tokenizer, tokenizer_of
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

    Warns of kinds of text that are trained on and not held out.

    Raises:
        TrainingError: no corpus or an empty one, or a target without a tokenizer or an end token.
        VocabularyMismatch: the corpus has another tokenizer.
        CheckpointError: a drafter.
        UnsupportedModel: a diffusion language model, which has no next token.
    """
    tokenizer = target_tokenizer(folder)
    check_same_tokens(tokenizer.vocabulary, tokenizer_of(corpus / "tokenizer").vocabulary)
    heldout, train = load_text(corpus / "heldout.npz"), load_text(corpus / "train.npz")
    before = _before_documents(folder, tokenizer)
    model = Target(load_transformer(folder, torch.float32), tokenizer.size).model
    by_model = document_nats(model, heldout, before)
    by_ngram = ngrams(train.tokens, train.starts, model.spec.vocab_size).nats(heldout.tokens, heldout.starts)
    kinds = np.repeat(heldout.kinds, np.diff(heldout.starts))
    sizes = np.array([len(tokenizer.raw_bytes(token) or b"") for token in range(model.spec.vocab_size)])
    found = [
        _score(_name(kind), kinds == kind, sizes[heldout.tokens], by_model, by_ngram)
        for kind in np.union1d(train.kinds, heldout.kinds).tolist()
    ]
    for each in found:
        if not each.bytes:
            warnings.warn(f"{corpus / 'heldout.npz'} has no text of kind {each.kind}: no score.", stacklevel=2)
    return [each for each in found if each.bytes]


def _before_documents(folder: Path, tokenizer: Tokenizer) -> int:
    """The token that ends a document, which in training stands before the next one."""
    if not tokenizer.eos_ids:
        told = f"The tokenizer of {folder} names no end token, which stands between documents."
        raise TrainingError(told, remedy="Name it in tokenizer_config.json: eos_token.")
    return min(tokenizer.eos_ids)


def _name(kind: int) -> str:
    return KINDS[kind] if kind < len(KINDS) else f"kind {kind}"


def _score(name: str, here: NDArray[np.bool_], sizes: NDArray[np.int64], *nats: NDArray[np.float64]) -> Score:
    size = int(sizes[here].sum())
    model, ngram = (float(each[here].sum()) / math.log(2) / max(1, size) for each in nats)
    return Score(name, int(here.sum()), size, model, ngram)


@torch.no_grad()
def document_nats(model: Transformer, documents: Documents, before: int) -> NDArray[np.float64]:
    """-log p of every token given its document up to there, and the token `before` as in training: [tokens].

    What is longer than the model's context is read in pieces, of which all but the first know one token of the past.
    """
    nats = np.zeros(len(documents.tokens))
    led = np.insert(documents.tokens, documents.starts[:-1], before)
    pieces = list(_pieces(documents.starts, model.spec.context_tokens))
    batches = list(_batches(np.array([end - start for _, start, end in pieces])))
    with progress("held-out text", len(batches)) as advance:
        for batch in batches:
            chosen = [pieces[index] for index in batch]
            found = _nats(model, [led[start + index : end + index + 1] for index, start, end in chosen])
            for (_, start, end), values in zip(chosen, found, strict=True):
                nats[start:end] = values[: end - start]
            advance("")
    return nats


def _pieces(starts: NDArray[np.int64], longest: int) -> Iterator[tuple[int, int, int]]:
    """The documents in pieces of at most `longest` tokens: number of the document, first token, end."""
    for index, (first, end) in enumerate(pairwise(starts.tolist())):
        yield from ((index, start, min(start + longest, end)) for start in range(first, end, longest))


def _batches(lengths: NDArray[np.int64]) -> Iterator[list[int]]:
    """Pieces of like length together, about as many tokens in each batch."""
    batch: list[int] = []
    for index in np.argsort(lengths, kind="stable").tolist():
        if batch and (len(batch) + 1) * int(lengths[index]) > _ROWS_AT_ONCE:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _nats(model: Transformer, texts: list[NDArray[np.int64]]) -> NDArray[np.float32]:
    """-log p of all tokens but the first: [texts, longest - 1]; what stands behind the end of a text means nothing."""
    width = max(map(len, texts)) - 1
    tokens = torch.zeros((len(texts), width + 1), dtype=torch.int64)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = torch.from_numpy(text)
    attend = dense_attention(len(texts), model.spec.windows)
    hidden = model(tokens[:, :-1].flatten(), torch.arange(width).repeat(len(texts)), attend).hidden
    logits: Tensor = model.head(hidden)
    found: NDArray[np.float32] = token_nats(logits.view(len(texts), width, -1), tokens[:, 1:]).numpy()
    return found
