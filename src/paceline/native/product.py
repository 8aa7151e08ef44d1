"""y = x W^T + b, packed for the threads of this process. Knows nothing of what the rows mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.native.arithmetic import EXACT, Arithmetic
from paceline.native.choice import extension, instructions
from paceline.native.extension import array, pool

if TYPE_CHECKING:
    from paceline.native._native import Linear

__all__ = ["Product"]


class Product:
    """A weight [out, in] and bias [out] or None, float32 on the CPU; both are copied.

    Where nothing is to be rounded, kept as bfloat16 if that holds every weight. All sums have a fixed order, so a
    row's result depends on no other row.

    Args:
        arithmetic: what is rounded.

    Attributes:
        outputs: how many.
        packed: what another call of the extension may take for this product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, arithmetic: Arithmetic = EXACT) -> None:
        bias = None if bias is None else bias.detach().contiguous()
        self.packed: Linear = extension().Linear(pool(), instructions(), weight.detach().contiguous(), bias, arithmetic)
        self.outputs = len(weight)

    @property
    def nbytes(self) -> int:
        """What one product reads of the weight."""
        read: int = self.packed.nbytes
        return read

    def __call__(self, x: Tensor) -> Tensor:
        """float32 [rows, in] -> [rows, out].

        Raises:
            TypeError, ValueError: x has another type or shape.
        """
        y = torch.empty(x.shape[0], self.outputs)
        self.packed.multiply(array(x), y.numpy())
        return y
