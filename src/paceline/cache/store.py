"""K/V of one sequence: append, truncate, compact, view.

Rows are written behind the committed ones by `append` and become part of the sequence only with `advance`, so a
draft block that is never advanced leaves no trace. Keeps every row, also those a sliding window no longer sees: a
rollback is therefore always possible. Knows nothing of models, positions or masks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Extension", "SequenceCache"]


class Extension(NamedTuple):
    """The rows of one forward pass: all views are made at once, since making one costs as much as writing a row.

    Attributes:
        fresh: where the new keys and values go, [kv_heads, rows, head_dim], keys of layer 0, its values, and so on.
        seen: the same with all rows before them, [kv_heads, length + rows, head_dim].
    """

    fresh: tuple[Tensor, ...]
    seen: tuple[Tensor, ...]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write rows [rows, kv_heads, head_dim] of one layer; its keys and values with the new rows, as views."""
        first = 2 * layer
        self.fresh[first].copy_(keys.transpose(0, 1))
        self.fresh[first + 1].copy_(values.transpose(0, 1))
        return self.seen[first], self.seen[first + 1]


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
        return self.extension(keys.shape[0]).write(layer, keys, values)

    def room(self, rows: int) -> Tensor:
        """All rows, [layers, 2, kv_heads, capacity, head_dim], with room for `rows` more behind the committed ones."""
        end = self.length + rows
        if end > self._rows.shape[3]:
            self._grow(end)
        return self._rows

    def extension(self, rows: int) -> Extension:
        """Room for `rows` rows behind the committed ones, in all layers."""
        end = self.length + rows
        flat = self.room(rows).flatten(0, 1)
        return Extension(flat[:, :, self.length : end].unbind(), flat[:, :, :end].unbind())

    def extend(self, keys: Tensor, values: Tensor) -> None:
        """Commit rows [layers, rows, kv_heads, head_dim] of all layers at once."""
        extension = self.extension(keys.shape[1])
        for layer, (own_keys, own_values) in enumerate(zip(keys, values, strict=True)):
            extension.write(layer, own_keys, own_values)
        self.advance(keys.shape[1])

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
        keys, values = self._rows[layer, :, :, : self.length].unbind()
        return keys, values

    def _grow(self, needed: int) -> None:
        layers, two, heads, capacity, dim = self._rows.shape
        rows = self._rows.new_empty((layers, two, heads, max(needed, 2 * capacity), dim))
        rows[..., :capacity, :] = self._rows
        self._rows = rows
