"""What a diffusion language model learns from: rows of text, and which of their tokens it has to find again.

    scattered   every token is masked with the same probability t, drawn anew for each row (LLaDA, arXiv 2502.09992)
    tail        the last tokens are masked, as a method that goes from left to right meets them
    hole        a run anywhere is masked, as in a completion between two texts

A row begins where a document does and runs on into the next ones, or ends behind the end of a document, in end tokens,
so that a model learns where texts end; short documents fill a row, too. Knows nothing of models and losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.train.data import Documents

__all__ = ["LONGEST_FILL", "Masked", "masked_rows", "text_rows"]

_LEAST_SHARE = 1e-3
"""The smallest t: its weight 1 / t would make one token outweigh all others."""

LONGEST_FILL = 64
"""End tokens behind the last document of a row."""

_FILL_WEIGHT = 0.1
"""Of an end token behind the first: easy to find, and there may be many."""


@dataclass(frozen=True, slots=True)
class Masked:
    """A batch to learn from.

    Attributes:
        tokens: int64 [rows, length], as the text is.
        masked: bool [rows, length]; a first token never is, as no row predicts it where logits are shifted.
        weights: float32 [rows, length], of the masked tokens' losses: their weighted sum, divided by the rows, is the
            loss. 0 elsewhere.
    """

    tokens: Tensor
    masked: Tensor
    weights: Tensor


def text_rows(documents: Documents, rows: int, length: int, end_id: int, rng: np.random.Generator) -> Tensor:
    """Random pieces of text, int64 [rows, length], of documents that are drawn by their lengths.

    Half of them begin with their document and run on into the next ones, the others end with it and with up to 64 end
    tokens more, at most half of the row.
    """
    found = np.full((rows, length), end_id, dtype=np.int64)
    places = rng.integers(0, len(documents.tokens), rows)
    indices = np.searchsorted(documents.starts, places, side="right") - 1
    fills = rng.integers(1, min(LONGEST_FILL, length // 2) + 1, rows)
    begins = rng.random(rows) < 0.5
    for row, (index, fill, at_start) in enumerate(zip(indices, fills, begins, strict=True)):
        start, stop = documents.starts[index], documents.starts[index + 1]
        first = start if at_start else max(0, stop - length + fill)
        piece: NDArray[np.int64] = documents.tokens[first : first + length if at_start else stop]
        found[row, : len(piece)] = piece
    return torch.from_numpy(found)


def masked_rows(
    tokens: Tensor, end_id: int, run_share: float, longest_run: int, rng: np.random.Generator, levels: int | None = None
) -> Masked:
    """Mask `run_share` of the rows by a tail or a hole of at most `longest_run` tokens, the others at random.

    Each row's loss is the bound on its negative log-likelihood per token that its kind of masking gives: sum of the
    masked tokens' losses over t * (length - 1), as the first is never masked (LLaDA, equation 3), or their mean where
    a run is masked. In both, an end token behind another one counts a tenth.

    Args:
        levels: t is one of so many noise levels, 1 / levels … 1, and the bound that of as many diffusion steps (arXiv
            2107.03006); None draws it from all between 0.001 and 1.
    """
    rows, length = tokens.shape
    runs = rng.random(rows) < run_share
    masked = np.zeros((rows, length), dtype=bool)
    expected = np.empty(rows)
    shares = _masked_shares(rows, levels, rng)
    for row, (is_run, share) in enumerate(zip(runs, shares, strict=True)):
        if is_run:
            masked[row, _run(length, longest_run, rng)] = True
            expected[row] = masked[row].sum()
        else:
            masked[row, 1:] = rng.random(length - 1) < share
            expected[row] = share * (length - 1)
    found = torch.from_numpy(masked)
    weights = found.float() / torch.from_numpy(expected).float().unsqueeze(1)
    return Masked(tokens, found, weights * _worth(tokens, end_id))


def _masked_shares(rows: int, levels: int | None, rng: np.random.Generator) -> NDArray[np.float64]:
    """t of every row, evenly spread over the batch, which makes the loss less noisy than independent draws."""
    spread = (rng.random() + np.arange(rows) / rows) % 1.0
    if levels is None:
        return _LEAST_SHARE + (1 - _LEAST_SHARE) * spread
    return (1 + np.floor(spread * levels)) / levels


def _run(length: int, longest: int, rng: np.random.Generator) -> slice:
    """A run of at most `longest` tokens, not the first: as often at the end of the row as anywhere."""
    size = int(rng.integers(1, min(longest, length - 1) + 1))
    start = length - size if rng.random() < 0.5 else int(rng.integers(1, length - size + 1))
    return slice(start, start + size)


def _worth(tokens: Tensor, end_id: int) -> Tensor:
    """1 for a token of the text and its end, less for end tokens behind another one: float32 [rows, length]."""
    ends = tokens == end_id
    again = torch.zeros_like(ends)
    again[:, 1:] = ends[:, 1:] & ends[:, :-1]
    return torch.where(again, _FILL_WEIGHT, 1.0)
