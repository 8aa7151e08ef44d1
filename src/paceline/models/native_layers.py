"""When a pass goes through the native network instead of torch: all but products in float32, on a CPU, over caches.

Knows the modules of `models.transformer`, those of `models.convolution` around their parts, and the rule; what the
network computes, `paceline.native` knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from paceline import native
from paceline.models.attention import Attend, CachedAttention
from paceline.models.linear import Linear
from paceline.models.norm import RmsNorm
from paceline.models.rotary import Rotary

if TYPE_CHECKING:
    from paceline.models.convolution import Coupling
    from paceline.models.spec import Spec
    from paceline.models.transformer import Layer

__all__ = ["Asked", "Ends", "NativeLayers", "pack"]


class Ends(NamedTuple):
    """What stands before and behind the layers.

    Attributes:
        embed: of the tokens; `scale` is what it is multiplied with.
        norm: the final one.
        rotary: of the positions.
        head: makes scores of hidden states.
    """

    embed: nn.Embedding
    norm: RmsNorm
    rotary: Rotary
    head: Linear
    scale: float = 1.0


class Asked(NamedTuple):
    """What a pass is asked: `Transformer.forward` has the words.

    Attributes:
        rows: of which the head is asked, rising; None: of all.
    """

    tokens: Tensor
    positions: Tensor
    attend: Attend
    taps: Sequence[int] = ()
    rows: Sequence[int] | None = None


class NativeLayers:
    """The packed layers of a model, and the question whether they are what computes a pass: None where they are not."""

    def __init__(self, network: native.Network, ends: Ends) -> None:
        self._network = network
        self._rotary, self._head = ends.rotary, ends.head
        self._turn = None if ends.rotary.table is None else native.turn_of(ends.rotary.table)

    @property
    def read_bytes(self) -> int:
        """What one pass reads of the layers' weights."""
        return self._network.nbytes

    def states(self, asked: Asked) -> tuple[Tensor, Tensor | None] | None:
        """Hidden states and features of all rows."""
        batch = self._batch(asked)
        return None if batch is None else self._network.states(batch)

    def scores(self, asked: Asked) -> tuple[Tensor, Tensor | None] | None:
        """What the head makes of the rows, and features of all."""
        head, batch = self._head.native_product, self._batch(asked)
        return None if batch is None or head is None else self._network.scores(batch, head, _scored(asked))

    def states_and_scores(self, asked: Asked) -> tuple[Tensor, Tensor] | None:
        """Hidden states of the rows, and what the head makes of them."""
        head, batch = self._head.native_product, self._batch(asked)
        return None if batch is None or head is None else self._network.states_and_scores(batch, head, _scored(asked))

    def chosen(self, asked: Asked, draws: native.Draws) -> tuple[list[int], Tensor | None] | None:
        """What is drawn from these scores, and features of all rows."""
        head, batch = self._head.native_product, self._batch(asked)
        return None if batch is None or head is None else self._network.chosen(batch, head, _scored(asked), draws)

    def continued(
        self, asked: Asked, draws: native.Draws, ends: Sequence[int]
    ) -> tuple[list[int], Tensor | None] | None:
        """What is drawn pass by pass, each sequence's row being what it drew before; and features of all."""
        passes = len(draws.keys) // len(asked.tokens)
        head, batch = self._head.native_product, self._batch(asked, passes - 1)
        return None if batch is None or head is None else self._network.continued(batch, head, draws, ends)

    def ranked(self, asked: Asked, draws: native.Draws, width: int) -> tuple[Tensor, Tensor] | None:
        """What would be drawn from these scores first, second, … and how likely."""
        head, batch = self._head.native_product, self._batch(asked)
        if batch is None or head is None:
            return None
        return self._network.ranked(batch, head, _scored(asked), draws, min(width, head.outputs))

    def _batch(self, asked: Asked, ahead: int = 0) -> native.Batch | None:
        """`ahead`: rows that will follow those of each sequence."""
        tokens, positions, attend, taps, _ = asked
        if not isinstance(attend, CachedAttention):
            return None
        rows = [
            native.Rows(segment.cache.room(segment.rows + ahead), segment.cache.length, segment.rows, segment.tree)
            for segment in attend.segments
        ]
        places, turn = positions, self._turn
        if turn is None:
            places, turn = torch.arange(len(positions)), native.turn_of(self._rotary(positions, torch.float32))
        return native.Batch(tokens, places, turn, rows, attend.causal, attend.windows, taps)


def pack(
    layers: Sequence[Layer], ends: Ends, spec: Spec, couplings: Sequence[Coupling] | None = None
) -> NativeLayers | None:
    """The native form of frozen layers; None where they do not compute in float32 on a CPU, or there is no extension.

    One layer after the other, so that those that do not keep their weights (`Linear`) are never held twice.

    Args:
        couplings: the convolutions of each layer, if there are any.
    """
    norm, embedding = ends.norm.weight, ends.embed.weight
    linears = [linear for layer in layers for linear in layer.linears()]
    linears += [linear for coupling in couplings or () for linear in coupling.linears()]
    known = embedding.dtype in (torch.float32, torch.bfloat16)
    if not (known and native.applies_to(norm) and all(linear.native for linear in linears)):
        return None
    kernels = (couplings[0].kernel_size, couplings[0].kernel_groups) if couplings else (0, 0)
    sizes = native.Sizes(
        len(layers), spec.intermediate_size, spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.norm_eps, *kernels
    )
    arithmetic, weights = layers[0].qkv.rounding, _handed_over(layers, couplings or [None] * len(layers))
    return NativeLayers(native.Network(sizes, weights, norm, embedding, ends.scale, arithmetic), ends)


def _scored(asked: Asked) -> Sequence[int]:
    return range(asked.tokens.shape[0]) if asked.rows is None else asked.rows


def _handed_over(layers: Sequence[Layer], couplings: Sequence[Coupling | None]) -> Iterator[native.LayerWeights]:
    for layer, coupling in zip(layers, couplings, strict=True):
        yield _weights(layer) if coupling is None else _coupled(_weights(layer), coupling)
        for linear in (*layer.linears(), *(() if coupling is None else coupling.linears())):
            linear.sources = ()


def _weights(layer: Layer) -> native.LayerWeights:
    head_norm = layer.head_norm
    return native.LayerWeights(
        attention_norm=layer.attention_norm.weight,
        mlp_norm=layer.mlp_norm.weight,
        query_norm=None if head_norm is None else head_norm.q,
        key_norm=None if head_norm is None else head_norm.k,
        qkv=layer.qkv.values(),
        out=layer.out.values(),
        gate_up=layer.gate_up.values(),
        down=layer.down.values(),
        qkv_bias=_wide(layer.qkv.bias),
        out_bias=_wide(layer.out.bias),
        gate_up_bias=_wide(layer.gate_up.bias),
        down_bias=_wide(layer.down.bias),
    )


def _wide(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.float()


def _coupled(weights: native.LayerWeights, coupling: Coupling) -> native.LayerWeights:
    around, of_mlp = coupling.attention, coupling.mlp
    return weights._replace(
        attention_base=around.base_kernel,
        attention_projection=around.kernel_projection.values(),
        mlp_base=of_mlp.base_kernel,
        mlp_projection=of_mlp.kernel_projection.values(),
    )
