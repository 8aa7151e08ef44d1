"""Whole passes of few rows behind a short context, logits included: of a target, of a drafter over its block.

Knows modules and caches; times nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from paceline import native
from paceline.bench.products import NATIVE, PLAIN, TORCH, precision_of
from paceline.cache.store import SequenceCache
from paceline.models.attention import Segment, cached_attention
from paceline.models.drafter import Drafter
from paceline.models.load import load_drafter, load_transformer
from paceline.models.precision import dtypes_of
from paceline.models.spec import Spec
from paceline.models.transformer import Transformer

__all__ = [
    "CONTEXT_TOKENS",
    "DRAFTER",
    "TARGET",
    "Models",
    "drafter_pass",
    "load_models",
    "target_pass",
    "without_native",
]

CONTEXT_TOKENS = 64
"""What the rows see before them: little, as the weights are what is looked at."""

TARGET, DRAFTER = "target", "drafter"

Models = dict[str, Transformer | Drafter]
"""The target, and its drafter where there is one."""

Call = Callable[[], torch.Tensor]


@contextmanager
def without_native() -> Iterator[None]:
    """What is loaded inside the block computes in torch, as `PACELINE_NATIVE=off` has it."""
    before = os.environ.get(native.VARIABLE)
    os.environ[native.VARIABLE] = "off"
    try:
        yield
    finally:
        os.environ.pop(native.VARIABLE)
        if before is not None:
            os.environ[native.VARIABLE] = before


def load_models(variant: str, folder: Path, drafter_folder: Path | None) -> Models:
    """Both models, computing in one form of `bench.products`.

    Raises:
        CheckpointError: a folder that cannot be used.
    """
    if variant == TORCH:
        with without_native():
            return load_models(NATIVE, folder, drafter_folder)
    plain, dtypes = variant == PLAIN, dtypes_of(precision_of(variant), {}, torch.device("cpu"))
    target = load_transformer(
        folder,
        dtypes.products,
        attention_dtype=dtypes.attention,
        arithmetic=dtypes.arithmetic,
        trainable=plain,
    )
    if drafter_folder is None:
        return {TARGET: target}
    drafter = load_drafter(
        drafter_folder,
        target,
        dtypes.draft,
        attention_dtype=dtypes.draft_attention,
        arithmetic=dtypes.arithmetic,
        trainable=plain,
    )
    return {TARGET: target, DRAFTER: drafter}


def target_pass(model: Transformer, rows: int) -> Call:
    """A pass over a chain of so many rows, with the logits of each; nothing is committed."""
    spec, segments = model.spec, [Segment(rows, _cache(model.spec, rows))]
    causal = (spec.diffusion is None,) * spec.num_layers
    tokens, positions = _tokens(spec, rows)

    def run() -> torch.Tensor:
        return model.read(tokens, positions, cached_attention(segments, causal, spec.windows)).logits

    return run


def drafter_pass(drafter: Drafter, rows: int) -> Call:
    """A pass over one block of so many rows, with the logits of each."""
    segments = [Segment(rows, _cache(drafter.spec.block, rows))]
    tokens, positions = _tokens(drafter.spec.block, rows)

    def run() -> torch.Tensor:
        return drafter.logits(drafter(tokens, positions, drafter.attention(segments), [rows]))

    return run


def _tokens(spec: Spec, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(rows) % spec.vocab_size, torch.arange(CONTEXT_TOKENS, CONTEXT_TOKENS + rows)


def _cache(spec: Spec, rows: int) -> SequenceCache:
    """Of a context whose keys and values are random."""
    capacity = CONTEXT_TOKENS + rows
    shape = (spec.num_layers, spec.num_kv_heads, spec.head_dim, capacity)
    cache = SequenceCache(*shape, torch.float32, torch.device("cpu"))
    cache.room(0).normal_()
    cache.advance(CONTEXT_TOKENS)
    return cache
