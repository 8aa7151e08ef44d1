"""The matrix products of a model, one by one, in every form that computes them.

native         `native.Product`, what passes of few rows use; also `native mixed`, `native int8`, …: in that precision
torch          `models.linear` without it: packed, the weights in float16 where that holds them
F.linear       torch as it comes, float32

Times nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline import native
from paceline.models.linear import Linear
from paceline.models.options import Precision
from paceline.models.precision import dtypes_of

__all__ = ["NATIVE", "PLAIN", "TORCH", "Form", "factors_of", "forms", "in_pass", "linears", "precision_of", "variants"]

NATIVE, TORCH, PLAIN = "native", "torch", "F.linear"

_BESIDE_THE_PASS = ("fc", "hidden_projection")
"""Products of a drafter that its pass over a block does not make: of the target's features, and of its selector."""


class Form(NamedTuple):
    """One product in one form.

    Attributes:
        part: what it is called: qkv, out, gate_up, down, head, ...
        inputs, outputs: of a row.
        nbytes: what it reads of weight and bias.
        product: [rows, inputs] -> [rows, outputs].
    """

    part: str
    inputs: int
    outputs: int
    nbytes: int
    product: Callable[[Tensor], Tensor]


def variants(precisions: Sequence[Precision] = ("exact",)) -> tuple[str, ...]:
    """The forms there are on this machine: native ones in these precisions, those of torch in float32."""
    names = [NATIVE if precision == "exact" else f"{NATIVE} {precision}" for precision in dict.fromkeys(precisions)]
    return (TORCH, PLAIN) if native.why_not() is not None else (*names, TORCH, PLAIN)


def precision_of(variant: str) -> Precision:
    """In which precision a form computes."""
    return cast(Precision, variant.removeprefix(NATIVE).strip() or "exact") if _is_native(variant) else "exact"


def factors_of(variant: str) -> str:
    """What a form multiplies: float32, bfloat16 or int8."""
    rounding = _arithmetic(variant).rounding
    return rounding if rounding in ("bfloat16", "int8") else "float32"


def linears(module: nn.Module) -> list[tuple[str, Linear]]:
    """The products below `module`, each with its name there, in the order in which a pass makes them."""
    found = [(name.rpartition(".")[2], each) for name, each in module.named_modules() if isinstance(each, Linear)]
    shapes: dict[str, tuple[int, ...]] = {}
    assert all(shapes.setdefault(name, each.weight.shape) == each.weight.shape for name, each in found)
    return found


def in_pass(own: Sequence[Form]) -> list[Form]:
    """Those that a pass makes."""
    return [form for form in own if form.part not in _BESIDE_THE_PASS]


def forms(variant: str, products: Sequence[tuple[str, Linear]]) -> list[Form]:
    """The same products in one form; they have been packed for torch, and not for few rows."""
    return [_form(variant, part, linear) for part, linear in products]


def _form(variant: str, part: str, linear: Linear) -> Form:
    outputs, inputs = linear.weight.shape
    if _is_native(variant):
        product = native.Product(linear.weight, linear.bias, _arithmetic(variant))
        return Form(part, inputs, outputs, product.nbytes, product)
    if variant == TORCH:
        return Form(part, inputs, outputs, linear.read_bytes, linear)
    nbytes = linear.weight.nbytes + (0 if linear.bias is None else linear.bias.nbytes)
    return Form(part, inputs, outputs, nbytes, partial(F.linear, weight=linear.weight, bias=linear.bias))


def _is_native(variant: str) -> bool:
    return variant.startswith(NATIVE)


def _arithmetic(variant: str) -> native.Arithmetic:
    dtypes = dtypes_of(precision_of(variant), {}, torch.device("cpu"))
    return native.Arithmetic("bfloat16") if dtypes.products == torch.bfloat16 else dtypes.arithmetic
