"""Which part of a pair computes in which precision: the tiers of `--precision`.

    tier       products of the target    its attention, norms, K/V    drafter
    exact      float32                   float32                      float32
    mixed      half                      float32                      half
    half       half                      half                         half
    int8       weights as int8           float32                      weights as int8
    int8-32    the same, 32 of a row sharing a scale instead of all

A product is cheap in half precision, and its sum is rounded once. What is summed over the whole context (scores,
softmax, the weighted values) and what is handed from layer to layer loses more, and costs little: mixed keeps it in
float32. Half is bfloat16; on CUDA a checkpoint that declares float16 gets float16. On a CPU it never does, since
products in float16 are slow there. int8 rounds the weights of all products (`models.int8`) and nothing else: sums are
float32. It is what a CPU reads fastest, and so for CPUs only. Knows nothing of modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from paceline.errors import ConfigError
from paceline.models.int8 import WHOLE_ROW
from paceline.models.options import check_precision

__all__ = ["Dtypes", "dtypes_of"]


class Dtypes(NamedTuple):
    """Precisions of a pair.

    Attributes:
        products: of the target's weights, hence of its matrix products.
        attention: of its scores, softmax, keys and values, norms, and of what its layers hand on.
        draft: of all that the drafter computes.
        int8_group: inputs that share a scale, where weights of products are rounded to int8; 0: they are not.
    """

    products: torch.dtype
    attention: torch.dtype
    draft: torch.dtype
    int8_group: int = 0


def dtypes_of(precision: str, config: Mapping[str, Any], device: torch.device) -> Dtypes:
    """The precisions of a tier, for a target with this config.json on this device.

    Raises:
        ConfigError: there is no such tier, or not on this device.
    """
    check_precision(precision)
    if precision.startswith("int8") and device.type != "cpu":
        told = f"precision is {precision!r} on {device.type}."
        raise ConfigError(told, remedy="int8 weights are for CPUs; use half.", param="precision")
    declared = config.get("dtype") or config.get("torch_dtype")
    half = torch.float16 if device.type == "cuda" and declared == "float16" else torch.bfloat16
    full = torch.float32
    return {
        "exact": Dtypes(full, full, full),
        "mixed": Dtypes(half, full, half),
        "half": Dtypes(half, half, half),
        "int8": Dtypes(full, full, full, WHOLE_ROW),
        "int8-32": Dtypes(full, full, full, 32),
    }[precision]
