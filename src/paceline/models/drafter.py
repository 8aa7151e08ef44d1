"""The DFlash drafter, versions 1 and 2: fills a whole block of masked tokens in one pass (arXiv 2602.06036).

Qwen3 layers between the embedding and the head of the frozen target. The target's hidden states at the tapped layers
become context features, once per committed token; every draft layer sees them as keys and values in front of those of
the block. Block input is [anchor, MASK, …], slot j predicts the token at anchor + j. In version 2 slots also know their
left neighbours: `models.convolution` inside the layers, `models.selector` behind them. The drafter does not know how
proposals are chosen or judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.models.attention import Attend, Segment, cached_attention
from paceline.models.convolution import Coupling, left_neighbours
from paceline.models.drafter_spec import DrafterSpec
from paceline.models.linear import Linear
from paceline.models.native_layers import NativeLayers, pack
from paceline.models.norm import HeadNorm, RmsNorm, rms_norm
from paceline.models.rotary import Rotary, Rotation, rotate
from paceline.models.selector import CandidateSelector
from paceline.models.transformer import Layer, Transformer, initialize

__all__ = ["Drafter"]

Rowwise = Callable[[Tensor], Tensor]


class Drafter(nn.Module):
    """Draft layers that borrow the embedding and the head of `target`; both stay the target's own objects.

    Attributes:
        selector: scores the candidates of a slot behind those of the slot before; None in version 1.
    """

    def __init__(self, spec: DrafterSpec, target: Transformer) -> None:
        super().__init__()
        block = spec.block
        self.spec = spec
        self.fc = Linear(len(spec.target_layer_ids) * block.hidden_size, block.hidden_size)
        self.hidden_norm = RmsNorm(block.hidden_size, block.norm_eps)
        self.layers = nn.ModuleList(Layer(block, index) for index in range(block.num_layers))
        self.couplings = _couplings(spec)
        self.norm = RmsNorm(block.hidden_size, block.norm_eps)
        self.selector = None if spec.v2 is None else CandidateSelector(block.vocab_size, block.hidden_size, spec.v2)
        self.rotary = Rotary(block.rope, block.head_dim)
        self._context_tokens = max(block.context_tokens, target.spec.context_tokens)
        self._context: tuple[Rowwise, Rowwise] | None = None
        self._native: NativeLayers | None = None
        # In a tuple, so that the target's weights are not counted, trained or saved as the drafter's.
        self._lent = (target.embed, target.head)
        initialize(self)

    @property
    def embed(self) -> nn.Embedding:
        """The target's embedding."""
        return self._lent[0]

    @property
    def head(self) -> Linear:
        """The target's head."""
        return self._lent[1]

    def context(self, features: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of context rows for all layers at once.

        Args:
            features: [rows, taps * hidden], the tapped layers of the target side by side, in any precision.
            positions: [rows], absolute.

        Returns:
            Normed, rotated keys and values, each [layers, rows, kv_heads, head_dim].
        """
        block = self.spec.block
        hidden = self.hidden_norm(self.fc(features.to(self.fc.weight.dtype)))
        product, norm = self._context or self._plain_context()
        shaped = product(hidden).view(-1, block.num_layers, 2, block.num_kv_heads, block.head_dim)
        keys, values = shaped.permute(2, 1, 0, 3, 4).unbind()
        return rotate(norm(keys), self.rotary(positions, hidden.dtype)), values

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, block_rows: Sequence[int] | None = None
    ) -> Tensor:
        """Hidden states [rows, hidden] of blocks, after the final norm.

        Args:
            tokens: [rows], anchors and mask tokens.
            positions: [rows], absolute.
            attend: lets each row see its context rows and its own block.
            block_rows: rows of each block, in the order of the batch: what version 2 has to know, and 1 does not.
        """
        x = self.embed(tokens)
        if self.spec.input_embedding_scale != 1.0:
            x = x * self.spec.input_embedding_scale
        turn = self.rotary(positions, x.dtype)
        found = None if self._native is None else self._native(x, turn, attend)
        if found is not None:
            return found[0]
        if self.couplings is not None:
            x = self._coupled(x, turn, attend, block_rows)
        else:
            for layer in self.layers:
                x = layer(x, turn, attend)
        hidden: Tensor = self.norm(x)
        return hidden

    def _coupled(self, x: Tensor, turn: Rotation, attend: Attend, block_rows: Sequence[int] | None) -> Tensor:
        """All layers of version 2."""
        assert self.spec.v2 is not None
        assert self.couplings is not None
        assert sum(block_rows or ()) == len(x), "a row must not see another block's"
        assert block_rows is not None
        lefts = left_neighbours(block_rows, self.spec.v2.kernel_size, x.device)
        for layer, coupling in zip(self.layers, self.couplings, strict=True):
            x = coupling(layer, x, turn, attend, lefts)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """The target's head on [rows, hidden], then the multiplier and the soft cap c tanh(x / c)."""
        logits: Tensor = self.head(hidden)
        if self.spec.output_multiplier != 1.0:
            logits = logits * self.spec.output_multiplier
        cap = self.spec.final_logit_softcapping
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def attention(self, segments: Sequence[Segment]) -> Attend:
        """Attention of blocks over what their caches hold, layer by layer as the specification says."""
        return cached_attention(segments, self.spec.causal, self.spec.block.windows)

    def prepare(self) -> None:
        """Fuse what layers do to context features, tabulate rotations, and pack the layers where passes are native."""
        self.rotary.tabulate(self._context_tokens, self.norm.weight)
        weight, bias, norms = self._context_weights()
        product, norm = Linear(weight.shape[1], weight.shape[0]), RmsNorm(1, self.spec.block.norm_eps)
        product.weight, norm.weight = nn.Parameter(weight, False), nn.Parameter(norms, False)
        product.bias = None if bias is None else nn.Parameter(bias, False)
        product.int8_group, product.keeps_weight = self.fc.int8_group, self.fc.keeps_weight
        product.prepare()
        norm.prepare()
        if self.couplings is None:
            self._native = pack(cast(list[Layer], list(self.layers)), self.norm, self.spec.block)
        # Kept out of the module tree: both repeat weights that the layers own.
        object.__setattr__(self, "_context", (product, norm))

    def _plain_context(self) -> tuple[Rowwise, Rowwise]:
        weight, bias, norms = self._context_weights()
        return partial(F.linear, weight=weight, bias=bias), partial(
            rms_norm, weight=norms, eps=self.spec.block.norm_eps
        )

    def _context_weights(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """Key and value rows of every layer's qkv, one under the other, their biases, and all key norms."""
        block = self.spec.block
        skip = block.num_heads * block.head_dim
        layers = cast(list[Layer], list(self.layers))
        biases = [layer.qkv.bias[skip:] for layer in layers if layer.qkv.bias is not None]
        norms = torch.stack([cast(HeadNorm, layer.head_norm).k for layer in layers])
        weight = torch.cat([layer.qkv.weight[skip:] for layer in layers]).to(norms.dtype)
        return weight, torch.cat(biases) if biases else None, norms.view(-1, 1, 1, block.head_dim)


def _couplings(spec: DrafterSpec) -> nn.ModuleList | None:
    """Those of all layers, in version 2."""
    if spec.v2 is None:
        return None
    return nn.ModuleList(Coupling(spec.block.hidden_size, spec.v2) for _ in range(spec.block.num_layers))
