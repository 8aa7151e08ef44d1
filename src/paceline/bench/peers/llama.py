"""llama.cpp on the CPU, through llama-cpp-python: token ids in, token ids out, greedy, as many threads as we have.

In f32 it keeps weights, activations and cache in float32 and promises the same text as plain decoding. f16 and bf16
round the activations of every product to their precision and q8_0 rounds weights and activations to 8 bits; all keep
llama.cpp's default cache, float16. They are other models, so nothing is promised. With drafts it looks them up in the
prompt, as the binding offers. Knows nothing of our decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from paceline.bench.figures import Sample
from paceline.bench.method import Method, Task
from paceline.bench.peers.gguf_file import write_gguf
from paceline.bench.peers.given import Given, peer_library
from paceline.errors import ConfigError

__all__ = ["llama_cpp", "llama_passes"]

_FLOAT32 = 0
"""Of ggml's types: the precision of a cache."""

_DRAFTS = 10
"""Tokens that a lookup drafts at most, the binding's own default."""


def llama_cpp(kind: str, given: Given, drafts: bool = False) -> Method:
    """llama.cpp on the target written as `kind` (`gguf_file.KINDS`). It is in memory when this returns; no file stays.

    Args:
        drafts: with drafts that are looked up in the text so far, its own way to read several tokens at once.

    Raises:
        ConfigError: llama-cpp-python or gguf is not installed, or we do not run on a CPU.
        UnsupportedModel: a target that is not written as GGUF.
    """
    if given.device.type != "cpu":
        remedy = "Add --device cpu."
        raise ConfigError(f"The peer llama.cpp runs on the CPU, we on {given.device}.", remedy=remedy, param="device")
    model, read_bytes = _opened_with_drafts(kind, given) if drafts else _opened(kind, given)
    passes = _counted(model)
    ends = given.end_token_ids

    def decode(task: Task) -> Sample:
        started = time.perf_counter()
        model.reset()  # else it would skip what the cache still holds of the same prompt
        passes.clear()
        committed: list[int] = []
        tokens: list[int] = []
        first = 0.0
        for token in islice(model.generate(list(task.prompt), temp=0.0, repeat_penalty=1.0), task.max_tokens):
            first = first or time.perf_counter() - started
            tokens.append(token)
            committed += [0] * (len(passes) - len(committed))
            committed[-1] += 1
            if token in ends:
                break
        total = time.perf_counter() - started
        return Sample(tuple(tokens), _behind_the_first(committed), first, 0.0, total - first, total)

    return Method(decode, read_bytes, lossless=kind == "f32" and given.exact)


def _opened_with_drafts(kind: str, given: Given) -> tuple[Any, int]:
    """Drafts of the last round reach beyond the answer: the cache needs room for them."""
    speculative = peer_library("llama_cpp.llama_speculative", "pip install 'paceline[peers]'")
    lookup = speculative.LlamaPromptLookupDecoding(num_pred_tokens=_DRAFTS)
    return _opened(kind, replace(given, most_tokens=given.most_tokens + _DRAFTS), draft_model=lookup)


def _counted(model: Any) -> list[int]:
    """Of every pass that `model` makes from now on, the tokens it reads."""
    passes: list[int] = []
    evaluate = model.eval

    def counting(tokens: Sequence[int]) -> None:
        passes.append(len(tokens))
        evaluate(tokens)

    model.eval = counting
    return passes


def _behind_the_first(committed: Sequence[int]) -> tuple[int, ...]:
    """Tokens of each pass but for the answer's first one, which the prompt gives."""
    counts = (committed[0] - 1, *committed[1:])
    return tuple(count for count in counts if count)


def llama_passes(
    kind: str, given: Given, context: Sequence[int]
) -> tuple[Callable[[Sequence[int]], Callable[[], None]], int]:
    """Single passes of llama.cpp, and the bytes of weights that one of them reads.

    Args:
        context: token ids that a pass finds in the cache.

    Returns:
        From token ids to their pass behind the context, with the logits of each; it can be called again and again.

    Raises:
        ConfigError: llama-cpp-python or gguf is not installed.
        UnsupportedModel: a target that is not written as GGUF.
    """
    model, read_bytes = _opened(kind, given, logits_all=True)
    model.eval(list(context))

    def read(tokens: Sequence[int]) -> None:
        model.n_tokens = len(context)  # what the cache holds beyond it, the next line drops
        model.eval(list(tokens))

    return lambda tokens: partial(read, tokens), read_bytes


def _opened(kind: str, given: Given, **settings: Any) -> tuple[Any, int]:
    """The target in memory, and the bytes of weights that one pass of it reads."""
    library = peer_library("llama_cpp", "pip install 'paceline[peers]' (it compiles for several minutes)")
    with TemporaryDirectory(prefix="paceline-") as place:
        path = Path(place) / f"target-{kind}.gguf"
        read_bytes = write_gguf(given.folder, path, kind)
        return _load(library, path, kind, given.most_tokens, **settings), read_bytes


def _load(library: Any, path: Path, kind: str, most_tokens: int, **settings: Any) -> Any:
    threads = torch.get_num_threads()
    cache = {"type_k": _FLOAT32, "type_v": _FLOAT32} if kind == "f32" else {}
    sizes = {"n_ctx": most_tokens, "n_threads": threads, "n_threads_batch": threads}
    # Not mapped: the file is deleted after this.
    return library.Llama(str(path), n_gpu_layers=0, use_mmap=False, verbose=False, **sizes, **cache, **settings)
