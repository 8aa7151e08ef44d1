"""Checksums: what tells weights, answers and texts from others. No protection against somebody who means to deceive."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from paceline.models.safetensors_file import read_tensors

__all__ = ["checksum", "weights_checksum"]


def checksum(*tensors: Tensor) -> int:
    """CRC-32 of the bytes of all tensors."""
    total = 0
    for tensor in tensors:
        total = crc32(tensor.detach().flatten().contiguous().view(torch.uint8).numpy().data, total)
    return total


def weights_checksum(folder: Path | None) -> int:
    """Of all weights of a checkpoint, wherever it lies; 0 without one."""
    if folder is None:
        return 0
    return checksum(*(tensor for _, tensor in sorted(read_tensors(folder).items())))
