"""The forward pass on a CPU, in C++: one call instead of a few hundred small kernels.

Optional: without the extension, or where it does not apply, torch computes the same up to rounding, and is its oracle.
Knows tensors and caches, and nothing of models.
"""

from __future__ import annotations

from paceline.native.drawing import drawn, ranked
from paceline.native.extension import VARIABLE, applies, applies_to, instruction_sets, instructions, why_not
from paceline.native.growth import grown
from paceline.native.network import LayerWeights, Network, Rows, Sizes
from paceline.native.product import Product

__all__ = [
    "VARIABLE",
    "LayerWeights",
    "Network",
    "Product",
    "Rows",
    "Sizes",
    "applies",
    "applies_to",
    "drawn",
    "grown",
    "instruction_sets",
    "instructions",
    "ranked",
    "why_not",
]
