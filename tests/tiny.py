"""Tiny random models, and folders that hold them. Logits are spread (standard deviation about 2), so argmax is firm."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.cache.store import SequenceCache
from paceline.models.attention import Segment, cached_attention
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import DrafterSpec
from paceline.models.layout import split
from paceline.models.save import save_drafter, save_transformer
from paceline.models.spec import Rope, Spec
from paceline.models.transformer import Output, Transformer

GOLDEN = Path(__file__).parent / "data" / "golden"
"""Tiny checkpoints with the values of the reference implementations; see its README."""

LOGIT_SPREAD = 2.0


def tiny_spec(family: str = "qwen3", **changes: Any) -> Spec:
    """Two layers of width 32 over 64 ids; 4 heads, 2 key/value heads of size 8."""
    spec = Spec(
        family=family,
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        norm_eps=1e-6,
        rope=Rope(10000.0),
        context_tokens=512,
        windows=(None, None),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
    )
    layers = changes.get("num_layers", spec.num_layers)
    return replace(spec, **{"windows": (None,) * layers, **changes})


def tiny_drafter_spec(target: Spec, **changes: Any) -> DrafterSpec:
    """One Qwen3 layer of the target's width, block size 4, tapping the target's first and last layer."""
    block = tiny_spec(hidden_size=target.hidden_size, vocab_size=target.vocab_size, tied_head=True, num_layers=1)
    spec = DrafterSpec(
        block=block,
        block_size=4,
        mask_token_id=target.vocab_size - 1,
        target_layer_ids=(0, target.num_layers - 1),
        num_target_layers=target.num_layers,
        causal=(False,),
    )
    return replace(spec, **changes)


def tiny_transformer(spec: Spec, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    """A frozen, plain (not `prepare`d) model with random weights, the same for every dtype up to rounding."""
    model = Transformer(spec)
    _randomize(model, seed)
    with torch.no_grad():
        model.head.weight.mul_(LOGIT_SPREAD)
    return model.to(dtype).eval().requires_grad_(False)


def tiny_drafter(spec: DrafterSpec, target: Transformer, seed: int = 1) -> Drafter:
    """A frozen, plain drafter with random weights, in the target's dtype."""
    drafter = Drafter(spec, target)
    _randomize(drafter, seed)
    return drafter.to(target.embed.weight.dtype).eval().requires_grad_(False)


def write_checkpoint(folder: Path, model: Transformer | Drafter) -> Path:
    """Save `model` in its own dtype; returns `folder`."""
    if isinstance(model, Drafter):
        save_drafter(model, folder, model.fc.weight.dtype)
    else:
        save_transformer(model, folder, model.embed.weight.dtype)
    return folder


def checkpoint_tensors(model: Transformer | Drafter) -> dict[str, Tensor]:
    """The tensors of the model under the names of a checkpoint, each with memory of its own."""
    return {name: tensor.clone() for name, tensor in split(model.state_dict(), model.spec).items()}


def same_weights(left: nn.Module, right: nn.Module) -> bool:
    """Equal names and equal bits."""
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def edit_config(folder: Path, **changes: Any) -> None:
    """Set keys of config.json; `...` removes one."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def tiny_cache(model: Transformer, capacity: int = 8) -> SequenceCache:
    """An empty cache for one sequence of `model`."""
    spec, device = model.spec, model.embed.weight.device
    return SequenceCache(spec.num_layers, spec.num_kv_heads, spec.head_dim, capacity, model.dtype, device)


def run_flat(
    model: Transformer, pieces: Sequence[Sequence[int]], caches: Sequence[SequenceCache], taps: Sequence[int] = ()
) -> Output:
    """Run the next tokens of several sequences as one flat batch, and commit them to their caches."""
    segments = [Segment(len(piece), cache) for piece, cache in zip(pieces, caches, strict=True)]
    causal = model.spec.diffusion is None
    attend = cached_attention(segments, (causal,) * model.spec.num_layers, model.spec.windows)
    positions = [torch.arange(cache.length, cache.length + len(p)) for p, cache in zip(pieces, caches, strict=True)]
    output = model(torch.tensor([token for piece in pieces for token in piece]), torch.cat(positions), attend, taps)
    for segment in segments:
        segment.cache.advance(segment.rows)
    return output


def tiny_context(drafter: Drafter, features: Tensor | None = None) -> SequenceCache:
    """The context of one sequence of `drafter`, empty or of the features [tokens, taps * hidden] of its tokens."""
    block, weight = drafter.spec.block, drafter.norm.weight
    cache = SequenceCache(block.num_layers, block.num_kv_heads, block.head_dim, 8, weight.dtype, weight.device)
    if features is not None:
        remember(drafter, cache, features)
    return cache


def remember(drafter: Drafter, cache: SequenceCache, features: Tensor) -> None:
    """Add the next tokens to a context."""
    cache.extend(*drafter.context(features, torch.arange(cache.length, cache.length + len(features))))


def fill_block(drafter: Drafter, cache: SequenceCache, block: Sequence[int]) -> Tensor:
    """The states [rows, hidden] of one block behind a context, in one pass."""
    positions = torch.arange(cache.length, cache.length + len(block))
    attend = drafter.attention([Segment(len(block), cache)])
    hidden: Tensor = drafter(torch.tensor(block), positions, attend, [len(block)])
    return hidden


def _randomize(module: nn.Module, seed: int) -> None:
    """Matrices N(0, 1 / columns), norms N(1, 0.1), biases N(0, 0.1)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 2:
                parameter.copy_(noise / math.sqrt(parameter.shape[1]))
            else:
                parameter.copy_(0.1 * noise + (0.0 if name.endswith("bias") else 1.0))
