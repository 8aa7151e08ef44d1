"""Token files for training: one flat array of ids with the offset of every document.

A file is an .npz with `tokens` (uint16 or uint32), `starts` (int64, documents + 1) and `kinds` (uint8). Batches are
functions of (seed, step): no state has to be saved for a run to resume exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.errors import TrainingError
from paceline.models.config_file import model_config
from paceline.text import Tokenizer, load_tokenizer

__all__ = [
    "Documents",
    "Windows",
    "fingerprint",
    "load_documents",
    "load_splits",
    "load_text",
    "load_windows",
    "repeat_tail",
    "shuffled",
    "target_tokenizer",
    "tokenizer_of",
]


@dataclass(frozen=True, slots=True)
class Documents:
    """All documents of a token file: tokens [tokens] end to end, starts [documents + 1], kinds [documents]."""

    tokens: NDArray[np.int64]
    starts: NDArray[np.int64]
    kinds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        return self.tokens[self.starts[index] : self.starts[index + 1]]


@dataclass(frozen=True, slots=True)
class Windows:
    """All documents in a shuffled order, end to end, cut into windows of equal length.

    `tokens` is [windows, length + 1]: a window and the token that follows it.
    """

    tokens: Tensor

    def batch(self, seed: int, index: int, size: int) -> Tensor:
        """Batch `index` of an endless shuffled run through the windows, int64 [size, length + 1]."""
        count = self.tokens.shape[0]
        epochs = range(index * size // count, ((index + 1) * size - 1) // count + 1)
        orders = {epoch: np.random.default_rng((seed, epoch)).permutation(count) for epoch in epochs}
        positions = range(index * size, (index + 1) * size)
        rows = [int(orders[position // count][position % count]) for position in positions]
        return self.tokens[torch.tensor(rows)].long()


def fingerprint(tokens: Tensor) -> list[int]:
    """Shape and a position-dependent sum of ids [rows, length]: tells one set of tokens from another."""
    places = torch.arange(1, tokens.shape[1] + 1)
    return [*tokens.shape, int((tokens.long() * places).sum())]


def repeat_tail(windows: Tensor, starts: Tensor, periods: Tensor) -> Tensor:
    """Replace [rows, length] from `starts` on by the `periods` tokens before it, over and over.

    start 5, period 2:   a b c d e f g h i   ->   a b c d e d e d e
    """
    index = torch.arange(windows.shape[1])
    starts, periods = starts.unsqueeze(1), periods.unsqueeze(1)
    return windows.gather(1, torch.where(index < starts, index, starts - periods + (index - starts) % periods))


def load_documents(path: Path) -> Documents:
    """Read a token file.

    Raises:
        TrainingError: no such file, or not one of this layout.
    """
    if not path.exists():
        raise TrainingError(f"{path} does not exist.", remedy="Build the corpus first: paceline zoo corpus DIR.")
    try:
        with np.load(path) as file:
            tokens, starts, kinds = file["tokens"], file["starts"], file["kinds"]
    except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
        raise TrainingError(f"{path} cannot be read: {error}.", remedy="Build the corpus again.") from error
    return Documents(tokens.astype(np.int64), starts.astype(np.int64), kinds.astype(np.int64))


def load_text(path: Path) -> Documents:
    """Read a token file that must have a token.

    Raises:
        TrainingError: as `load_documents`, or there is none.
    """
    documents = load_documents(path)
    if not len(documents.tokens):
        raise TrainingError(f"{path} holds no text.", remedy="Build a larger corpus: paceline zoo corpus DIR.")
    return documents


def shuffled(documents: Documents, seed: int) -> Documents:
    """The same in another order, so that neighbours have nothing to do with each other."""
    order = np.random.default_rng(seed).permutation(len(documents))
    tokens = np.concatenate([documents[index] for index in order] or [documents.tokens])
    starts = np.cumsum([0, *np.diff(documents.starts)[order]])
    return Documents(tokens, starts, documents.kinds[order])


def load_splits(corpus: Path) -> tuple[Documents, Documents]:
    """The training text of a corpus and its held-out text, both shuffled.

    Raises:
        TrainingError: as `load_text`.
    """
    train, heldout = (shuffled(load_text(corpus / f"{name}.npz"), 0) for name in ("train", "heldout"))
    return train, heldout


def load_windows(path: Path, length: int, seed: int = 0) -> Windows:
    """Read a token file; documents are shuffled by `seed`, the last incomplete window is dropped.

    Raises:
        TrainingError: as `load_documents`, or less than one window in it.
    """
    flat = shuffled(load_documents(path), seed).tokens
    count = (len(flat) - 1) // length
    if count < 1:
        raise TrainingError(f"{path} has {len(flat)} tokens.", remedy=f"It takes more than {length} for one window.")
    rows = np.stack([flat[i * length : i * length + length + 1] for i in range(count)])
    return Windows(torch.from_numpy(rows.astype(np.int32)))


def tokenizer_of(folder: Path) -> Tokenizer:
    """The tokenizer in a folder of a corpus.

    Raises:
        TrainingError: it has none.
    """
    found = load_tokenizer(folder)
    if found is None:
        raise TrainingError(f"{folder} has no tokenizer.", remedy="paceline zoo corpus DIR makes a corpus with one.")
    return found


def target_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a target's checkpoint.

    Raises:
        CheckpointError: it is a drafter, or no model.
        TrainingError: it has none.
    """
    model_config(folder)
    found = load_tokenizer(folder)
    if found is None:
        raise TrainingError(f"{folder} has no tokenizer.", remedy="Put its tokenizer.json beside config.json.")
    return found
