"""A 5-gram model of token ids: the baseline that a neural model of the same tokens has to beat.

Interpolated Kneser-Ney smoothing with one discount per order (Kneser and Ney 1995; Chen and Goodman 1999, section 4.1).
Counts are sorted arrays of NumPy, some gigabytes for ten million tokens. Knows nothing of text or of neural models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ngrams", "ngrams"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

ORDER = 5


@dataclass(frozen=True, slots=True)
class _Order:
    """All n-grams of one length, sorted: each is its history's number among those one shorter, and a last token.

    Attributes:
        keys: [n-grams], history * width + token; a number is a place in here.
        discounted: [n-grams], (count - discount) / count of the history.
        left_over: [histories], what the discounts took away, as a share of the history's count; 1 for an unseen one.
    """

    keys: Ids
    discounted: Floats
    left_over: Floats


@dataclass(frozen=True, slots=True)
class Ngrams:
    """A trained model of ids below `vocab_size`."""

    vocab_size: int
    orders: tuple[_Order, ...]

    def nats(self, tokens: Ids, starts: Ids) -> Floats:
        """-log p of each token given up to four before it in its document: [tokens].

        Args:
            tokens: documents end to end; starts: [documents + 1], where they begin, and the end.
        """
        padded, real = _padded(tokens, starts, self.vocab_size)
        probability: Floats = np.full(len(padded), 1.0 / self.vocab_size)
        numbers = np.zeros(len(padded), dtype=np.int64)
        for order in self.orders:
            history = _shifted(numbers)
            numbers = _numbers(order.keys, history, padded, self.vocab_size + 1)
            probability *= np.where(history < 0, 1.0, order.left_over[history])
            probability += np.where(numbers < 0, 0.0, order.discounted[numbers])
        return -np.log(probability[real])


def ngrams(tokens: Ids, starts: Ids, vocab_size: int) -> Ngrams:
    """Count all n-grams of up to five tokens; four marks before each document stand for what is not there.

    Args:
        tokens, starts: as in `Ngrams.nats`.
    """
    padded, real = _padded(tokens, starts, vocab_size)
    width = vocab_size + 1
    keys, places = [], [np.zeros(len(padded), dtype=np.int64)]
    for _ in range(ORDER):
        unique, numbers = np.unique(_shifted(places[-1]) * width + padded, return_inverse=True)
        keys.append(unique)
        places.append(numbers)
    counts = [_continuations(places[n], places[n + 1], keys[n - 1]) for n in range(1, ORDER)]
    counts.append(np.bincount(places[-1][real], minlength=len(keys[-1])))
    for each, count in zip(keys, counts, strict=True):
        count[each % width == vocab_size] = 0  # nothing is ever followed by a mark
    return Ngrams(vocab_size, tuple(_smoothed(*each, width) for each in zip(keys, counts, strict=True)))


def _padded(tokens: Ids, starts: Ids, mark: int) -> tuple[Ids, Ids]:
    """The documents with marks before each, and where the real tokens stand."""
    real = np.arange(len(tokens)) + (ORDER - 1) * np.repeat(np.arange(1, len(starts)), np.diff(starts))
    padded = np.full(len(tokens) + (ORDER - 1) * (len(starts) - 1), mark, dtype=np.int64)
    padded[real] = tokens
    return padded, real


def _shifted(numbers: Ids) -> Ids:
    """What stands one place before; nothing stands before the first mark, whose n-grams nobody asks for."""
    return np.concatenate((numbers[:1], numbers[:-1]))


def _numbers(keys: Ids, history: Ids, tokens: Ids, width: int) -> Ids:
    """The number of each n-gram, -1 for one that was never seen."""
    wanted = history * width + tokens
    found = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where((history >= 0) & (keys[found] == wanted), found, -1)


def _continuations(suffix: Ids, longer: Ids, keys: Ids) -> Ids:
    """How many different n-grams of one token more end with each n-gram: what Kneser and Ney count below the top."""
    _, first = np.unique(longer, return_index=True)
    return np.bincount(suffix[first], minlength=len(keys))


def _smoothed(keys: Ids, counts: Ids, width: int) -> _Order:
    """Absolute discounting with D = n1 / (n1 + 2 n2), where n1 and n2 n-grams were counted once and twice.

    Where none was counted once, D is 1/2: something must be left for what was never seen.
    """
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    discount = once / (once + 2 * twice) if once else 0.5
    history = keys // width
    totals = np.bincount(history, weights=counts)
    left_over = np.where(totals == 0, 1.0, discount * np.bincount(history, weights=counts > 0) / totals.clip(min=1))
    totals = totals.clip(min=1)
    return _Order(keys, (counts - discount).clip(min=0) / totals[history], left_over)
