"""The matrix product, and which form of it pays on which machine.

Measured on two AVX-512 cores, torch 2.13: one pass over the products of 16 layers of width 256 (45 MB in float32, so
every weight comes from beyond the caches), milliseconds:

    rows                    1      2      4      8     16
    float32, plain        5.0    6.5    7.5    8.3   11.2
    float32, packed       2.9    3.0    2.8    3.0    5.2
    bfloat16, plain       3.4
    bfloat16, packed      1.7    1.9    2.1    2.3    3.3

Packed once for oneDNN, eight rows cost what one row costs, which is what verification lives on. So on a CPU float32
and bfloat16 are packed; float64, the precision of the proofs, is plain.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Linear"]


class Linear(nn.Module):
    """y = x W^T + b for x of shape [rows, in].

    Holds the weight as an ordinary parameter [out, in]; `prepare` adds the packed form for inference on a CPU.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self._packed: Tensor | None = None
        self._product: Callable[..., Tensor] = F.linear

    def forward(self, x: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        if self._packed is None or x.requires_grad:  # the packed product has no gradient
            return F.linear(x, self.weight, self.bias)
        product: Tensor = self._product(x, self._packed, self.bias, "none", [], "")
        return product

    # Without the search for hooks, which costs as much as a small kernel.
    __call__ = forward

    def prepare(self) -> None:
        """Pack the weight for oneDNN where that is faster: float32 and bfloat16 on a CPU. Idempotent."""
        if self.weight.device.type == "cpu" and _packable(self.weight.dtype):
            self._product = torch.ops.mkldnn._linear_pointwise.default
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())


def _packable(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
