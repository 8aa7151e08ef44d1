"""Wider models that compute the same function: speed can be studied where memory bandwidth rules, at equal acceptance.

Every hidden state becomes K copies of itself, side by side, and so do heads and inner rows. A matrix becomes K x K
copies of itself, divided by K, so that it sums over the copies of its input what it summed over one. Norms see the same
mean square; heads keep their size and attend alike. K² times the work and the weights, the same logits up to rounding:

    x -> [x x]        W -> 1/2 [W W]        W x -> [W x  W x]
                               [W W]
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from paceline.errors import UnsupportedModel
from paceline.models.drafter import Drafter
from paceline.models.layout import fuse, split
from paceline.models.spec import Spec
from paceline.models.transformer import Transformer

__all__ = ["inflate_drafter", "inflate_transformer"]


def inflate_transformer(model: Transformer, factor: int) -> Transformer:
    """`factor` times as wide, frozen, with the logits of `model`. A tied head becomes a matrix of its own."""
    tensors = split(model.state_dict(), model.spec)
    if model.spec.tied_head:
        tensors["lm_head.weight"] = model.embed.weight.detach()
    spec = replace(_wider(model.spec, factor), tied_head=False)
    wide = Transformer(spec).to(model.embed.weight.dtype).eval().requires_grad_(False)
    wide.load_state_dict(fuse(_widened(tensors, factor), spec))
    return wide


def inflate_drafter(drafter: Drafter, target: Transformer, factor: int) -> Drafter:
    """`factor` times as wide, for a `target` that was inflated by the same factor.

    Raises:
        UnsupportedModel: a DFlash 2 drafter.
    """
    if drafter.spec.v2 is not None:
        raise UnsupportedModel("This is a DFlash 2 drafter.", remedy="Only DFlash 1 drafters can be inflated.")
    spec = replace(drafter.spec, block=_wider(drafter.spec.block, factor))
    wide = Drafter(spec, target).to(drafter.fc.dtype).eval().requires_grad_(False)
    tensors = split(drafter.state_dict(), drafter.spec)
    wide.load_state_dict(fuse(_widened(tensors, factor, len(spec.target_layer_ids)), spec))
    return wide


def _wider(spec: Spec, factor: int) -> Spec:
    sizes = ("hidden_size", "intermediate_size", "num_heads", "num_kv_heads")
    return replace(spec, **{name: factor * getattr(spec, name) for name in sizes})


def _widened(tensors: dict[str, Tensor], factor: int, taps: int = 1) -> dict[str, Tensor]:
    return {name: _widen(name, tensor.detach(), factor, taps) for name, tensor in tensors.items()}


def _widen(name: str, tensor: Tensor, factor: int, taps: int) -> Tensor:
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return tensor
    if tensor.dim() == 1:
        return tensor.repeat(factor)
    if name.endswith("embed_tokens.weight"):
        return tensor.repeat(1, factor)
    if name == "lm_head.weight":
        return tensor.repeat(1, factor) / factor
    if name == "fc.weight":  # the tapped layers stand side by side, each is widened by itself
        parts = tensor.chunk(taps, 1)
        return torch.cat([part.repeat(factor, factor) for part in parts], 1) / factor
    return tensor.repeat(factor, factor) / factor
