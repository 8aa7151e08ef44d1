"""The one Transformer: Llama, Mistral, Qwen2 and Qwen3 are the same layers with other switches in `Spec`.

Pre-norm layers with RMSNorm, rotary positions, grouped-query attention and SwiGLU. Rows are flat (see
`models.attention`); the Transformer does not know which sequence a row belongs to, nor what is cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paceline.models.attention import Attend
from paceline.models.linear import Linear
from paceline.models.native_layers import Asked, Ends, NativeLayers, pack
from paceline.models.norm import HeadNorm, RmsNorm
from paceline.models.rotary import Rotary, Rotation, rotate
from paceline.models.spec import Spec

if TYPE_CHECKING:
    from paceline.native import Arithmetic, Draws

__all__ = ["Layer", "Output", "Scored", "Transformer", "initialize", "prepare"]


class Layer(nn.Module):
    """One decoder layer. `index` names it to `attend`, nothing else depends on it.

    Where `recomputed` is set, a backward pass finds nothing of the layer but its input, and computes it again.
    """

    def __init__(self, spec: Spec, index: int) -> None:
        super().__init__()
        heads, kv_heads, dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        self.index = index
        self.recomputed = False
        self.head_dim = dim
        self.split = (heads + kv_heads, kv_heads)
        self.heads = (heads, kv_heads)
        self.attention_norm = RmsNorm(spec.hidden_size, spec.norm_eps)
        self.qkv = Linear(spec.hidden_size, (heads + 2 * kv_heads) * dim, bias=spec.qkv_bias)
        self.head_norm = HeadNorm(dim, heads, kv_heads, spec.norm_eps) if spec.qk_norm else None
        self.out = Linear(heads * dim, spec.hidden_size, bias=spec.out_bias)
        self.mlp_norm = RmsNorm(spec.hidden_size, spec.norm_eps)
        self.gate_up = Linear(spec.hidden_size, 2 * spec.intermediate_size, bias=spec.mlp_bias)
        self.down = Linear(spec.intermediate_size, spec.hidden_size, bias=spec.mlp_bias)

    def __call__(self, x: Tensor, turn: Rotation, attend: Attend) -> Tensor:
        """`forward`, without the search for hooks."""
        if not self.recomputed:
            return self.forward(x, turn, attend)
        again: Tensor = checkpoint(self.forward, x, turn, attend, use_reentrant=False)
        return again

    def forward(self, x: Tensor, turn: Rotation, attend: Attend) -> Tensor:
        """[rows, hidden] -> [rows, hidden]; `turn` holds the rows' rotary angles."""
        queries, keys, values = self.project(self.attention_norm(x), turn)
        x = x + self.out(attend(self.index, queries, keys, values))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        down: Tensor = self.down(F.silu(gate) * up)
        return x + down

    def linears(self) -> tuple[Linear, ...]:
        """Its products."""
        return self.qkv, self.out, self.gate_up, self.down

    def project(self, x: Tensor, turn: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Normed, rotated queries and keys, and values: each [rows, its heads, head_dim]."""
        projected = self.qkv(x).view(x.shape[0], -1, self.head_dim)
        # torch.split_with_sizes is what Tensor.split calls, without a third of the time of a small kernel around it.
        both, values = torch.split_with_sizes(projected, self.split, 1)
        if self.head_norm is not None:
            both = self.head_norm(both)
        queries, keys = torch.split_with_sizes(rotate(both, turn), self.heads, 1)
        return queries, keys, values


class Output(NamedTuple):
    """`hidden` [rows, hidden] after the final norm; `features` [rows, taps * hidden], tapped layers side by side."""

    hidden: Tensor
    features: Tensor | None


class Scored(NamedTuple):
    """`logits` [rows, vocab]; `features` as in `Output`."""

    logits: Tensor
    features: Tensor | None


class Transformer(nn.Module):
    """Embedding, layers, final norm and head of one checkpoint.

    A tied head is the embedding's own weight. Norms, attention and what layers hand on may have another precision than
    the weights of embedding and products (`dtype`, see `models.precision`). Weights start at N(0, 0.02), as for
    training; loading replaces all.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.embed = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(Layer(spec, index) for index in range(spec.num_layers))
        self.norm = RmsNorm(spec.hidden_size, spec.norm_eps)
        self.head = Linear(spec.hidden_size, spec.vocab_size)
        self.rotary = Rotary(spec.rope, spec.head_dim)
        self._native: NativeLayers | None = None
        initialize(self)
        if spec.tied_head:
            self.head.weight = cast(nn.Parameter, self.embed.weight)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of attention, of its keys and values, of the norms and of all that a pass gives."""
        return self.norm.weight.dtype

    @property
    def product_dtype(self) -> torch.dtype:
        """Precision of the products' weights, whether they are still held or were packed."""
        layer = cast(Layer, self.layers[0])
        return layer.qkv.dtype

    @property
    def rounding(self) -> Arithmetic:
        """What the products round."""
        layer = cast(Layer, self.layers[0])
        return layer.qkv.rounding

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend, taps: Sequence[int] = ()) -> Output:
        """Run a flat batch.

        Args:
            tokens, positions: [rows], ids and absolute positions.
            attend: what the rows see.
            taps: layers whose output becomes features; the last layer's is taken after the final norm.
        """
        found = None if self._native is None else self._native.states(Asked(tokens, positions, attend, taps))
        if found is not None:
            return Output(*found)
        x = self.embed(tokens).to(self.dtype)
        turn = self.rotary(positions, x.dtype)
        tapped: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            x = layer(x, turn, attend)
            if index in taps:
                tapped[index] = x
        hidden = self.norm(x)
        if self.spec.num_layers - 1 in taps:
            tapped[self.spec.num_layers - 1] = hidden
        return Output(hidden, torch.cat([tapped[tap] for tap in taps], -1) if taps else None)

    def read(self, tokens: Tensor, positions: Tensor, attend: Attend, taps: Sequence[int] = ()) -> Scored:
        """`forward`, and the head on all rows: in one call where passes are native."""
        found = None if self._native is None else self._native.scores(Asked(tokens, positions, attend, taps))
        if found is not None:
            return Scored(*found)
        output: Output = self(tokens, positions, attend, taps)
        return Scored(self.head(output.hidden), output.features)

    def choose(
        self, tokens: Tensor, positions: Tensor, attend: Attend, draws: Draws, taps: Sequence[int] = ()
    ) -> tuple[list[int], Tensor | None] | None:
        """The token drawn after every row, -1 where scores are unsound, and features; None where passes are not native.

        As `read`, and then `native.drawn` of the logits, in one call.
        """
        return None if self._native is None else self._native.chosen(Asked(tokens, positions, attend, taps), draws)

    def go_on(
        self,
        tokens: Tensor,
        positions: Tensor,
        attend: Attend,
        draws: Draws,
        ends: Sequence[int],
        taps: Sequence[int] = (),
    ) -> tuple[list[int], Tensor | None] | None:
        """`choose`, pass by pass, each sequence's one row being what was drawn before; None where `choose` is.

        Args:
            draws: of the rows of the first pass, then of the second, …
            ends: no pass follows one after which every sequence has drawn one of these ids, or one that is unsound.

        Returns:
            Ids and features of all passes, end to end.
        """
        asked = Asked(tokens, positions, attend, taps)
        return None if self._native is None else self._native.continued(asked, draws, ends)

    @property
    def packed_bytes(self) -> int:
        """What a native pass reads of the layers' weights; 0 where torch computes it."""
        return 0 if self._native is None else self._native.read_bytes

    def prepare(self) -> None:
        """Tabulate the rotations, and pack the layers where passes are native."""
        self.rotary.tabulate(self.spec.context_tokens, self.norm.weight)
        ends = Ends(self.embed, self.norm, self.rotary, self.head)
        self._native = pack(cast(list[Layer], list(self.layers)), ends, self.spec)


def initialize(module: nn.Module) -> None:
    """Draw every matrix below `module` from N(0, 0.02)."""
    for child in module.modules():
        if isinstance(child, Linear | nn.Embedding):
            nn.init.normal_(child.weight, std=0.02)


def prepare(module: nn.Module) -> None:
    """Freeze `module` for inference and switch it to the fast forms of this machine.

    From the outside in, as a module may pack what its children hold, and they then give it back. Children and
    parameters also become plain attributes: the search of nn.Module for them takes a twelfth of the time of a one-row
    pass of the bundled model.
    """
    module.eval().requires_grad_(False)
    for child in list(module.modules()):
        switch = getattr(child, "prepare", None)
        if switch is not None:
            switch()
        vars(child).update(child._modules | child._parameters)
