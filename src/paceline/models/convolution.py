"""What lets the slots of a block know their left neighbours: the convolutions of a DFlash 2 drafter.

Each layer has two pairs, one around attention and one around the MLP. A pair takes its kernels from what it stands
around, row by row, and acts on that part's input and on its output, before the residual:

    kernel_t = base + projection(normed_t)            one number of the projection for all channels of a group
    y_t      = sum over o of kernel_t[o] * x_(t - o)

The rows of a batch are flat, and a block begins with nothing to its left. Knows neither caches nor tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paceline.models.attention import Attend
from paceline.models.drafter_spec import DFlash2
from paceline.models.linear import Linear
from paceline.models.rotary import Rotation
from paceline.models.transformer import Layer

__all__ = ["Convolution", "Coupling", "convolve", "left_neighbours"]


def left_neighbours(block_rows: Sequence[int], kernel_size: int, device: torch.device) -> Tensor:
    """Which rows stand 0, 1, … places to the left of each row of a flat batch, [rows, kernel_size].

    Where that lies before the row's own block it is the number of all rows, which stands for a row of zeros.

    Args:
        block_rows: the rows of each block, in the order of the batch.
    """
    counts = torch.tensor(block_rows, device=device)
    rows = sum(block_rows)
    first = (counts.cumsum(0) - counts).repeat_interleave(counts, output_size=rows).unsqueeze(1)
    left = torch.arange(rows, device=device).unsqueeze(1) - torch.arange(kernel_size, device=device)
    return torch.where(left >= first, left, rows)


def convolve(x: Tensor, kernel: Tensor, lefts: Tensor) -> Tensor:
    """Rows [rows, hidden], weighted with those to their left: kernel [rows, kernel_size, hidden], `left_neighbours`."""
    return (kernel * F.embedding(lefts, F.pad(x, (0, 0, 0, 1)))).sum(1)


class Convolution(nn.Module):
    """The pair of convolutions around one part of a layer. The base of a new one passes every row on as it is.

    Attributes:
        base_kernel: [2, kernel_size, hidden], of the input and of the output.
    """

    def __init__(self, hidden_size: int, spec: DFlash2) -> None:
        super().__init__()
        size, groups = spec.kernel_size, hidden_size // spec.group_size
        pass_on = torch.cat((torch.ones(2, 1, hidden_size), torch.zeros(2, size - 1, hidden_size)), 1)
        self.base_kernel = nn.Parameter(pass_on)
        self.kernel_projection = Linear(hidden_size, 2 * size * groups)
        self._grouped = (2, size, groups, spec.group_size)

    def forward(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """The kernels for the input and for the output of the part that reads `normed` [rows, hidden].

        Each [rows, kernel_size, hidden].
        """
        dynamic = self.kernel_projection(normed).view(-1, *self._grouped[:3], 1)
        ahead, behind = (self.base_kernel.view(self._grouped) + dynamic).flatten(-2).unbind(1)
        return ahead, behind

    __call__ = forward  # without the search for hooks


class Coupling(nn.Module):
    """Runs a layer with its convolutions.

    Attributes:
        kernel_size: rows that each sees, the row's own included.
        kernel_groups: of channels, see `DFlash2`.
    """

    def __init__(self, hidden_size: int, spec: DFlash2) -> None:
        super().__init__()
        self.kernel_size, self.kernel_groups = spec.kernel_size, hidden_size // spec.group_size
        self.attention = Convolution(hidden_size, spec)
        self.mlp = Convolution(hidden_size, spec)

    def linears(self) -> tuple[Linear, ...]:
        """Its products."""
        return self.attention.kernel_projection, self.mlp.kernel_projection

    def __call__(self, layer: Layer, x: Tensor, turn: Rotation, attend: Attend, lefts: Tensor) -> Tensor:
        """`forward`, kept or recomputed as `layer` says."""
        if not layer.recomputed:
            return self.forward(layer, x, turn, attend, lefts)
        again: Tensor = checkpoint(self.forward, layer, x, turn, attend, lefts, use_reentrant=False)
        return again

    def forward(self, layer: Layer, x: Tensor, turn: Rotation, attend: Attend, lefts: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, hidden]: `Layer.forward` with neighbours, of which `left_neighbours` tells."""
        normed = layer.attention_norm(x)
        ahead, behind = self.attention(normed)
        queries, keys, values = layer.project(convolve(normed, ahead, lefts), turn)
        x = x + convolve(layer.out(attend(layer.index, queries, keys, values)), behind, lefts)
        normed = layer.mlp_norm(x)
        ahead, behind = self.mlp(normed)
        gate, up = layer.gate_up(convolve(normed, ahead, lefts)).chunk(2, -1)
        return x + convolve(layer.down(F.silu(gate) * up), behind, lefts)
