"""What APD's verifier says behind frequent contexts, to be looked up where it would be asked (arXiv 2506.00413).

A context is the last few tokens of a text. A row of the table has the verifier's scores of the likeliest ids behind a
context, and one score for each of the others. Read from a file that `train.ngram_table` fills, and that belongs to one
verifier. Knows nothing of how the rows came about, or of who asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.decode.named import NGRAMS, find_ngrams, named_by
from paceline.errors import CheckpointError
from paceline.files import write_atomically
from paceline.models.checksum import weights_checksum
from paceline.models.transformer import Transformer
from paceline.text import load_tokenizer

__all__ = ["NgramTable", "Owner", "load_ngram_table", "ngrams_for", "save_ngram_table"]

_DTYPES = {"contexts": np.int32, "ids": np.int32, "scores": np.float32, "rest": np.float32}

_AGAIN = "Make it again: paceline train ngram."


class Owner(NamedTuple):
    """The verifier that a table is of: its weights, its ids, and those that its tokenizer has (0 without one)."""

    weights_checksum: int
    vocab_size: int
    tokenizer_size: int

    @classmethod
    def of(cls, folder: Path, verifier: Transformer) -> Owner:
        """The verifier that was loaded from a folder."""
        tokenizer = load_tokenizer(folder)
        size = 0 if tokenizer is None else tokenizer.size
        return cls(weights_checksum(folder), verifier.spec.vocab_size, size)


@dataclass(frozen=True, slots=True, eq=False)
class NgramTable:
    """Rows of scores by context.

    Attributes:
        owner: whose scores they are.
        contexts: [rows, n], the last n tokens of a text.
        ids, scores: [rows, k], the likeliest ids behind each, and their scores: logits, as the verifier would give.
        rest: [rows], the score of every other id.
    """

    owner: Owner
    contexts: Tensor
    ids: Tensor
    scores: Tensor
    rest: Tensor
    _places: dict[tuple[int, ...], int] = field(init=False)

    def __post_init__(self) -> None:
        places = {tuple(context): place for place, context in enumerate(self.contexts.tolist())}
        object.__setattr__(self, "_places", places)

    @property
    def context_tokens(self) -> int:
        """How many tokens a context has."""
        return self.contexts.shape[1]

    def find(self, tokens: Many[int], count: int) -> list[int | None]:
        """The places of the last `count` contexts of a text: behind tokens[: -count + 1], …, behind all of them.

        None where the table does not have one, and where the text is too short for it.
        """
        ends = range(len(tokens) - count + 1, len(tokens) + 1)
        return [self._places.get(tuple(tokens[max(0, end - self.context_tokens) : end])) for end in ends]

    def rows(self, places: Many[int]) -> Tensor:
        """The scores at these places, [places, vocab_size]."""
        at = torch.tensor(places, dtype=torch.int64, device=self.rest.device)
        found = self.rest[at].unsqueeze(-1).repeat(1, self.owner.vocab_size)
        return found.scatter_(-1, self.ids[at], self.scores[at])


def save_ngram_table(table: NgramTable, folder: Path) -> None:
    """Write a table whole."""
    arrays = {name: getattr(table, name).numpy().astype(dtype) for name, dtype in _DTYPES.items()}
    arrays["owner"] = np.array(table.owner, dtype=np.int64)
    write_atomically(folder / NGRAMS, lambda draft: np.savez(draft, **arrays))


def load_ngram_table(folder: Path, owner: Owner | None, device: torch.device) -> NgramTable:
    """Read the table of a verifier, or of anyone; its scores go to a device, in float32.

    Raises:
        CheckpointError: no such file, a broken one, or one of another verifier; says in what it differs.
    """
    path = folder / NGRAMS
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = [found[name] for name in ("owner", *_DTYPES)]
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {NGRAMS}.", remedy="Make it: paceline train ngram.") from None
    except (OSError, EOFError, ValueError, TypeError, KeyError, BadZipFile) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.", remedy=_AGAIN) from error
    owner = _owner(path, arrays[0], owner)
    _check_arrays(path, arrays[1:], owner.vocab_size)
    contexts, ids, scores, rest = (torch.from_numpy(each) for each in arrays[1:])
    return NgramTable(owner, contexts.long(), ids.long().to(device), scores.to(device), rest.to(device))


def ngrams_for(settings: object, folder: Path | None, verifier: Transformer | None) -> NgramTable | None:
    """The table that APD's settings name, read for its verifier; None where none is named.

    Args:
        settings: of any method.
        folder: which the verifier was loaded from.

    Raises:
        ConfigError: a table that is not there, is broken, or is of another verifier.
    """
    place = find_ngrams(settings)
    if place is None or folder is None or verifier is None:
        return None
    with named_by("ngrams", place):
        return load_ngram_table(place, Owner.of(folder, verifier), verifier.embed.weight.device)


def _owner(path: Path, found: NDArray[Any], owner: Owner | None) -> Owner:
    """Whose a table is, which must be the one given."""
    if found.shape != (len(Owner._fields),):
        raise CheckpointError(f"{path} does not say whose it is.", remedy=_AGAIN)
    for name, theirs, ours in zip(Owner._fields, found.tolist(), owner or found.tolist(), strict=True):
        if theirs != ours:
            told = f"{path} is of another verifier: its {name.replace('_', ' ')} is {theirs}, here it is {ours}."
            raise CheckpointError(told, remedy="Make one of this verifier: paceline train ngram.", param="ngrams")
    return Owner(*found.tolist())


def _check_arrays(path: Path, arrays: list[NDArray[Any]], vocab_size: int) -> None:
    """Refuse shapes that do not fit together, and ids that the verifier has not."""
    contexts, ids, scores, rest = arrays
    fits = [each.dtype for each in arrays] == [*_DTYPES.values()] and [each.ndim for each in arrays] == [2, 2, 2, 1]
    if not fits or not contexts.size or ids.shape != scores.shape or {len(contexts), len(ids)} != {len(rest)}:
        raise CheckpointError(f"{path} holds arrays that do not fit together.", remedy=_AGAIN)
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
        raise CheckpointError(f"{path} names ids that are not among the verifier's {vocab_size}.", remedy=_AGAIN)
    if not (np.isfinite(scores).all() and np.isfinite(rest).all()):
        raise CheckpointError(f"{path} holds scores that are no numbers.", remedy=_AGAIN)
