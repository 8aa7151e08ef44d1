"""What `paceline bench kernels` times: sweeps through all products of a model, and whole passes of it.

A sweep goes through the products in the order in which a pass makes them, so that weights come from where they come
from in a pass: a single product, repeated, would find its own in the nearest cache. Knows models and clocks; what the
times mean stands in `kernel_figures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from paceline.bench.passes import CONTEXT_TOKENS, TARGET, Models, drafter_pass, load_models, target_pass, without_native
from paceline.bench.peers.given import Given
from paceline.bench.peers.llama import llama_passes
from paceline.bench.products import TORCH, Form, factors_of, forms, in_pass, linears, variants
from paceline.models.drafter import Drafter
from paceline.models.linear import Linear
from paceline.models.options import Precision
from paceline.models.resolve import resolve
from paceline.models.transformer import Transformer

__all__ = ["CALL", "PASS", "Part", "Sweep", "call_sweeps", "model_sweeps", "peer_sweeps"]

CALL = "call"
"""The product that stands for the cost of a call."""

PASS = "pass"
"""The part that is the whole."""

_PEER_FACTORS = {"llama.cpp-f32": "float32", "llama.cpp-bf16": "bfloat16", "llama.cpp-q8_0": "int8"}


@dataclass(frozen=True, slots=True)
class Part:
    """All products of one name in one form, or a whole pass.

    Attributes:
        count: of them.
        nbytes: of weights that one of them reads.
        operations: multiplications and additions of one of them, for one row.
    """

    count: int
    nbytes: float
    operations: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """Calls that are timed one after the other, each with the name of its part.

    Attributes:
        model: `TARGET`, `DRAFTER`, or `CALL` for a product so small that the call is all it costs.
        variant: a form of `bench.products`, or a peer.
        factors: what it multiplies: float32, bfloat16 or int8.
        read_bytes: what one pass reads of weights, and so what a cache would have to hold.
    """

    model: str
    variant: str
    factors: str
    rows: int
    read_bytes: int
    parts: dict[str, Part]
    calls: tuple[tuple[str, Callable[[], object]], ...]

    def seconds(self, least_seconds: float) -> dict[str, float]:
        """Of one call of each part: the mean of as many sweeps as take so long, behind one that does not count."""
        for _, call in self.calls:
            call()
        spent, sweeps, started = dict.fromkeys(self.parts, 0.0), 0, time.perf_counter()
        after = started
        while sweeps == 0 or after - started < least_seconds:
            before = time.perf_counter()
            for part, call in self.calls:
                call()
                after = time.perf_counter()
                spent[part] += after - before
                before = after
            sweeps += 1
        return {part: total / sweeps / self.parts[part].count for part, total in spent.items()}


def model_sweeps(
    model: str | Path, drafter: str | Path | None, rows: Sequence[int], precisions: Sequence[Precision]
) -> list[Sweep]:
    """Of both models in every form, products and passes; those of the same rows follow each other.

    Raises:
        CheckpointError: a model that cannot be used.
    """
    folders = (resolve(model), None if drafter is None else resolve(drafter, "drafter"))
    loaded = {variant: load_models(variant, *folders) for variant in variants(precisions)}
    found = []
    for name in loaded[TORCH]:
        own = {variant: forms(variant, _products(name, loaded[TORCH])) for variant in loaded}
        for count in rows:
            for variant, models in loaded.items():
                found.append(_product_sweep(name, variant, count, own[variant]))
                found.append(_pass_sweep(name, variant, count, own[variant], models[name]))
    return found


def call_sweeps(precisions: Sequence[Precision]) -> list[Sweep]:
    """One row through a product of 16 times 16 numbers, in every form."""
    linear = Linear(16, 16).requires_grad_(False)
    nn.init.eye_(linear.weight)
    with without_native():
        linear.prepare()
    return [_product_sweep(CALL, variant, 1, forms(variant, [(CALL, linear)])) for variant in variants(precisions)]


def peer_sweeps(peers: Sequence[str], model: str | Path, rows: Sequence[int], operations: float) -> list[Sweep]:
    """Passes of the target in other programs.

    Args:
        operations: of one pass, for one row.

    Raises:
        ConfigError: a peer is not installed.
        UnsupportedModel: one that is not written for it.
    """
    context, given = [1] * CONTEXT_TOKENS, _given(resolve(model), max(rows))
    found = []
    for peer in dict.fromkeys(peers):
        read, nbytes = llama_passes(peer.removeprefix("llama.cpp-"), given, context)
        part = {PASS: Part(1, nbytes, operations)}
        found += [
            Sweep(TARGET, peer, _PEER_FACTORS[peer], count, nbytes, part, ((PASS, read([1] * count)),))
            for count in rows
        ]
    return found


def _given(folder: Path, most_rows: int) -> Given:
    return Given(
        folder=folder,
        drafter_folder=None,
        assistant_folder=None,
        dtype=torch.float32,
        device=torch.device("cpu"),
        exact=True,
        end_token_ids=frozenset(),
        most_tokens=CONTEXT_TOKENS + most_rows,
    )


def _products(name: str, models: Models) -> list[tuple[str, Linear]]:
    """A drafter's, and the head that it borrows."""
    found = linears(models[name])
    return found if name == TARGET else [*found, ("head", models[TARGET].head)]


def _product_sweep(model: str, variant: str, rows: int, own: Sequence[Form]) -> Sweep:
    inputs = {form.inputs: torch.randn(rows, form.inputs) for form in own}
    calls = tuple((form.part, _call(form, inputs[form.inputs])) for form in own)
    parts = {part: _part([form for form in own if form.part == part]) for part in dict.fromkeys(f.part for f in own)}
    return Sweep(model, variant, factors_of(variant), rows, _read_bytes(own), parts, calls)


def _call(form: Form, x: torch.Tensor) -> Callable[[], object]:
    return lambda: form.product(x)


def _part(own: Sequence[Form]) -> Part:
    """Of the mean product: they differ in bytes where bfloat16 holds only some of them."""
    count = len(own)
    operations = sum(2 * form.inputs * form.outputs for form in own)
    return Part(count, sum(form.nbytes for form in own) / count, operations / count)


def _pass_sweep(model: str, variant: str, rows: int, own: Sequence[Form], module: Transformer | Drafter) -> Sweep:
    run = drafter_pass(module, rows) if isinstance(module, Drafter) else target_pass(module, rows)
    nbytes = _read_bytes(own)
    part = Part(1, nbytes, sum(2 * form.inputs * form.outputs for form in in_pass(own)))
    return Sweep(model, variant, factors_of(variant), rows, nbytes, {PASS: part}, ((PASS, run),))


def _read_bytes(own: Sequence[Form]) -> int:
    return sum(form.nbytes for form in in_pass(own))
