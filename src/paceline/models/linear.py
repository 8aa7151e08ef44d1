"""The matrix product, and which form of it pays on which machine.

Measured on two AVX-512 cores, torch 2.13, float32, microseconds per product, 1 row / 16 rows:

    out x in          plain           packed (oneDNN)
    256 x 256         5.7 /  20       16 /  23
    512 x 256          11 /  39       18 /  35
    1408 x 256         38 / 110       26 /  70
    8192 x 256        237 / 812       78 / 340

So on a CPU weights are packed once for oneDNN, and a single row of a small matrix keeps the plain product. The
rule is fixed rather than timed at start-up, so that two runs on one machine round alike. float64, the precision of
the proofs, is always plain.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Linear"]

_PLAIN_ROW_ELEMENTS = 1 << 18
"""Weights of at most this many elements multiply a single row faster unpacked."""


class Linear(nn.Module):
    """y = x W^T + b for x of shape [rows, in].

    Holds the weight as an ordinary parameter [out, in]; `prepare` adds the packed form for inference on a CPU.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self._packed: Tensor | None = None
        self._plain_row = True

    def forward(self, x: Tensor) -> Tensor:
        if self._packed is None or (self._plain_row and x.shape[0] == 1):
            return F.linear(x, self.weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return product

    def prepare(self) -> None:
        """Pack the weight for oneDNN where that is faster: float32 and bfloat16 on a CPU. Idempotent."""
        packable = self.weight.device.type == "cpu" and self.weight.dtype in (torch.float32, torch.bfloat16)
        if packable and torch.backends.mkldnn.is_available():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
            self._plain_row = self.weight.dtype == torch.float32 and self.weight.numel() <= _PLAIN_ROW_ELEMENTS

