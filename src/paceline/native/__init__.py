"""The forward pass on a CPU, in C++: one call instead of a few hundred small kernels.

Optional: without the extension, or where it does not apply, torch computes the same up to rounding, and is its oracle.
Knows tensors and caches, and nothing of models. Names are imported when they are first used: whether there is a native
pass can be asked without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.native.arithmetic import EXACT, Arithmetic
    from paceline.native.choice import VARIABLE, build, in_use, instruction_sets, instructions, why_not
    from paceline.native.context import Context, ContextWeights
    from paceline.native.drawing import Draws, drawn, ranked
    from paceline.native.extension import applies, applies_to, multiplies, trim
    from paceline.native.growth import grown
    from paceline.native.network import Batch, LayerWeights, Network, Rows, Sizes, turn_of
    from paceline.native.product import Product

__all__ = [
    "EXACT",
    "VARIABLE",
    "Arithmetic",
    "Batch",
    "Context",
    "ContextWeights",
    "Draws",
    "LayerWeights",
    "Network",
    "Product",
    "Rows",
    "Sizes",
    "applies",
    "applies_to",
    "build",
    "drawn",
    "grown",
    "in_use",
    "instruction_sets",
    "instructions",
    "multiplies",
    "ranked",
    "trim",
    "turn_of",
    "why_not",
]

_HOMES = {
    **dict.fromkeys(("EXACT", "Arithmetic"), "arithmetic"),
    **dict.fromkeys(("VARIABLE", "build", "in_use", "instruction_sets", "instructions", "why_not"), "choice"),
    **dict.fromkeys(("Context", "ContextWeights"), "context"),
    **dict.fromkeys(("Draws", "drawn", "ranked"), "drawing"),
    **dict.fromkeys(("Batch", "LayerWeights", "Network", "Rows", "Sizes", "turn_of"), "network"),
    **dict.fromkeys(("applies", "applies_to", "multiplies", "trim"), "extension"),
    "grown": "growth",
    "Product": "product",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline.native' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"paceline.native.{_HOMES[name]}"), name)
    globals()[name] = found  # decoding asks for some in every round, and a search here takes as long as they do
    return found
