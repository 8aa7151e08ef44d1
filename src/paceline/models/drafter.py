"""The DFlash drafter, versions 1 and 2: fills a whole block of masked tokens in one pass (arXiv 2602.06036).

Qwen3 layers between the embedding and the head of the frozen target. The target's hidden states at the tapped layers
become context features, once per committed token; every draft layer sees them as keys and values in front of those of
the block. Block input is [anchor, MASK, …], slot j predicts the token at anchor + j. In version 2 slots also know their
left neighbours: `models.convolution` inside the layers, `models.selector` behind them. The drafter does not know how
proposals are chosen or judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from paceline.models.attention import Attend, Segment, cached_attention
from paceline.models.context import Context
from paceline.models.convolution import Coupling, left_neighbours
from paceline.models.drafter_spec import DrafterSpec
from paceline.models.linear import Linear
from paceline.models.native_layers import Asked, Ends, NativeLayers, pack
from paceline.models.norm import RmsNorm
from paceline.models.rotary import Rotary, Rotation
from paceline.models.selector import CandidateSelector
from paceline.models.transformer import Layer, Transformer, initialize

if TYPE_CHECKING:
    from paceline.native import Draws

__all__ = ["Drafter"]


class Drafter(nn.Module):
    """Draft layers that borrow the embedding and the head of `target`; both stay the target's own objects.

    Attributes:
        context: makes keys and values of the target's features.
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
        layers = cast(list[Layer], list(self.layers))
        self.context = Context(self.fc, self.hidden_norm, layers, block, self.rotary)
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
        found = None if self._native is None else self._native.states(Asked(tokens, positions, attend))
        if found is not None:
            return found[0]
        x = self.embed(tokens).to(self.norm.weight.dtype)
        if self.spec.input_embedding_scale != 1.0:
            x = x * self.spec.input_embedding_scale
        turn = self.rotary(positions, x.dtype)
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

    def read(
        self, tokens: Tensor, positions: Tensor, attend: Attend, block_rows: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Of every slot, that is of all rows but the first of each block: hidden states, and logits [slots, vocab].

        As `forward` and `logits`, in one call where passes are native.
        """
        slots = _slots(block_rows)
        asked = Asked(tokens, positions, attend, rows=slots)
        found = None if self._native is None else self._native.states_and_scores(asked)
        if found is not None:
            return found[0], self._scaled(found[1])
        hidden: Tensor = self(tokens, positions, attend, block_rows)[slots]
        return hidden, self.logits(hidden)

    def choose(
        self, tokens: Tensor, positions: Tensor, attend: Attend, block_rows: Sequence[int], draws: Draws
    ) -> list[int] | None:
        """The token drawn in every slot, -1 where scores are unsound; None where that takes more than a native call.

        As `read`, and then `native.drawn` of the logits.
        """
        if self._native is None or not self._unscaled:
            return None
        found = self._native.chosen(Asked(tokens, positions, attend, rows=_slots(block_rows)), draws)
        return None if found is None else found[0]

    def rank(
        self, tokens: Tensor, positions: Tensor, attend: Attend, block_rows: Sequence[int], draws: Draws, width: int
    ) -> tuple[Tensor, Tensor] | None:
        """The same with `native.ranked`: ids, -1 where scores are unsound, and log probabilities, [slots, width]."""
        if self._native is None or not self._unscaled:
            return None
        return self._native.ranked(Asked(tokens, positions, attend, rows=_slots(block_rows)), draws, width)

    def logits(self, hidden: Tensor) -> Tensor:
        """The target's head on [rows, hidden], then the multiplier and the soft cap c tanh(x / c)."""
        return self._scaled(self.head(hidden))

    @property
    def _unscaled(self) -> bool:
        return self.spec.output_multiplier == 1.0 and self.spec.final_logit_softcapping is None

    def _scaled(self, logits: Tensor) -> Tensor:
        if self.spec.output_multiplier != 1.0:
            logits = logits * self.spec.output_multiplier
        cap = self.spec.final_logit_softcapping
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def attention(self, segments: Sequence[Segment]) -> Attend:
        """Attention of blocks over what their caches hold, layer by layer as the specification says."""
        return cached_attention(segments, self.spec.causal, self.spec.block.windows)

    def prepare(self) -> None:
        """Tabulate rotations, fuse what layers do to features, and pack the layers where passes are native."""
        self.rotary.tabulate(self._context_tokens, self.norm.weight)
        self.context.prepare()
        ends = Ends(self.embed, self.norm, self.rotary, self.head, self.spec.input_embedding_scale)
        couplings = None if self.couplings is None else cast(list[Coupling], list(self.couplings))
        self._native = pack(cast(list[Layer], list(self.layers)), ends, self.spec.block, couplings)


def _couplings(spec: DrafterSpec) -> nn.ModuleList | None:
    """Those of all layers, in version 2."""
    if spec.v2 is None:
        return None
    return nn.ModuleList(Coupling(spec.block.hidden_size, spec.v2) for _ in range(spec.block.num_layers))


def _slots(block_rows: Sequence[int]) -> list[int]:
    """The rows of a batch but the first of each block."""
    ends = accumulate(block_rows)
    return [row for end, rows in zip(ends, block_rows, strict=True) for row in range(end - rows + 1, end)]
