"""A table of what a verifier says behind the frequent contexts of a corpus, for APD to look up (arXiv 2506.00413).

A context is the last n tokens of a text. What stands further back differs from place to place, and so does what the
verifier says: it reads some of the places, and the mean of its probabilities is kept, the likeliest ids by themselves
and the others as one mass, spread evenly. Knows nothing of how the table is used, or of the 5-gram baseline (`ngram`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.decode.ngram_table import NgramTable, Owner
from paceline.errors import ConfigError
from paceline.models.attention import dense_attention
from paceline.models.transformer import Transformer
from paceline.progress import progress
from paceline.train.data import load_windows
from paceline.train.diffusion_options import NgramConfig
from paceline.train.fit.memory import memory_is_set_by

__all__ = ["Frequent", "frequent_contexts", "ngram_table"]

_CONTEXTS_AT_ONCE = 64
"""Contexts whose rows are made together: bounds the logits in memory."""

_LEAST_MASS = 1e-9
"""What the other ids share at least: rounding must not rule them out."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Frequent:
    """The most frequent contexts of windows of text, and where they stand.

    Attributes:
        contexts: [contexts, n], the most frequent first; of equally frequent ones, by their ids.
        owners, windows, ends: [places], the first few places of each: the number of the context, ascending; the window;
            and where in it the last token of the context stands.
    """

    contexts: Ids
    owners: Ids
    windows: Ids
    ends: Ids


@torch.no_grad()
def ngram_table(model: Transformer, config: NgramConfig, owner: Owner) -> NgramTable:
    """The rows of the most frequent contexts of the corpus' training text, as `model` reads it.

    Raises:
        TrainingError: no corpus, or less than one window in it; or out of memory.
        ConfigError: contexts longer than a window, or no fewer likeliest ids than there are.
    """
    _check(config, owner.vocab_size)
    windows = load_windows(config.corpus / "train.npz", config.window_tokens).tokens[:, :-1].long()
    found = frequent_contexts(windows.numpy(), config.context_tokens, config.contexts, config.places)
    batches = torch.split(torch.from_numpy(np.unique(found.windows)), config.windows_per_batch)
    parts = torch.split(torch.arange(len(found.contexts)), _CONTEXTS_AT_ONCE)
    with memory_is_set_by("places", config.places):
        hidden = torch.empty(len(found.owners), model.spec.hidden_size, dtype=model.dtype)
    ids, scores, rest = _empty_rows(len(found.contexts), config.top_k, model.dtype)
    with progress("n-grams", len(batches) + len(parts)) as advance:
        with memory_is_set_by("windows_per_batch", config.windows_per_batch):
            for batch in batches:
                _read(model, windows, batch, found, hidden)
                advance("text read")
        for part in parts:
            first, end = np.searchsorted(found.owners, [int(part[0]), int(part[-1]) + 1]).tolist()
            own = torch.from_numpy(found.owners[first:end]) - part[0]
            ids[part], scores[part], rest[part] = _rows(model.head(hidden[first:end]), own, config.top_k)
            advance("rows made")
    return NgramTable(owner, torch.from_numpy(found.contexts), ids, scores, rest)


def frequent_contexts(tokens: Ids, length: int, most: int, places: int) -> Frequent:
    """Count all runs of `length` tokens inside windows [windows, tokens]; the `most` frequent, `places` of each."""
    numbers = _numbered(tokens, length)
    _, counts = np.unique(numbers, return_counts=True)
    order, starts = np.argsort(numbers, axis=None, kind="stable"), np.cumsum(counts) - counts
    chosen = np.argsort(-counts, kind="stable")[:most]
    taken = np.arange(places) < counts[chosen, None]
    windows, begins = np.divmod(order[(starts[chosen, None] + np.arange(places))[taken]], numbers.shape[1])
    owners = np.nonzero(taken)[0]
    first = np.searchsorted(owners, np.arange(len(chosen)))
    contexts = tokens[windows[first, None], begins[first, None] + np.arange(length)]
    return Frequent(contexts, owners, windows, begins + length - 1)


def _numbered(tokens: Ids, length: int) -> Ids:
    """A number for every run of `length` tokens, in the order of their ids: [windows, tokens - length + 1]."""
    width, numbers = int(tokens.max()) + 1, tokens
    for shift in range(1, length):
        longer = numbers[:, :-1] * width + tokens[:, shift:]
        numbers = np.unique(longer, return_inverse=True)[1].reshape(longer.shape)
    return numbers


def _read(model: Transformer, windows: Tensor, batch: Tensor, found: Frequent, hidden: Tensor) -> None:
    """Fill in the hidden states [places, hidden] at the places in these windows, which ascend."""
    tokens = windows[batch]
    positions = torch.arange(tokens.shape[1]).repeat(len(batch))
    told = model(tokens.flatten(), positions, dense_attention(len(batch), model.spec.windows)).hidden
    (here,) = np.nonzero(np.isin(found.windows, batch.numpy()))
    rows = np.searchsorted(batch.numpy(), found.windows[here]) * tokens.shape[1] + found.ends[here]
    hidden[torch.from_numpy(here)] = told[torch.from_numpy(rows)]


def _empty_rows(contexts: int, top_k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Where the rows go: ids [contexts, k], scores [contexts, k] and rest [contexts].

    Kept one by one they would lie between the logits of their parts, whose memory could then not be used again: 15 GB
    for the bundled verifier.
    """
    ids = torch.empty(contexts, top_k, dtype=torch.int64)
    return ids, torch.empty(contexts, top_k, dtype=dtype), torch.empty(contexts, dtype=dtype)


def _rows(logits: Tensor, owners: Tensor, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids and scores [contexts, k] and the score of the others [contexts], of logits [places, vocab].

    Scores are log-probabilities, raised to the level of the logits, which a repetition penalty depends on.

    Args:
        owners: [places], which context stands at each, from 0 on, ascending.
    """
    level = logits.logsumexp(-1)
    counts = torch.bincount(owners)
    mean = _sums((logits - level.unsqueeze(-1)).exp(), owners, counts) / counts.unsqueeze(-1)
    raised = _sums(level, owners, counts) / counts
    kept, ids = mean.topk(top_k)
    left_over = (1.0 - kept.sum(-1)).clamp_min(_LEAST_MASS) / (logits.shape[-1] - top_k)
    kept = kept.maximum(left_over.unsqueeze(-1))  # they are no less likely than the others, but may round to 0
    return ids, kept.log() + raised.unsqueeze(-1), left_over.log() + raised


def _sums(values: Tensor, owners: Tensor, counts: Tensor) -> Tensor:
    """The sum of the values [places, …] of each owner."""
    return values.new_zeros(len(counts), *values.shape[1:]).index_add_(0, owners, values)


def _check(config: NgramConfig, vocab_size: int) -> None:
    if config.context_tokens > config.window_tokens:
        told = f"context_tokens is {config.context_tokens}, window_tokens is {config.window_tokens}."
        raise ConfigError(told, remedy="A window must hold a context.", param="context_tokens")
    if config.top_k >= vocab_size:
        told = f"top_k is {config.top_k}, of {vocab_size} tokens."
        raise ConfigError(told, remedy="Lower top_k.", param="top_k")
