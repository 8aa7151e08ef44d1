"""Layers that a backward pass computes again, instead of keeping all they computed (arXiv 1604.06174).

Only the inputs of the layers wait for the backward pass, and each layer costs a second forward pass. Knows which
modules are layers, nothing of what is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from paceline.models.transformer import Layer

__all__ = ["layers_recomputed"]


@contextmanager
def layers_recomputed(module: nn.Module, wanted: bool) -> Iterator[None]:
    """Inside, all layers of Transformers and drafters in `module` are recomputed, if that is wanted.

    Losses and gradients are the same, on a CPU to the last bit; up to rounding under torch.compile.
    """
    layers = [each for each in module.modules() if isinstance(each, Layer)]
    for layer in layers:
        layer.recomputed = wanted
    try:
        yield
    finally:
        for layer in layers:
            layer.recomputed = False
