"""Keys and values of all layers of a drafter, of features, in one call: `models.context` in torch is the oracle.

A row's result depends on no other row, nor on how many threads compute. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from paceline.native.arithmetic import EXACT, Arithmetic
from paceline.native.choice import extension, instructions
from paceline.native.extension import array, plain, pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Context", "ContextWeights"]


class ContextWeights(NamedTuple):
    """float32 on the CPU.

    Attributes:
        fc: [hidden, inputs], then its bias.
        norm: [hidden].
        key_value: [layers * 2 * kv_heads * head_dim, hidden], of each layer keys and then values; then its bias.
        key_norms: [layers, head_dim].
    """

    fc: Tensor
    fc_bias: Tensor | None
    norm: Tensor
    key_value: Tensor
    key_value_bias: Tensor | None
    key_norms: Tensor


class Context:
    """Packed weights of it; they are copied.

    Args:
        sizes: layers, key heads, and the constant of all norms.
        turn: angles of all positions, see `turn_of`; not copied.
        arithmetic: what products round.
    """

    def __init__(
        self,
        sizes: tuple[int, int, float],
        weights: ContextWeights,
        turn: tuple[NDArray[Any], NDArray[Any]],
        arithmetic: Arithmetic = EXACT,
    ) -> None:
        self._native = extension().Context(pool(), instructions(), *sizes, *map(plain, weights), *turn, arithmetic)

    @property
    def nbytes(self) -> int:
        """What a call reads of the weights."""
        read: int = self._native.nbytes
        return read

    def extend(self, unread: Sequence[tuple[Sequence[Tensor], Tensor, int]]) -> None:
        """Write the next rows of sequences to their caches.

        Args:
            unread: of each sequence features [rows, inputs], part by part, its cache
                [layers, 2, kv_heads, capacity, head_dim], and how many rows that holds.

        Raises:
            TypeError, ValueError: something has another type or shape, or there is no room.
        """
        self._native.extend([([array(part) for part in parts], cache.numpy(), past) for parts, cache, past in unread])
