"""K/V of one sequence: append, truncate, compact, view.

Rows are written behind the committed ones by `append` and become part of the sequence only with `advance`, so a
draft block that is never advanced leaves no trace. Keeps every row, also those a sliding window no longer sees: a
rollback is therefore always possible. Knows nothing of models, positions or masks.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SequenceCache"]


class SequenceCache:
    """Keys and values of one sequence in all layers of one model.

    Args:
        layers, kv_heads, head_dim: shape of the model.
        capacity: rows to reserve; the cache grows by doubling beyond it.
    """

    def __init__(
        self, layers: int, kv_heads: int, head_dim: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._rows = torch.empty((layers, 2, kv_heads, capacity, head_dim), dtype=dtype, device=device)
        self._keys, self._values = self._views()
        self.length = 0

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the rows."""
        return self._rows.dtype

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        return self._rows.device

    @property
    def nbytes(self) -> int:
        """Reserved memory in bytes."""
        return self._rows.nbytes

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write rows [rows, kv_heads, head_dim] behind the committed ones; see `advance`.

        Returns:
            Keys and values [kv_heads, length + rows, head_dim] of this layer, the new rows included, as views.
        """
        end = self.length + keys.shape[0]
        if end > self._rows.shape[3]:
            self._grow(end)
        self._keys[layer][:, self.length : end] = keys.transpose(0, 1)
        self._values[layer][:, self.length : end] = values.transpose(0, 1)
        return self._keys[layer][:, :end], self._values[layer][:, :end]

    def advance(self, rows: int) -> None:
        """Commit `rows` rows that `append` wrote in every layer; safe to call with 0."""
        assert 0 <= self.length + rows <= self._rows.shape[3], "advance over rows that were never appended"
        self.length += rows

    def truncate(self, length: int) -> None:
        """Forget all rows from `length` on; safe to call with the current length."""
        assert 0 <= length <= self.length, f"cannot truncate {self.length} rows to {length}"
        self.length = length

    def compact(self, start: int, path: list[int]) -> None:
        """Keep of the rows from `start` on only those at start + path[0], start + path[1], …, in this order.

        `path` is strictly increasing: the winning path through a tree of appended rows.
        """
        end = start + len(path)
        assert start + (path[-1] if path else -1) < self._rows.shape[3], "compact over rows that were never appended"
        if path != list(range(len(path))):
            chosen = torch.tensor(path, device=self._rows.device) + start
            self._rows[..., start:end, :] = self._rows.index_select(3, chosen)
        self.length = end

    def view(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [kv_heads, length, head_dim] of the committed rows, as views."""
        return self._keys[layer][:, : self.length], self._values[layer][:, : self.length]

    def _views(self) -> tuple[list[Tensor], list[Tensor]]:
        return [layer[0] for layer in self._rows], [layer[1] for layer in self._rows]

    def _grow(self, needed: int) -> None:
        layers, two, heads, capacity, dim = self._rows.shape
        rows = self._rows.new_empty((layers, two, heads, max(needed, 2 * capacity), dim))
        rows[..., :capacity, :] = self._rows
        self._rows = rows
        self._keys, self._values = self._views()
