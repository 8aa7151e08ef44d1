"""What a drafter knows of the text: keys and values of all its layers, made of the target's features once per token.

    hidden          = norm(fc(features))
    keys, values    of each layer, as its attention would make them of `hidden`: the key and value rows of its qkv, its
                    key norm, its rotation

The product over all layers is one. Knows the parts of `models.drafter`, and not whose features these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline import native
from paceline.cache.store import SequenceCache
from paceline.models.linear import Linear
from paceline.models.norm import HeadNorm, RmsNorm, rms_norm
from paceline.models.rotary import Rotary, rotate
from paceline.models.spec import Spec
from paceline.models.transformer import Layer

__all__ = ["Context", "Unread"]

Rowwise = Callable[[Tensor], Tensor]

Unread = tuple[Sequence[Tensor], SequenceCache]
"""Features of a sequence's next tokens, part by part [tokens, taps * hidden], and the cache for what they become."""


class _Fused(NamedTuple):
    """Of all layers: the key and value rows of qkv, one layer under the other, their biases, and the key norms.

    Attributes:
        weight: [layers * 2 * kv_heads * head_dim, hidden].
        norms: [layers, 1, 1, head_dim].
    """

    weight: Tensor
    bias: Tensor | None
    norms: Tensor


class Context:
    """Makes it.

    Args:
        fc, norm: what features go through.
        layers: all of the drafter's; `block` is their shape.
    """

    def __init__(self, fc: Linear, norm: RmsNorm, layers: Sequence[Layer], block: Spec, rotary: Rotary) -> None:
        self._fc, self._norm, self._layers, self._block, self._rotary = fc, norm, layers, block, rotary
        self._forms: tuple[Rowwise, Rowwise] | None = None
        self._native: native.Context | None = None

    def __call__(self, features: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Normed, rotated keys and values of rows, each [layers, rows, kv_heads, head_dim].

        Args:
            features: [rows, taps * hidden], the tapped layers of the target side by side, in any precision.
            positions: [rows], absolute.
        """
        block = self._block
        hidden = self._norm(self._fc(features.to(self._fc.dtype)))
        product, norm = self._forms or self._plain_forms()
        shaped = product(hidden).view(-1, block.num_layers, 2, block.num_kv_heads, block.head_dim)
        keys, values = shaped.permute(2, 1, 0, 3, 4).unbind()
        return rotate(norm(keys), self._rotary(positions, hidden.dtype)), values

    def extend(self, unread: Sequence[Unread]) -> None:
        """Commit keys and values of new tokens to the caches, behind the tokens that they hold."""
        if self._native is not None:
            self._native.extend([(parts, cache.room(sum(map(len, parts))), cache.length) for parts, cache in unread])
            for parts, cache in unread:
                cache.advance(sum(map(len, parts)))
            return
        counts, caches = [sum(map(len, parts)) for parts, _ in unread], [cache for _, cache in unread]
        features = torch.cat([part for parts, _ in unread for part in parts])
        places = [torch.arange(cache.length, cache.length + count) for count, cache in zip(counts, caches, strict=True)]
        keys, values = self(features, torch.cat(places).to(features.device))
        for cache, *own in zip(caches, torch.split(keys, counts, 1), torch.split(values, counts, 1), strict=True):
            cache.extend(*own)

    def prepare(self) -> None:
        """Fuse what layers do to hidden states, and pack it where passes are native; before the layers are packed."""
        fused = self._fused()
        if self._fc.native and native.applies_to(self._norm.weight) and self._rotary.table is not None:
            self._native = self._packed(fused)
            self._fc.sources = ()
            return
        product, norm = Linear(fused.weight.shape[1], len(fused.weight)), RmsNorm(1, self._block.norm_eps)
        product.weight, norm.weight = nn.Parameter(fused.weight, False), nn.Parameter(fused.norms, False)
        product.bias = None if fused.bias is None else nn.Parameter(fused.bias, False)
        product.arithmetic = self._fc.arithmetic
        product.prepare()
        norm.prepare()
        self._forms = product, norm

    def _packed(self, fused: _Fused) -> native.Context:
        block, table = self._block, self._rotary.table
        assert table is not None, "`prepare` has seen it"
        weights = native.ContextWeights(
            fc=self._fc.values(),
            fc_bias=self._fc.bias,
            norm=self._norm.weight,
            key_value=fused.weight,
            key_value_bias=fused.bias,
            key_norms=fused.norms.flatten(1),
        )
        sizes = block.num_layers, block.num_kv_heads, block.norm_eps
        return native.Context(sizes, weights, native.turn_of(table), self._fc.rounding)

    def _plain_forms(self) -> tuple[Rowwise, Rowwise]:
        fused = self._fused()
        return (
            partial(F.linear, weight=fused.weight, bias=fused.bias),
            partial(rms_norm, weight=fused.norms, eps=self._block.norm_eps),
        )

    def _fused(self) -> _Fused:
        skip = self._block.num_heads * self._block.head_dim
        biases = [layer.qkv.bias[skip:] for layer in self._layers if layer.qkv.bias is not None]
        norms = torch.stack([cast(HeadNorm, layer.head_norm).k for layer in self._layers])
        whole = [layer.qkv.values() if layer.qkv.sources else layer.qkv.weight for layer in self._layers]
        weight = torch.cat([own[skip:] for own in whole]).to(norms.dtype)
        return _Fused(weight, torch.cat(biases) if biases else None, norms.view(-1, 1, 1, self._block.head_dim))
