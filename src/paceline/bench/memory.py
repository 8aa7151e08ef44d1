"""`paceline bench memory`: the bytes that attention takes in one pass, by the length of the text before it.

Counts what the attention of a pass allocates: masks, scores, outputs; the most that is alive at once. Not counted: keys
and values, which a cache holds and which are told beside it; what a fused kernel keeps for its own blocks of scores,
0.1 to 0.6 MiB per thread in float32 at any length; the rest of the layers. These bytes depend on the shape of the heads
and on the windows, and on no weight: so random models of few features, with one layer of each window, take the real
steps of plain decoding and of APD. Nothing is timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import log
from statistics import linear_regression
from typing import Any

import torch
from torch import Tensor

from paceline import __version__
from paceline.bench.footprint import TensorMemory
from paceline.bench.machine import machine_facts
from paceline.bench.memory_options import MemoryBench
from paceline.bench.options import as_plain_data
from paceline.decode.adaptive import Adaptive
from paceline.decode.apd import APD
from paceline.decode.denoiser import Denoiser, check_diffuses
from paceline.decode.target import Target
from paceline.errors import UnsupportedModel
from paceline.models.attention import Attend
from paceline.models.config_file import model_config
from paceline.models.diffusion_spec import Diffusion
from paceline.models.resolve import resolve
from paceline.models.spec import Spec, transformer_spec
from paceline.models.transformer import Output, Transformer
from paceline.progress import progress
from paceline.request import Sampling
from paceline.zoo.catalog import BUNDLED_TARGET

__all__ = ["PASSES", "bench_memory", "exponent", "passes", "watched"]

_WINDOW, _KV_WINDOW = 32, 16

PASSES = {
    "prompt": "plain decoding reads the prompt",
    "verifier, first": "APD's verifier reads the prompt and the first drafts",
    "verifier, later": "it reads what was committed since, and the next drafts",
    "dllm, first": f"APD's diffusion model sees the prompt and {_WINDOW} masks",
    f"dllm, kv_window {_KV_WINDOW}": "its second step, with what is before its kv_window from the cache",
    "dllm, kv_window all": "its second step, with nothing from the cache",
}
"""What each kind of pass is; part of every result."""


def bench_memory(options: MemoryBench) -> dict[str, Any]:
    """Count the bytes at every length; the result is plain data, ready for JSON (docs/benchmarks.md).

    Shows a progress bar on a terminal.

    Raises:
        CheckpointError: a model that cannot be used, or is of the other kind.
    """
    model = options.model or BUNDLED_TARGET
    target = _spec_of(model, "model")
    if target.diffusion is not None:
        told = f"model is {str(model)!r:.80}, a diffusion language model."
        raise UnsupportedModel(told, remedy="Name it with --dllm.", param="model")
    whole = replace(target, windows=(None,) * target.num_layers)  # a diffusion model sees the whole text
    dllm = whole if options.dllm is None else _spec_of(options.dllm, "dllm")
    if options.dllm is not None:
        check_diffuses(dllm)
    with progress("bench", len(options.lengths)) as advance:
        found = []
        for length in options.lengths:
            found.append(passes(target, dllm, length))
            advance(f"{length} tokens")
    return {
        "bench": "memory",
        "paceline": __version__,
        "settings": as_plain_data(options) | {"model": str(model)},
        "machine": machine_facts(torch.device("cpu")),
        "definitions": PASSES,
        "lengths": list(options.lengths),
        "kv_cache_bytes": [_cache_bytes(target, length) for length in options.lengths],
        "peak_bytes": {name: [each[name] for each in found] for name in PASSES},
        "exponents": {name: exponent(options.lengths, [each[name] for each in found]) for name in PASSES},
    }


@torch.inference_mode()
def passes(target: Spec, dllm: Spec, length: int) -> dict[str, int]:
    """The most bytes of attention in every pass of `PASSES` behind a prompt of `length` tokens, in float32."""
    answer = Sampling(max_tokens=4 * _WINDOW)
    context_tokens = length + answer.max_tokens
    prompt, spec = [1] * length, _small(target, context_tokens)
    verifier = Target(Transformer(spec).eval(), spec.vocab_size)
    masked = replace(_small(dllm, context_tokens), diffusion=Diffusion(spec.vocab_size - 1, 0))
    denoiser = Denoiser(Transformer(masked).eval(), masked.vocab_size)
    found = {}
    with watched(verifier.model) as read, watched(denoiser.model) as drafted:
        verifier.prefill([verifier.open(prompt, answer, 0, None)])
        found["prompt"] = read.peak_bytes
        for kv_window, name in ((_KV_WINDOW, str(_KV_WINDOW)), (None, "all")):
            # All drafts are kept, whatever the weights say: so the second step has most to compute.
            settings = Adaptive(alpha=1.0, schedule="fixed", window=_WINDOW, kv_window=kv_window)
            apd = APD(denoiser, verifier, settings, frozenset())
            canvas = apd.open(prompt, answer, 0)
            for step in ("first", "later"):
                read.restart()
                drafted.restart()
                apd.step([canvas])
                found[f"verifier, {step}"] = read.peak_bytes
                found["dllm, first" if step == "first" else f"dllm, kv_window {name}"] = drafted.peak_bytes
    return found


@contextmanager
def watched(model: Transformer) -> Iterator[TensorMemory]:
    """Inside the block the attention of every pass of `model` is counted."""
    memory, honest = TensorMemory(), model.forward

    def around(attend: Attend) -> Attend:
        def counted(*given: Any) -> Tensor:
            with memory:
                return attend(*given)

        return counted

    def forward(tokens: Tensor, positions: Tensor, attend: Attend, taps: Sequence[int] = ()) -> Output:
        return honest(tokens, positions, around(attend), taps)

    vars(model)["forward"] = forward
    try:
        yield memory
    finally:
        del vars(model)["forward"]


def exponent(lengths: Sequence[int], sizes: Sequence[int]) -> float:
    """p of the power law size = c * length^p that fits best in logarithms, by least squares."""
    return linear_regression([log(each) for each in lengths], [log(each) for each in sizes]).slope


def _spec_of(name: Any, param: str) -> Spec:
    return transformer_spec(model_config(resolve(name, param)))


def _small(spec: Spec, context_tokens: int) -> Spec:
    """The same attention in one layer of each kind, in a model of few other features."""
    windows = tuple(dict.fromkeys(spec.windows))
    small = replace(spec, vocab_size=16, hidden_size=8, intermediate_size=8, num_layers=len(windows), windows=windows)
    return replace(small, context_tokens=context_tokens, diffusion=None, eos_token_ids=())


def _cache_bytes(spec: Spec, length: int) -> int:
    """Keys and values of so many tokens in all layers, in float32."""
    return 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * length * torch.float32.itemsize
