"""Rotary positions, masks, and attention of a flat batch over the caches of its sequences.

A batch is flat: the rows of all sequences one after the other, no padding. A layer calls `Attend`, which appends the
new keys and values to each sequence's cache and lets its queries see them; so the layer itself knows nothing of
caches, batches or masks. Shapes: queries [rows, heads, head_dim], keys and values [rows, kv_heads, head_dim].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.models.spec import Rope

__all__ = ["Attend", "Segment", "cached_attention", "dense_attention", "inverse_frequencies", "rotate", "rotation"]

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries, keys, values) -> attention output [rows, heads * head_dim]."""

Rotation = tuple[Tensor, Tensor]
"""cos and signed sin, each [rows, 1, head_dim]."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one sequence in a flat batch: `rows` of them, behind what `cache` holds."""

    rows: int
    cache: SequenceCache


def inverse_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Radians per position of each rotary pair, float64 [head_dim / 2] (arXiv 2104.09864, eq. 15).

    `llama3` scaling: wavelengths longer than original_context / low_freq_factor are stretched by `factor`, those
    shorter than original_context / high_freq_factor are kept, in between the two are blended linearly.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = rope.theta**-exponents
    if rope.factor == 1.0:
        return frequencies
    turns = rope.original_context_tokens * frequencies / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return frequencies * (blend + (1.0 - blend) / rope.factor)


def rotation(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> Rotation:
    """cos and sin of every position's angles; sin is negated in the first half, ready for `rotate`."""
    angles = positions.to(torch.float64).unsqueeze(-1) * frequencies.to(positions.device)
    cos, sin = angles.cos(), angles.sin()
    return (
        torch.cat((cos, cos), -1).unsqueeze(1).to(dtype),
        torch.cat((-sin, sin), -1).unsqueeze(1).to(dtype),
    )


def rotate(heads: Tensor, turn: Rotation) -> Tensor:
    """Rotate [rows, heads, head_dim]; element i pairs with i + head_dim / 2."""
    cos, sin = turn
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


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
    seen = visible(segment.rows, segment.cache.length, causal, window)
    if seen is None:
        return None
    blank = torch.zeros(seen.shape, dtype=segment.cache.dtype, device=segment.cache.device)
    return blank.masked_fill_(~seen.to(blank.device), -math.inf)


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


def dense_attention(batch: int, windows: Sequence[int | None]) -> Attend:
    """Causal attention without a cache over `batch` sequences of equal length, for training."""
    masks: dict[int, Tensor | None] = {}

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        window = windows[layer]
        if window is not None and window not in masks:
            masks[window] = visible(queries.shape[0] // batch, 0, True, window)
        mask = None if window is None else masks[window]
        q, k, v = (x.view(batch, -1, *x.shape[1:]).transpose(1, 2) for x in (queries, keys, values))
        gqa = queries.shape[1] != keys.shape[1]
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=gqa)
        return output.transpose(1, 2).flatten(2).flatten(0, 1)

    return attend
