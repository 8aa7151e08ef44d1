"""A Transformer on a flat batch of rows, in one call.

Embedding, pre-norm layers with RMSNorm, rotary positions, grouped-query attention and SwiGLU, the final norm, and where
it is asked the head: what `models.transformer` does in torch, its oracle; around attention and MLP the convolutions of
`models.convolution`. Sums have a fixed order, so a row's result is
the same to the bit whatever other rows, however many threads compute with it, and whether what it sees was cached, is
its chain, or one branch of its tree. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from paceline.native.arithmetic import EXACT, Arithmetic
from paceline.native.choice import extension, instructions
from paceline.native.drawing import Draws
from paceline.native.extension import array, plain, pool
from paceline.native.product import Product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Turn = tuple[NDArray[Any], NDArray[Any]]

__all__ = ["Batch", "LayerWeights", "Network", "Rows", "Sizes", "turn_of"]


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
        attention_base, mlp_base: [2, kernel_size, hidden], of the convolutions around these parts: of what goes in, and
            of what comes out.
        attention_projection, mlp_projection: [2 * kernel_size * kernel_groups, hidden], of what a row adds; of a part
            both or neither.
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
    attention_base: Tensor | None = None
    attention_projection: Tensor | None = None
    mlp_base: Tensor | None = None
    mlp_projection: Tensor | None = None


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
    """What the shape of the final norm does not say of a network.

    Attributes:
        kernel_size: rows that a convolution sees, the row's own and those before it in its sequence; 0: there is none.
        kernel_groups: of channels; a row adds one number to the kernels of all channels of a group.
    """

    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    kernel_size: int = 0
    kernel_groups: int = 0


class Batch(NamedTuple):
    """What a pass is about.

    Attributes:
        tokens: int64 [rows].
        places: int64 [rows], where in `turn` the angles of each row are.
        turn: of all places, see `turn_of`.
        rows: the sequences, in the order of their rows.
        causal: for each layer, whether a row sees only itself and earlier rows.
        windows: for each layer, its sliding window in tokens or None.
        taps: layers whose output is wanted; the last one's after the final norm.
    """

    tokens: Tensor
    places: Tensor
    turn: Turn
    rows: Sequence[Rows]
    causal: Sequence[bool]
    windows: Sequence[int | None]
    taps: Sequence[int] = ()


class Network:
    """Embedding, layers and final norm.

    Args:
        sizes: of all layers.
        layers: their tensors, one after the other; each is copied before the next one is asked for.
        norm: weight of the final norm, [hidden].
        embedding: [tokens, hidden], float32 or bfloat16; it is not copied.
        scale: what the embedding is multiplied with.
        arithmetic: what products round.
    """

    def __init__(
        self,
        sizes: Sizes,
        layers: Iterable[LayerWeights],
        norm: Tensor,
        embedding: Tensor,
        scale: float = 1.0,
        arithmetic: Arithmetic = EXACT,
    ) -> None:
        native = extension()
        self._native = native.Network(
            pool(),
            instructions(),
            (*sizes[1:5], sizes.kernel_size, sizes.kernel_groups),
            sizes.eps,
            plain(norm),
            sizes.layers,
            arithmetic,
            _bits(embedding),
            scale,
        )
        self._hidden = len(norm)
        for layer in layers:
            self._native.add(native.Layer(*map(plain, layer)))
            del layer  # before the next one is made
            native.trim()  # else pieces of all that was converted are held beside what was packed

    @property
    def nbytes(self) -> int:
        """What one pass reads of the layers' weights."""
        read: int = self._native.nbytes
        return read

    def states(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Hidden states [rows, hidden] after the final norm, and the taps side by side, [rows, taps * hidden].

        Raises:
            TypeError, ValueError: something has another type or shape, or an id or a place is not there.
        """
        given, features = self._given(batch)
        hidden = torch.empty(len(batch.tokens), self._hidden)
        self._native.states(given, hidden.numpy())
        return hidden, features

    def scores(self, batch: Batch, head: Product, rows: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """What `head` makes of the hidden states of some rows, rising, [rows, outputs]; and the taps of all rows.

        Raises:
            TypeError, ValueError: as `states`.
        """
        given, features = self._given(batch)
        scores = torch.empty(len(rows), head.outputs)
        self._native.score(given, head.packed, rows, scores.numpy(), None)
        return scores, features

    def states_and_scores(self, batch: Batch, head: Product, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Of some rows, rising, hidden states [rows, hidden] as of `states`, and their scores; no taps.

        Raises:
            TypeError, ValueError: as `states`.
        """
        given, _ = self._given(batch)
        hidden, scores = torch.empty(len(rows), self._hidden), torch.empty(len(rows), head.outputs)
        self._native.score(given, head.packed, rows, scores.numpy(), hidden.numpy())
        return hidden, scores

    def chosen(self, batch: Batch, head: Product, rows: Sequence[int], draws: Draws) -> tuple[list[int], Tensor | None]:
        """As `scores`, but of each row only the choice of `drawing.drawn`."""
        given, features = self._given(batch)
        ids: list[int] = self._native.choose(given, head.packed, rows, draws)
        return ids, features

    def continued(
        self, batch: Batch, head: Product, draws: Draws, ends: Sequence[int]
    ) -> tuple[list[int], Tensor | None]:
        """`chosen` of all rows, pass by pass: what is drawn after the one row of a sequence is its next row.

        Args:
            draws: of the rows of the first pass, then of the second, …
            ends: no pass follows one after which every sequence has drawn one of them, or one with unsound scores.

        Returns:
            What was drawn after the rows of each pass, pass by pass, and the taps of all.

        Raises:
            TypeError, ValueError: as `states`; a sequence has more than one row, or no room for those of all passes.
        """
        given, features = self._given(batch, len(draws.keys))
        ids: list[int] = self._native.go_on(given, head.packed, draws, ends)
        return ids, None if features is None else features[: len(ids)]

    def ranked(
        self, batch: Batch, head: Product, rows: Sequence[int], draws: Draws, width: int
    ) -> tuple[Tensor, Tensor]:
        """As `scores`, but of each row only what `drawing.ranked` makes of them: ids and log probabilities.

        The ids of a row whose greatest is no number, or infinite, are -1.
        """
        given, _ = self._given(batch)
        ids = torch.empty(len(rows), width, dtype=torch.int64)
        log_probs = torch.empty(len(rows), width)
        self._native.rank(given, head.packed, rows, draws, ids.numpy(), log_probs.numpy())
        return ids, log_probs

    def _given(self, batch: Batch, tapped_rows: int | None = None) -> tuple[Any, Tensor | None]:
        tokens, places, turn, rows, causal, windows, taps = batch
        features = torch.empty(tapped_rows or len(tokens), len(taps) * self._hidden) if taps else None
        own = [(each.cache.numpy(), *each[1:]) for each in rows]
        tapped = None if features is None else features.numpy()
        return (array(tokens), array(places), *turn, own, causal, windows, taps, tapped), features


def turn_of(angles: tuple[Tensor, Tensor]) -> Turn:
    """cos and signed sin, [places, 1, head_dim] each, as a pass takes them."""
    cos, sin = angles
    return array(cos.flatten(1)), array(sin.flatten(1))


def _bits(table: Tensor) -> NDArray[Any]:
    """NumPy has no bfloat16."""
    return array(table.detach().view(torch.int16) if table.dtype == torch.bfloat16 else table.detach())
