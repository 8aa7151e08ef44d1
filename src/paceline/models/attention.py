"""Attention of a flat batch over the caches of its sequences.

A batch is flat: the rows of all sequences one after the other, no padding. A layer calls `Attend`, which appends the
new keys and values to each sequence's cache and lets its queries see them; so the layer itself knows nothing of
caches, batches or masks. Shapes: queries [rows, heads, head_dim], keys and values [rows, kv_heads, head_dim].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.cache.store import Extension, SequenceCache
from paceline.models.masks import Block, blocks, tree_block

__all__ = ["Attend", "CachedAttention", "Segment", "cached_attention", "dense_attention"]

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries, keys, values) -> attention output [rows, heads * head_dim]."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one sequence in a flat batch: `rows` of them, behind what `cache` holds.

    Attributes:
        tree: for each row, the index of the row before it, -1 for none: it sees these, and what they see. None is one
            row behind the other.
    """

    rows: int
    cache: SequenceCache
    tree: tuple[int, ...] | None = None


class CachedAttention:
    """Attention of a flat batch, each sequence over its own cache and its own new rows: an `Attend`.

    Beyond its output it takes memory for one block of rows at a time, and so grows with a length, not with its square.

    Attributes:
        segments: the sequences in the order of their rows.
        causal: for each layer, whether a new row sees only itself and earlier rows; true where there are trees.
        windows: for each layer, its sliding window in tokens or None.
    """

    def __init__(self, segments: Sequence[Segment], causal: Sequence[bool], windows: Sequence[int | None]) -> None:
        self.segments, self.causal, self.windows = segments, causal, windows
        self._kinds = list(zip(causal, windows, strict=True))
        self._counts = [segment.rows for segment in segments]
        self._parts: dict[tuple[int, tuple[bool, int | None]], list[Block]] = {}

    @cached_property
    def _extensions(self) -> list[Extension]:
        return [segment.cache.extension(segment.rows) for segment in self.segments]

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Append the keys and values, and attend."""
        if len(self.segments) == 1:
            return self._attend_segment(0, layer, queries, keys, values)
        rows = zip(*(torch.split(x, self._counts) for x in (queries, keys, values)), strict=True)
        return torch.cat([self._attend_segment(index, layer, *own) for index, own in enumerate(rows)])

    def _attend_segment(self, index: int, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        seen_keys, seen_values = self._extensions[index].write(layer, keys, values)
        return _attend(seen_keys, seen_values, queries, self._blocks(index, self._kinds[layer]))

    def _blocks(self, index: int, kind: tuple[bool, int | None]) -> list[Block]:
        """Masks are made once in a pass, and not by every layer."""
        if (index, kind) not in self._parts:
            segment = self.segments[index]
            rows, store, tree = segment.rows, segment.cache, segment.tree
            if tree is not None:
                found = tree_block(tree, store.length, kind[1], store.dtype, store.device)
            else:
                found = blocks(rows, store.length, *kind, store.dtype, store.device)
            self._parts[index, kind] = found
        return self._parts[index, kind]


def cached_attention(segments: Sequence[Segment], causal: Sequence[bool], windows: Sequence[int | None]) -> Attend:
    """`CachedAttention` of these segments: see there."""
    return CachedAttention(segments, causal, windows)


def _attend(keys: Tensor, values: Tensor, queries: Tensor, parts: list[Block]) -> Tensor:
    """Attention of one sequence, block by block: shapes as in `_attend_one`."""
    if len(parts) == 1:
        _, seen, mask = parts[0]
        if seen.start > 0:
            keys, values = keys[:, seen], values[:, seen]
        return _attend_one(keys, values, queries, mask)
    output = queries.new_empty(len(queries), queries[0].numel())
    for rows, seen, mask in parts:
        output[rows] = _attend_one(keys[:, seen], values[:, seen], queries[rows], mask)
    return output


def _attend_one(keys: Tensor, values: Tensor, queries: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of one sequence: queries [rows, heads, head_dim] over keys, values [kv_heads, length, head_dim].

    A single row goes as two products over the groups of query heads that share a key head: half the time of the
    fused kernel, which is faster from two rows on.
    """
    rows, heads, dim = queries.shape
    kv_heads = keys.shape[0]
    if rows == 1 and mask is None:
        scores = torch.bmm(queries.view(kv_heads, -1, dim), keys.mT).mul_(dim**-0.5)
        return torch.bmm(scores.softmax(-1), values).view(1, heads * dim)
    q, k, v = (x.unsqueeze(0) for x in (queries.transpose(0, 1), keys, values))
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=heads != kv_heads)
    return output.squeeze(0).transpose(0, 1).flatten(1)


def dense_attention(batch: int, windows: Sequence[int | None], causal: bool = True) -> Attend:
    """Attention without a cache over `batch` sequences of equal length, for training."""
    parts = cache(blocks)

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        length, window = queries.shape[0] // batch, windows[layer]
        q, k, v = (x.view(batch, -1, *x.shape[1:]).transpose(1, 2) for x in (queries, keys, values))
        fused = partial(F.scaled_dot_product_attention, enable_gqa=queries.shape[1] != keys.shape[1])
        if window is None or length <= window:
            output = fused(q, k, v, is_causal=causal)
        else:
            own = parts(length, 0, causal, window, queries.dtype, queries.device)
            pieces = [fused(q[:, :, rows], k[:, :, seen], v[:, :, seen], attn_mask=mask) for rows, seen, mask in own]
            output = torch.cat(pieces, 2)
        return output.transpose(1, 2).flatten(2).flatten(0, 1)

    return attend
