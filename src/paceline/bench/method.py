"""What the benchmark measures: one way to decode, and what must be known of it to judge its figures.

Knows nothing of clocks and prompts, nor of which program decodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.bench.coupling import Coupling
from paceline.bench.figures import Sample
from paceline.models.linear import Linear
from paceline.models.transformer import Transformer

__all__ = ["Method", "Task", "pass_bytes"]


@dataclass(frozen=True, slots=True)
class Task:
    """What every method is given to do.

    Attributes:
        name: of the prompt.
        prompt: its token ids.
        max_tokens: most new tokens; prompt and answer fit the context.
        seed: of this prompt alone, so that answers of one run are independent draws.
    """

    name: str
    prompt: tuple[int, ...]
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Method:
    """One way to decode.

    Attributes:
        decode: measures one answer.
        pass_bytes: of weights that one pass of its target reads.
        lossless: it promises plain decoding's answer; another one is then an error.
        splits_time: its samples tell the models' time from the rest.
        law: what the laws of sampling say of the drafts of an answer; None where it drafts nothing or by no chance.
    """

    decode: Callable[[Task], Sample]
    pass_bytes: int
    lossless: bool = True
    splits_time: bool = False
    law: Callable[[Task, Sample], Coupling] | None = None


def pass_bytes(model: Transformer) -> int:
    """Bytes of weights that one pass of `model` reads, in the form they are kept in.

    Everything but the embedding, of which a pass reads one row per token; a tied head counts as the head.
    """
    products = {name: module for name, module in model.named_modules() if isinstance(module, Linear)}
    counted = {id(tensor) for product in products.values() for tensor in (product.weight, product.bias)}
    counted.add(id(model.embed.weight))
    norms = sum(tensor.nbytes for tensor in model.parameters() if id(tensor) not in counted)
    apart = [products["head"]] if model.packed_bytes else products.values()
    return norms + model.packed_bytes + sum(product.read_bytes for product in apart)
