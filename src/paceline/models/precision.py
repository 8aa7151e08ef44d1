"""Which part of a pair computes in which precision: the three tiers of `--precision`.

    tier     products of the target    its attention, norms, K/V    drafter
    exact    float32                   float32                      float32
    mixed    half                      float32                      half
    half     half                      half                         half

A product is cheap in half precision, and its sum is rounded once. What is summed over the whole context (scores,
softmax, the weighted values) and what is handed from layer to layer loses more, and costs little: mixed keeps it in
float32. Half is bfloat16; on CUDA a checkpoint that declares float16 gets float16. On a CPU it never does, since
products in float16 are slow there. Knows nothing of modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from paceline.models.options import check_precision

__all__ = ["Dtypes", "dtypes_of"]


class Dtypes(NamedTuple):
    """Precisions of a pair.

    Attributes:
        products: of the target's weights, hence of its matrix products.
        attention: of its scores, softmax, keys and values, norms, and of what its layers hand on.
        draft: of all that the drafter computes.
    """

    products: torch.dtype
    attention: torch.dtype
    draft: torch.dtype


def dtypes_of(precision: str, config: Mapping[str, Any], device: torch.device) -> Dtypes:
    """The precisions of a tier, for a target with this config.json on this device.

    Raises:
        ConfigError: there is no such tier.
    """
    check_precision(precision)
    declared = config.get("dtype") or config.get("torch_dtype")
    half = torch.float16 if device.type == "cuda" and declared == "float16" else torch.bfloat16
    full = torch.float32
    return {
        "exact": Dtypes(full, full, full),
        "mixed": Dtypes(half, full, half),
        "half": Dtypes(half, half, half),
    }[precision]
