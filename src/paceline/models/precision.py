"""Which part of a pair computes in which precision: the tiers of `--precision`.

    tier       products of the target    its attention, norms, K/V    drafter
    exact      float32                   float32                      float32
    mixed      half                      float32                      half
    half       half                      half                         half
    int8       weights as int8           float32                      weights as int8
    int8-32    the same, 32 of a row sharing a scale instead of all
    w8a8       weights and rows as int8  float32                      weights and rows as int8

A product is cheap in half precision, and its sum is rounded once. What is summed over the whole context (scores,
softmax, the weighted values) and what is handed from layer to layer loses more, and costs little: mixed keeps it in
float32. Where passes are native (`paceline.native`), whatever is not a product is float32 in half, too, and in the
drafter, and sums are never rounded: it costs nothing there. Half is bfloat16; on CUDA a checkpoint that declares
float16 gets float16. On a CPU it never does, since products in float16 are slow there. int8 rounds the weights of all
products (`models.rounding`) and nothing else, w8a8 the rows as well, as llama.cpp's q8_0 does: what a CPU reads and
multiplies fastest, and so for CPUs only. Knows nothing of modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from paceline import native
from paceline.errors import ConfigError
from paceline.models.options import check_precision
from paceline.models.rounding import WHOLE_ROW

__all__ = ["Dtypes", "dtypes_of"]


_INT8 = {
    "int8": native.Arithmetic("weights", WHOLE_ROW),
    "int8-32": native.Arithmetic("weights", 32),
    "w8a8": native.Arithmetic("int8"),
}


class Dtypes(NamedTuple):
    """Precisions of a pair.

    Attributes:
        products: of the target's weights, hence of its matrix products.
        attention: of its scores, softmax, keys and values, norms, and of what its layers hand on.
        draft: of the drafter's products.
        draft_attention: of all else that it computes.
        arithmetic: what products round to int8, if anything.
    """

    products: torch.dtype
    attention: torch.dtype
    draft: torch.dtype
    draft_attention: torch.dtype
    arithmetic: native.Arithmetic = native.EXACT


def dtypes_of(precision: str, config: Mapping[str, Any], device: torch.device) -> Dtypes:
    """The precisions of a tier, for a target with this config.json on this device.

    Raises:
        ConfigError: there is no such tier, or not on this device.
    """
    check_precision(precision)
    if precision in _INT8 and device.type != "cpu":
        told = f"precision is {precision!r} on {device.type}."
        raise ConfigError(told, remedy="int8 is for CPUs; use half.", param="precision")
    declared = config.get("dtype") or config.get("torch_dtype")
    half = torch.float16 if device.type == "cuda" and declared == "float16" else torch.bfloat16
    full = torch.float32
    beside = full if native.multiplies(half, device) else half
    if precision in _INT8:
        return Dtypes(full, full, full, full, _INT8[precision])
    return {
        "exact": Dtypes(full, full, full, full),
        "mixed": Dtypes(half, full, half, beside),
        "half": Dtypes(half, beside, half, beside),
    }[precision]
