"""What the benchmark measures: one way to decode, and what must be known of it to judge its figures.

Knows nothing of clocks and prompts, nor of which program decodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.bench.figures import Sample
from paceline.models.linear import Linear
from paceline.models.transformer import Transformer

__all__ = ["Decode", "Method", "pass_bytes"]

Decode = Callable[[tuple[int, ...], int], Sample]
"""(prompt ids, most new tokens) -> one measurement."""


@dataclass(frozen=True, slots=True)
class Method:
    """One way to decode.

    Attributes:
        decode: measures one answer.
        pass_bytes: of weights that one pass of its target reads.
        lossless: it promises plain decoding's answer; another one is then an error.
    """

    decode: Decode
    pass_bytes: int
    lossless: bool = True


def pass_bytes(model: Transformer) -> int:
    """Bytes of weights that one pass of `model` reads, in the form they are kept in.

    Everything but the embedding, of which a pass reads one row per token; a tied head counts as the head.
    """
    products = [module for module in model.modules() if isinstance(module, Linear)]
    counted = {id(tensor) for product in products for tensor in (product.weight, product.bias)}
    counted.add(id(model.embed.weight))
    norms = sum(tensor.nbytes for tensor in model.parameters() if id(tensor) not in counted)
    return norms + sum(product.read_bytes for product in products)
