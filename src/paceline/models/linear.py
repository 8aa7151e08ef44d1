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
bfloat16 weights are packed for oneDNN; float64, the precision of the proofs, is plain. Where the native product applies
(`paceline.native`), products in float32 and bfloat16 are that one, for any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline import native
from paceline.models.rounding import coded, rounded

if TYPE_CHECKING:
    from paceline.native import Arithmetic

__all__ = ["Linear"]

_HALF_STEP = 2.0**-25
"""Half the distance of the smallest float16 numbers: what rounding to float16 may change in a weight."""


class Linear(nn.Module):
    """y = x W^T + b for x of shape [rows, in].

    Computes in the precision of the weight: x of another one is rounded to it, and y comes back in that of x. Holds the
    weight as an ordinary parameter [out, in]; `prepare` adds the packed form for inference on a CPU.

    Attributes:
        arithmetic: what it rounds to int8 (`models.rounding`), if anything.
        lean: where the weight is packed natively and kept nowhere else, the precision to compute in. The parameter has
            no values then; `sources` has them until they are packed.
        sources: the tensors of a file that make the weight, one under the other.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self.arithmetic = native.EXACT
        self.lean: torch.dtype | None = None
        self.sources: Sequence[Tensor] = ()
        self._product: Callable[..., Tensor] = F.linear
        self._packed: tuple[object, ...] | None = None
        self._kept_as: torch.dtype | None = None
        self._native: native.Product | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        if self._native is not None and not x.requires_grad:
            return self._native(x) if x.dtype == torch.float32 else self._native(x.float()).to(x.dtype)
        if x.dtype != self.weight.dtype:
            return self.forward(x.to(self.weight.dtype)).to(x.dtype)
        if self._packed is None or x.requires_grad:  # the packed products have no gradient
            assert not self.weight.is_meta, "torch has to compute this, and its weight was given back"
            return F.linear(x, self.weight, self.bias)
        product: Tensor = self._product(x, *self._packed)
        return product

    # Without the search for hooks, which costs as much as a small kernel.
    __call__ = forward

    def take(self, parts: Sequence[Tensor], dtype: torch.dtype) -> None:
        """Compute with the weight that these tensors make, without a copy of it beside what will be packed."""
        self.lean, self.sources = dtype, parts
        self.weight = nn.Parameter(torch.empty(self.weight.shape, dtype=dtype, device="meta"), requires_grad=False)

    @property
    def native_product(self) -> native.Product | None:
        """The packed weight, for a native pass that ends with this product; None where torch computes it."""
        return self._native

    @property
    def native(self) -> bool:
        """Whether it computes natively, once it is packed."""
        return self.lean is not None or native.multiplies(self.dtype, self.weight.device)

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        return self.lean or self.weight.dtype

    @property
    def rounding(self) -> Arithmetic:
        """What the native product rounds."""
        return native.Arithmetic("bfloat16") if self.dtype == torch.bfloat16 else self.arithmetic

    @property
    def read_bytes(self) -> int:
        """What one product reads of weight and bias, in the form they are kept in."""
        bias = 0 if self.bias is None else self.bias.nbytes
        if self._native is not None:
            return self._native.nbytes + bias
        return self.weight.numel() * (self._kept_as or self.weight.dtype).itemsize + bias

    def prepare(self) -> None:
        """Pack the weight where that is faster: float32 and bfloat16 on a CPU. Idempotent."""
        if self.weight.device.type != "cpu" and not self.sources:
            return
        if self.native:
            bias = None if self.bias is None else self.bias.float()
            self._native = native.Product(self.values(), bias, self.rounding)
            self.sources = ()
        else:
            self._pack_for_torch()

    def _pack_for_torch(self) -> None:
        if self.arithmetic.rounding == "int8":
            self._product, self._packed = _linear_of_codes, (*coded(self.weight.detach()), self.bias)
            return
        if self.arithmetic.rounding == "weights":
            self.weight = nn.Parameter(rounded(self.weight, self.arithmetic.group), requires_grad=False)
            self.arithmetic = native.EXACT  # a second rounding may find another scale
        weight, bias = self.weight.detach(), None if self.bias is None else self.bias.detach()
        if _held_by_half(weight):
            self._product = torch.ops.quantized.linear_dynamic_fp16.default
            self._packed = (torch.ops.quantized.linear_prepack_fp16(weight, bias),)
            self._kept_as = torch.float16
        elif _packable(weight.dtype):
            self._product = torch.ops.mkldnn._linear_pointwise.default
            self._packed = (torch.ops.mkldnn._reorder_linear_weight(weight), bias, "none", [], "")

    def values(self) -> Tensor:
        """The weight in float32, wherever it is."""
        if not self.sources:
            return self.weight.detach().float()
        return torch.cat([*self.sources], out=torch.empty(self.weight.shape))


def _linear_of_codes(x: Tensor, codes: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    own, own_scales = coded(x)
    product = F.linear(own, codes) * (scales.T * own_scales)
    return product if bias is None else product + bias


def _held_by_half(weight: Tensor) -> bool:
    """float32 whose values float16 holds, on a machine that has this product."""
    if weight.dtype != torch.float32 or "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    return bool(((weight.half().float() - weight).abs() <= _HALF_STEP).all())


def _packable(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
