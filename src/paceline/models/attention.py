"""Masks, and attention of a flat batch over the caches of its sequences.

A batch is flat: the rows of all sequences one after the other, no padding. A layer calls `Attend`, which appends the
new keys and values to each sequence's cache and lets its queries see them; so the layer itself knows nothing of
caches, batches or masks. Shapes: queries [rows, heads, head_dim], keys and values [rows, kv_heads, head_dim].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.cache.store import SequenceCache

__all__ = ["Attend", "Segment", "cached_attention", "dense_attention"]

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries, keys, values) -> attention output [rows, heads * head_dim]."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one sequence in a flat batch: `rows` of them, behind what `cache` holds."""

    rows: int
    cache: SequenceCache


def visible(rows: int, past: int, causal: bool, window: int | None) -> Tensor | None:
    """Which of past + rows keys each of the last `rows` positions sees, bool [rows, past + rows]; None is all.

            keys  0 1 2 3 4 5
    query 3       x x x x . .      causal, past 3, rows 3
    query 4       x x x x x .
    query 5       x x x x x x
    """
    if (rows == 1 or not causal) and (window is None or past + rows <= window):
        return None
    distance = torch.arange(past, past + rows).unsqueeze(1) - torch.arange(past + rows).unsqueeze(0)
    seen = torch.ones_like(distance, dtype=torch.bool)
    if causal:
        seen &= distance >= 0
    if window is not None:
        seen &= distance < window
        seen &= distance > -window
    return None if bool(seen.all()) else seen


def cached_attention(segments: Sequence[Segment], causal: Sequence[bool], windows: Sequence[int | None]) -> Attend:
    """Attention of a flat batch, each sequence over its own cache and its own new rows.

    Args:
        segments: the sequences in the order of their rows.
        causal: for each layer, whether a new row sees only itself and earlier rows.
        windows: for each layer, its sliding window in tokens or None.
    """
    kinds = list(zip(causal, windows, strict=True))
    masks = [{kind: _additive(segment, *kind) for kind in set(kinds)} for segment in segments]
    extensions = [segment.cache.extension(segment.rows) for segment in segments]
    if len(segments) == 1:

        def attend_alone(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            seen_keys, seen_values = extensions[0].write(layer, keys, values)
            return _attend_one(seen_keys, seen_values, queries, masks[0][kinds[layer]])

        return attend_alone
    counts = [segment.rows for segment in segments]

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rows = zip(*(torch.split(x, counts) for x in (queries, keys, values)), strict=True)
        outputs = []
        for extension, mask, (own_queries, own_keys, own_values) in zip(extensions, masks, rows, strict=True):
            seen_keys, seen_values = extension.write(layer, own_keys, own_values)
            outputs.append(_attend_one(seen_keys, seen_values, own_queries, mask[kinds[layer]]))
        return torch.cat(outputs)

    return attend


def _additive(segment: Segment, causal: bool, window: int | None) -> Tensor | None:
    """`visible` as what is added to the scores, made once per forward pass instead of in every layer."""
    rows, past = segment.rows, segment.cache.length
    like: dict[str, Any] = {"dtype": segment.cache.dtype, "device": segment.cache.device}
    if causal and rows > 1 and (window is None or past + rows <= window):
        return torch.full((rows, past + rows), -math.inf, **like).triu_(past + 1)  # two kernels instead of twelve
    seen = visible(rows, past, causal, window)
    return None if seen is None else torch.zeros(seen.shape, **like).masked_fill_(~seen.to(like["device"]), -math.inf)


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
    masks: dict[int, Tensor | None] = {}

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        window = windows[layer]
        if window is not None and window not in masks:
            masks[window] = visible(queries.shape[0] // batch, 0, causal, window)
        mask = None if window is None else masks[window]
        q, k, v = (x.view(batch, -1, *x.shape[1:]).transpose(1, 2) for x in (queries, keys, values))
        gqa = queries.shape[1] != keys.shape[1]
        is_causal = causal and mask is None
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=gqa)
        return output.transpose(1, 2).flatten(2).flatten(0, 1)

    return attend
