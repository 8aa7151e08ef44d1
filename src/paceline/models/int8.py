"""Weights rounded to int8, many of a row sharing a scale, and back: what the packed form holds, to the bit.

    scale = the smallest bfloat16 >= max |w| / 127        w -> scale * round(w / scale)

A code has 7 bits and such a scale 8, so their product is exact in float32. Weights alone are rounded; sums stay
float32. Knows nothing of modules.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["WHOLE_ROW", "rounded"]

WHOLE_ROW = 2**31 - 1
"""A group of all inputs of an output."""


def rounded(weight: Tensor, group: int) -> Tensor:
    """The nearest weights that int8 holds, float32.

    Args:
        weight: [out, in].
        group: consecutive inputs of an output that share a scale; the last group of a row may be shorter.
    """
    inputs = weight.shape[1]
    group = min(group, inputs)
    grouped = F.pad(weight.float(), (0, -inputs % group)).view(len(weight), -1, group)
    scales = _scales(grouped.abs().amax(2, keepdim=True))
    codes = torch.where(scales > 0, grouped / scales, 0.0).round()
    return (codes * scales).flatten(1)[:, :inputs].contiguous()


def _scales(largest: Tensor) -> Tensor:
    """Adding all that bfloat16 has no room for, and then cutting it off, rounds up."""
    bits = (largest / 127.0).contiguous().view(torch.int32)
    return ((bits + 0xFFFF) & ~0xFFFF).view(torch.float32)
