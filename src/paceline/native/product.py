"""y = x W^T + b for few rows, packed for the threads of this process. Knows nothing of what the rows mean."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.native.choice import extension, instructions
from paceline.native.extension import array, pool

__all__ = ["Product"]


class Product:
    """A weight [out, in] and bias [out] or None, float32 on the CPU; both are copied.

    Kept as bfloat16 where that holds every weight exactly; all sums are float32, in the order of `in`, so a row's
    result depends on no other row.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        bias = None if bias is None else bias.detach().contiguous()
        self._native = extension().Linear(pool(), instructions(), weight.detach().contiguous(), bias)
        self._out = weight.shape[0]

    @property
    def nbytes(self) -> int:
        """What one product reads of the weight."""
        read: int = self._native.nbytes
        return read

    def __call__(self, x: Tensor) -> Tensor:
        """float32 [rows, in] -> [rows, out].

        Raises:
            TypeError, ValueError: x has another type or shape.
        """
        y = torch.empty(x.shape[0], self._out)
        self._native.multiply(array(x), y.numpy())
        return y
