"""The matrix product, and which form of it pays on which machine.

Measured on two AVX-512 cores, torch 2.13: one pass over the products of 16 layers of width 256 (45 MB in float32, so
every weight comes from beyond the caches), milliseconds:

    rows                                 1      4      8     16     32    128
    float32, plain                     4.9    7.3    8.7    9.8   13.3   29.1
    float32, packed                    3.1    3.0    3.7    4.2    5.8   15.6
    float32, weights kept as float16   1.7    1.8    2.3    3.2    5.1   16.0
    bfloat16, packed                   1.7    2.1    2.3    3.3

Packed once, eight rows cost little more than one, which is what verification lives on. Weights of released checkpoints
are bfloat16, which float16 holds exactly (from 2^-17 on; below, the error is at most 2^-25): half the memory to read,
and the sums are those of float32. So on a CPU float32 weights that float16 holds are kept so, other float32 and
bfloat16 weights are packed for oneDNN; float64, the precision of the proofs, is plain. Where a float32 product of few
rows stands alone, such as the head, `prepare_few_rows` adds the native form (`paceline.native`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline import native

__all__ = ["MOST_ROWS", "Linear"]

MOST_ROWS = 64
"""Rows up to which the native products are used: beyond it torch is as fast, and a prompt is read once."""

_HALF_STEP = 2.0**-25
"""Half the distance of the smallest float16 numbers: what rounding to float16 may change in a weight."""


class Linear(nn.Module):
    """y = x W^T + b for x of shape [rows, in].

    Computes in the precision of the weight: x of another one is rounded to it, and y comes back in that of x. Holds the
    weight as an ordinary parameter [out, in]; `prepare` adds the packed form for inference on a CPU.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self._product: Callable[..., Tensor] = F.linear
        self._packed: tuple[object, ...] | None = None
        self._kept_as: torch.dtype | None = None
        self._few_rows: native.Product | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        if x.dtype != self.weight.dtype:
            return self.forward(x.to(self.weight.dtype)).to(x.dtype)
        if self._few_rows is not None and x.shape[0] <= MOST_ROWS and not x.requires_grad:
            return self._few_rows(x)
        if self._packed is None or x.requires_grad:  # the packed products have no gradient
            return F.linear(x, self.weight, self.bias)
        product: Tensor = self._product(x, *self._packed)
        return product

    # Without the search for hooks, which costs as much as a small kernel.
    __call__ = forward

    @property
    def read_bytes(self) -> int:
        """What one product of few rows reads of weight and bias, in the form they are kept in."""
        bias = 0 if self.bias is None else self.bias.nbytes
        if self._few_rows is not None:
            return self._few_rows.nbytes + bias
        return self.weight.numel() * (self._kept_as or self.weight.dtype).itemsize + bias

    def prepare(self) -> None:
        """Pack the weight where that is faster: float32 and bfloat16 on a CPU. Idempotent."""
        weight, bias = self.weight.detach(), None if self.bias is None else self.bias.detach()
        if weight.device.type != "cpu":
            return
        if _held_by_half(weight):
            self._product = torch.ops.quantized.linear_dynamic_fp16.default
            self._packed = (torch.ops.quantized.linear_prepack_fp16(weight, bias),)
            self._kept_as = torch.float16
        elif _packable(weight.dtype):
            self._product = torch.ops.mkldnn._linear_pointwise.default
            self._packed = (torch.ops.mkldnn._reorder_linear_weight(weight), bias, "none", [], "")

    def prepare_few_rows(self) -> None:
        """Pack the weight a second time, for products of few rows, where the native ones apply. Idempotent."""
        if native.applies_to(self.weight):
            self._few_rows = native.Product(self.weight, self.bias)


def _held_by_half(weight: Tensor) -> bool:
    """float32 whose values float16 holds, on a machine that has this product."""
    if weight.dtype != torch.float32 or "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    return bool(((weight.half().float() - weight).abs() <= _HALF_STEP).all())


def _packable(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
