"""What the target itself would say along its answers: the distribution that a drafter is distilled from.

Only the likeliest tokens are kept; the rest is one bucket (`losses.truncated_divergence`). Written once, in parts
beside the answers, so that a killed run goes on where it stopped. A part knows the answers, the weights and the number
of tokens it was made for, and is written anew for others. Knows nothing of blocks or losses.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from paceline.errors import ConfigError
from paceline.files import write_atomically
from paceline.models.attention import dense_attention
from paceline.models.checksum import checksum
from paceline.models.transformer import Transformer
from paceline.progress import progress
from paceline.train.responses import Responses

__all__ = ["Teacher", "teach"]

_PART_ROWS = 256
_BATCH_ROWS = 16


class Teacher(NamedTuple):
    """What the target says behind each token of the answers, likeliest first.

    Attributes:
        ids: [rows, width, k], int32.
        log_probabilities: the same shape, float16, in nats.
    """

    ids: Tensor
    log_probabilities: Tensor

    def of(self, rows: Tensor, width: int) -> Teacher:
        """The answers `rows` [batch] alone, cut at `width` tokens."""
        return Teacher(self.ids[rows, :width], self.log_probabilities[rows, :width])

    def at(self, positions: Tensor) -> Teacher:
        """What is said of the tokens at `positions` [rows, blocks, slots]: [rows, blocks, slots, k]."""
        _, width, k = self.ids.shape
        before = (positions - 1).clamp_max(width - 1).flatten(1).unsqueeze(-1).expand(-1, -1, k)
        return Teacher(*(part.gather(1, before).view(*positions.shape, k) for part in self))


def teach(target: Transformer, responses: Responses, k: int, folder: Path) -> Teacher:
    """The `k` likeliest tokens behind each one of the answers; reads what `folder` holds, and writes the rest.

    Behind the end of a row stand zeros.

    Raises:
        ConfigError: the vocabulary is smaller.
    """
    if k > target.spec.vocab_size:
        told = f"teacher_top_k is {k}, of {target.spec.vocab_size} tokens."
        raise ConfigError(told, remedy="Lower teacher_top_k.", param="teacher_top_k")
    weights = checksum(*target.state_dict().values())
    parts: list[Teacher] = []
    cut = zip(*(torch.split(each, _PART_ROWS) for each in (responses.tokens, responses.lengths)), strict=True)
    with progress("teacher", -(-len(responses.tokens) // _PART_ROWS)) as advance:
        for index, (rows, lengths) in enumerate(cut):
            path = folder / f"teacher-{index:04d}.npz"
            source = [*rows.shape, k, checksum(rows, lengths), weights]
            parts.append(_read(path, source) or _write(path, source, _likeliest(target, rows, lengths, k)))
            advance("")
    return Teacher(*(torch.cat(each) for each in zip(*parts, strict=True)))


@torch.no_grad()
def _likeliest(target: Transformer, tokens: Tensor, lengths: Tensor, k: int) -> Teacher:
    """Row by row behind the layers: the logits of a whole batch would be the largest tensor of all."""
    shape = (*tokens.shape, k)
    found = Teacher(torch.zeros(shape, dtype=torch.int32), torch.zeros(shape, dtype=torch.float16))
    for part in torch.split(lengths.argsort(), _BATCH_ROWS):
        longest = int(lengths[part].max())
        attend = dense_attention(len(part), target.spec.windows)
        positions = torch.arange(longest).repeat(len(part))
        hidden = target(tokens[part, :longest].reshape(-1), positions, attend).hidden
        for row, own in zip(part.tolist(), hidden.split(longest), strict=True):
            length = int(lengths[row])
            values, ids = target.head(own[:length]).float().log_softmax(-1).topk(k)
            found.ids[row, :length], found.log_probabilities[row, :length] = ids.int(), values.half()
    return found


def _read(path: Path, source: list[int]) -> Teacher | None:
    """A part, if it is there, whole, and of this source."""
    try:
        with np.load(path) as file:
            if file["source"].tolist() != source:
                return None
            return Teacher(torch.from_numpy(file["ids"].astype(np.int32)), torch.from_numpy(file["log_probabilities"]))
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        return None


def _write(path: Path, source: list[int], part: Teacher) -> Teacher:
    ids = part.ids.numpy().astype(np.uint16 if int(part.ids.max()) < 2**16 else np.uint32)
    values, known_by = part.log_probabilities.numpy(), np.array(source)
    write_atomically(path, lambda draft: np.savez(draft, ids=ids, log_probabilities=values, source=known_by))
    return part
