"""What a product rounds before it multiplies. Imports no torch, and knows nothing of tensors."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["EXACT", "Arithmetic"]


class Arithmetic(NamedTuple):
    """How the products of a model are computed; sums are float32, and exact where factors are int8.

    Attributes:
        rounding: "none"; "weights", to int8; or weights and rows alike, to "bfloat16" or to "int8", the latter with a
            scale for each output and each row.
        group: inputs that share a scale, where weights alone are rounded; else 0.
    """

    rounding: Literal["none", "weights", "bfloat16", "int8"] = "none"
    group: int = 0


EXACT = Arithmetic()
