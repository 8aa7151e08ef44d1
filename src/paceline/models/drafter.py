"""The DFlash drafter, v1: fills a whole block of masked tokens in one pass (arXiv 2602.06036).

Qwen3 layers between the embedding and the head of the frozen target. The target's hidden states at the tapped layers
become context features, once per committed token; every draft layer sees them as keys and values in front of those of
the block. Block input is [anchor, MASK, …], slot j predicts the token at anchor + j. The drafter does not know how
proposals are chosen or judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.models.attention import Attend, Segment, cached_attention, inverse_frequencies, rotate, rotation
from paceline.models.linear import Linear
from paceline.models.norm import HeadNorm, RmsNorm
from paceline.models.spec import DrafterSpec
from paceline.models.transformer import Layer, Transformer, initialize

__all__ = ["Drafter"]


class Drafter(nn.Module):
    """Draft layers that borrow the embedding and the head of `target`; both stay the target's own objects."""

    def __init__(self, spec: DrafterSpec, target: Transformer) -> None:
        super().__init__()
        block = spec.block
        self.spec = spec
        self.fc = Linear(len(spec.target_layer_ids) * block.hidden_size, block.hidden_size)
        self.hidden_norm = RmsNorm(block.hidden_size, block.norm_eps)
        self.layers = nn.ModuleList(Layer(block, index) for index in range(block.num_layers))
        self.norm = RmsNorm(block.hidden_size, block.norm_eps)
        self.frequencies = inverse_frequencies(block.rope, block.head_dim)
        self._context: Linear | None = None
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
            features: [rows, taps * hidden], the tapped layers of the target side by side.
            positions: [rows], absolute.

        Returns:
            Normed, rotated keys and values, each [layers, rows, kv_heads, head_dim].
        """
        block = self.spec.block
        hidden = self.hidden_norm(self.fc(features))
        fused = self._context
        projected = F.linear(hidden, *self._context_parameters()) if fused is None else fused(hidden)
        shaped = projected.view(-1, block.num_layers, 2, block.num_kv_heads, block.head_dim)
        keys, values = shaped.permute(2, 1, 0, 3, 4).unbind()
        cos, sin = rotation(positions, self.frequencies, hidden.dtype)
        norms = [cast(HeadNorm, layer.head_norm) for layer in self._layers()]
        rotated = [rotate(norm.keys(rows), (cos, sin)) for norm, rows in zip(norms, keys, strict=True)]
        return torch.stack(rotated), values

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states [rows, hidden] of blocks, after the final norm.

        Args:
            tokens: [rows], anchors and mask tokens.
            positions: [rows], absolute.
            attend: lets each row see its context rows and its own block.
        """
        x = self.embed(tokens)
        if self.spec.input_embedding_scale != 1.0:
            x = x * self.spec.input_embedding_scale
        turn = rotation(positions, self.frequencies, x.dtype)
        for layer in self.layers:
            x = layer(x, turn, attend)
        hidden: Tensor = self.norm(x)
        return hidden

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
        """Fuse the context projections of all layers into one product."""
        weight, bias = self._context_parameters()
        fused = Linear(weight.shape[1], weight.shape[0])
        fused.weight = nn.Parameter(weight, requires_grad=False)
        fused.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        fused.prepare()
        # Kept out of the module tree: it repeats weights that the layers own.
        object.__setattr__(self, "_context", fused)

    def _context_parameters(self) -> tuple[Tensor, Tensor | None]:
        """Key and value rows of every layer's qkv, one under the other: weight and bias of one product."""
        skip = self.spec.block.num_heads * self.spec.block.head_dim
        products = [layer.qkv for layer in self._layers()]
        biases = [product.bias[skip:] for product in products if product.bias is not None]
        weight = torch.cat([product.weight[skip:] for product in products])
        return weight, torch.cat(biases) if biases else None

    def _layers(self) -> list[Layer]:
        return cast(list[Layer], list(self.layers))
