"""Numbers rounded to int8 and back, to the bit what the packed products make of them.

Weights alone, many of an output sharing a scale; sums stay float32, so a code of 7 bits and a scale of 8 have an exact
product:

    scale = the smallest bfloat16 >= max |w| / 127        w -> scale * round(w / scale)

Weights and rows alike, with one scale for each output and each row; sums of codes are exact:

    scale = max |x| / 127                                 x -> scale * round(x * (127 / max |x|))

Knows nothing of modules.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["WHOLE_ROW", "coded", "rounded"]

WHOLE_ROW = 2**31 - 1
"""A group of all inputs of an output."""

_SMALLEST = 1e-36
"""Below, 127 / max |x| is infinite: codes and scale are 0."""


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


def coded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, whole numbers in float32, and their scales [rows, 1], of x [rows, in].

    A row with a number that is infinite or none has codes 0 and a scale that is none.
    """
    x = x.float()
    largest = x.abs().amax(1, keepdim=True) if x.shape[1] else x.new_zeros(len(x), 1)
    factors = torch.where(largest < _SMALLEST, 0.0, torch.div(torch.full_like(largest, 127.0), largest))
    sound = largest.isfinite()
    codes = torch.where(sound, x * factors, 0.0).round()
    return codes, torch.where(sound, torch.where(largest < _SMALLEST, 0.0, largest / 127.0), torch.nan)


def _scales(largest: Tensor) -> Tensor:
    """Adding all that bfloat16 has no room for, and then cutting it off, rounds up."""
    bits = (largest / 127.0).contiguous().view(torch.int32)
    return ((bits + 0xFFFF) & ~0xFFFF).view(torch.float32)
