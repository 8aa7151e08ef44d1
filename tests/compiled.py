"""Tiny models on the native network, and the reason why a test of it cannot run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tiny import tiny_cache, tiny_context, tiny_spec, tiny_transformer
from torch import Tensor, nn

from paceline import native
from paceline.cache.store import SequenceCache
from paceline.models.attention import Attend, Segment, cached_attention
from paceline.models.drafter import Drafter
from paceline.models.linear import Linear
from paceline.models.spec import Spec
from paceline.models.transformer import Output, Scored, Transformer, prepare

SETS = ("amx", "avx512", "avx2", "baseline")

needs_native = pytest.mark.skipif(native.why_not() is not None, reason=native.why_not() or "")


def use_set(monkeypatch: pytest.MonkeyPatch, instructions: str) -> None:
    """Force an instruction set, or skip where it is not there."""
    if instructions not in native.instruction_sets():
        pytest.skip(f"This processor, or this build, has no {instructions}.")
    monkeypatch.setenv(native.VARIABLE, instructions)


def packed(spec: Spec, seed: int = 0, arithmetic: native.Arithmetic = native.EXACT) -> Transformer:
    """A random float32 model whose passes of few rows are native."""
    model = tiny_transformer(spec, seed, torch.float32)
    for linear in linears_of(model):
        linear.arithmetic = arithmetic
    prepare(model)
    assert model.packed_bytes > 0
    return model


def linears_of(module: nn.Module) -> list[Linear]:
    """Its products."""
    return [each for each in module.modules() if isinstance(each, Linear)]


def odd_spec(seed: int) -> Spec:
    """Sizes, switches and windows at random; few of them are multiples of a vector."""
    rng = random.Random(seed)
    kv_heads, group, layers = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)
    sizes: dict[str, Any] = {
        "vocab_size": rng.choice([37, 64, 101]),
        "hidden_size": rng.choice([10, 17, 32, 72]),
        "intermediate_size": rng.choice([6, 33, 48]),
        "num_layers": layers,
        "num_heads": kv_heads * group,
        "num_kv_heads": kv_heads,
        "head_dim": rng.choice([2, 6, 8, 20, 64]),
        "windows": tuple(rng.choice([None, 3, 9]) for _ in range(layers)),
    }
    switches = {name: rng.random() < 0.5 for name in ("tied_head", "qkv_bias", "out_bias", "mlp_bias", "qk_norm")}
    return tiny_spec(**sizes, **switches)


@dataclass
class Piece:
    """New rows of one sequence: ids, what they hang on (None: a chain), behind how many past ones."""

    tokens: list[int]
    past: int
    tree: tuple[int, ...] | None = None

    @property
    def places(self) -> list[int]:
        if self.tree is None:
            return list(range(self.past, self.past + len(self.tokens)))
        places: list[int] = []
        for parent in self.tree:
            places.append(self.past if parent < 0 else places[parent] + 1)
        return places

    def path(self, row: int) -> list[int]:
        """The rows that a row of a tree hangs on, and itself."""
        assert self.tree is not None
        found = [row]
        while self.tree[found[-1]] >= 0:
            found.append(self.tree[found[-1]])
        return found[::-1]


def random_piece(seed: int, vocab: int, rows: int, past: int, tree: bool) -> Piece:
    rng = random.Random(seed)
    tokens = [rng.randrange(vocab) for _ in range(rows)]
    return Piece(tokens, past, tuple(rng.randrange(-1, row) for row in range(rows)) if tree else None)


def filled(model: Transformer, past: int, seed: int = 5) -> SequenceCache:
    """A cache with `past` rows of random keys and values, the same for every dtype up to rounding."""
    cache = tiny_cache(model, capacity=max(past, 1))
    cache.room(0).copy_(torch.randn(cache.room(0).shape, generator=torch.Generator().manual_seed(seed)))
    cache.advance(past)
    return cache


@torch.inference_mode()
def read(
    model: Transformer,
    pieces: Sequence[Piece],
    caches: Sequence[SequenceCache],
    taps: Sequence[int] = (),
    causal: bool = True,
) -> Output:
    """One pass over all pieces; nothing is committed."""
    output: Output = model(*_placed(model, pieces, caches, causal), taps)
    return output


@torch.inference_mode()
def scored(
    model: Transformer,
    pieces: Sequence[Piece],
    caches: Sequence[SequenceCache],
    taps: Sequence[int] = (),
    causal: bool = True,
) -> Scored:
    """The same with the head."""
    return model.read(*_placed(model, pieces, caches, causal), taps)


def _placed(
    model: Transformer, pieces: Sequence[Piece], caches: Sequence[SequenceCache], causal: bool
) -> tuple[Tensor, Tensor, Attend]:
    segments = [Segment(len(piece.tokens), cache, piece.tree) for piece, cache in zip(pieces, caches, strict=True)]
    attend = cached_attention(segments, (causal,) * model.spec.num_layers, model.spec.windows)
    tokens = torch.tensor([token for piece in pieces for token in piece.tokens])
    places = torch.tensor([place for piece in pieces for place in piece.places])
    return tokens, places, attend


def same(left: Tensor, right: Tensor) -> bool:
    """Equal to the bit, but for the sign of a zero."""
    return left.shape == right.shape and bool((left == right).all())


def context_of(drafter: Drafter, past: int, seed: int = 5) -> SequenceCache:
    """A drafter's cache with `past` rows of random keys and values."""
    cache = tiny_context(drafter)
    cache.room(past).copy_(torch.randn(cache.room(past).shape, generator=torch.Generator().manual_seed(seed)))
    cache.advance(past)
    return cache


def blocks_of(
    drafter: Drafter, pieces: Sequence[Piece], caches: Sequence[SequenceCache]
) -> tuple[Tensor, Tensor, Attend, list[int]]:
    """What a drafter is asked of one pass over all pieces, each of them a block."""
    counts = [len(piece.tokens) for piece in pieces]
    segments = [Segment(count, cache) for count, cache in zip(counts, caches, strict=True)]
    tokens = torch.tensor([token for piece in pieces for token in piece.tokens])
    places = torch.tensor([place for piece in pieces for place in piece.places])
    return tokens, places, drafter.attention(segments), counts
