"""When a pass goes through the native network instead of torch: float32, on a CPU, over caches.

Knows the modules of `models.transformer` and the rule; what the network computes, `paceline.native` knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from paceline import native
from paceline.models.attention import Attend, CachedAttention
from paceline.models.norm import RmsNorm
from paceline.models.rotary import Rotation

if TYPE_CHECKING:
    from paceline.models.spec import Spec
    from paceline.models.transformer import Layer

__all__ = ["NativeLayers", "pack"]


class NativeLayers:
    """The packed layers of a model, and the question whether they are what computes a pass."""

    def __init__(self, network: native.Network) -> None:
        self._network = network

    @property
    def read_bytes(self) -> int:
        """What one pass reads of the weights."""
        return self._network.nbytes

    def __call__(
        self, x: Tensor, turn: Rotation, attend: Attend, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None] | None:
        """Hidden states and features as `native.Network` gives them; None where torch has to compute them."""
        if not isinstance(attend, CachedAttention) or x.requires_grad:
            return None
        rows = [
            native.Rows(segment.cache.room(segment.rows), segment.cache.length, segment.rows, segment.tree)
            for segment in attend.segments
        ]
        return self._network(x, turn, rows, attend.causal, attend.windows, taps)


def pack(layers: Sequence[Layer], norm: RmsNorm, spec: Spec) -> NativeLayers | None:
    """The native form of frozen layers; None where they do not compute in float32 on a CPU, or there is no extension.

    One layer after the other, so that those that do not keep their weights (`Linear`) are never held twice.
    """
    if not native.applies_to(norm.weight) or not all(each.native for layer in layers for each in layer.linears()):
        return None
    sizes = native.Sizes(
        len(layers), spec.intermediate_size, spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.norm_eps
    )
    return NativeLayers(native.Network(sizes, _handed_over(layers), norm.weight, layers[0].qkv.int8_group))


def _handed_over(layers: Sequence[Layer]) -> Iterator[native.LayerWeights]:
    for layer in layers:
        yield _weights(layer)
        for linear in layer.linears():
            linear.was_packed()


def _weights(layer: Layer) -> native.LayerWeights:
    head_norm = layer.head_norm
    return native.LayerWeights(
        attention_norm=layer.attention_norm.weight,
        mlp_norm=layer.mlp_norm.weight,
        query_norm=None if head_norm is None else head_norm.q,
        key_norm=None if head_norm is None else head_norm.k,
        qkv=layer.qkv.weight.float(),
        out=layer.out.weight.float(),
        gate_up=layer.gate_up.weight.float(),
        down=layer.down.weight.float(),
        qkv_bias=layer.qkv.bias,
        out_bias=layer.out.bias,
        gate_up_bias=layer.gate_up.bias,
        down_bias=layer.down.bias,
    )
