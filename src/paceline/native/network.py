"""The layers of a Transformer on a flat batch of rows, in one call.

Pre-norm layers with RMSNorm, rotary positions, grouped-query attention and SwiGLU, then the final norm: what
`models.transformer` does in torch, its oracle. Sums have a fixed order, so a row's result is the same to the bit
whatever other rows, however many threads compute with it, and whether what it sees was cached, is its chain, or one
branch of its tree. Knows nothing of embedding, head and models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.native.choice import extension, instructions
from paceline.native.extension import array, pool

__all__ = ["LayerWeights", "Network", "Rows", "Sizes"]


class LayerWeights(NamedTuple):
    """The tensors of a layer, float32 on the CPU.

    Attributes:
        attention_norm, mlp_norm: [hidden].
        query_norm, key_norm: [head_dim], both or neither.
        qkv: [(heads + 2 kv_heads) * head_dim, hidden].
        out: [hidden, heads * head_dim].
        gate_up: [2 * intermediate, hidden], gates first.
        down: [hidden, intermediate].
        qkv_bias, out_bias, gate_up_bias, down_bias: one number for each output.
    """

    attention_norm: Tensor
    mlp_norm: Tensor
    query_norm: Tensor | None
    key_norm: Tensor | None
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_bias: Tensor | None
    out_bias: Tensor | None
    gate_up_bias: Tensor | None
    down_bias: Tensor | None


class Rows(NamedTuple):
    """The new rows of one sequence.

    Attributes:
        cache: [layers, 2, kv_heads, capacity, head_dim]; new keys and values are written behind the past ones.
        past: rows that it holds.
        rows: new ones.
        tree: for each row the index of the row before it, -1 for none; None is one behind the other.
    """

    cache: Tensor
    past: int
    rows: int
    tree: tuple[int, ...] | None


class Sizes(NamedTuple):
    """What the shape of the final norm does not say of a network."""

    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float


class Network:
    """Layers and final norm.

    Args:
        sizes: of all layers.
        layers: their tensors, one after the other; each is copied before the next one is asked for.
        norm: weight of the final norm, [hidden].
        group: inputs that share a scale, where weights are rounded to int8; 0: none is rounded.
    """

    def __init__(self, sizes: Sizes, layers: Iterable[LayerWeights], norm: Tensor, group: int = 0) -> None:
        native = extension()
        self._native = native.Network(
            pool(), instructions(), tuple(sizes[1:5]), sizes.eps, _plain(norm), sizes.layers, group
        )
        for layer in layers:
            self._native.add(native.Layer(*map(_plain, layer)))

    @property
    def nbytes(self) -> int:
        """What one pass reads of the weights."""
        read: int = self._native.nbytes
        return read

    def __call__(
        self,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        rows: Sequence[Rows],
        causal: Sequence[bool],
        windows: Sequence[int | None],
        taps: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [rows, hidden] after the final norm, and the outputs of tapped layers, [rows, taps * hidden].

        Args:
            x: [rows, hidden].
            turn: cos and signed sin of each row, [rows, 1, head_dim].
            rows: the sequences, in the order of their rows.
            causal: for each layer, whether a row sees only itself and earlier rows.
            windows: for each layer, its sliding window in tokens or None.
            taps: layers; the last one's output is taken after the final norm.

        Raises:
            TypeError, ValueError: something has another type or shape.
        """
        hidden = torch.empty(x.shape)
        features = torch.empty(x.shape[0], len(taps) * x.shape[1]) if taps else None
        cos, sin = (array(angle.flatten(1)) for angle in turn)
        own = [(each.cache.numpy(), *each[1:]) for each in rows]
        tapped = None if features is None else features.numpy()
        self._native.run(array(x), cos, sin, own, causal, windows, taps, hidden.numpy(), tapped)
        return hidden, features


def _plain(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().contiguous()
