"""Other programs on the same weights, the same prompts and in the same run, for an honest comparison.

hugging_face   transformers generate: plain, with prompt lookup, with an assistant
official       the drafter's own published loop
llama          llama.cpp, which reads the file that `gguf_file` writes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.bench.method import Method
from paceline.bench.peers.given import Given
from paceline.bench.peers.hugging_face import assisted, load_model, lookup, plain
from paceline.bench.peers.llama import llama_cpp
from paceline.bench.peers.official import official

__all__ = ["Given", "open_peers"]

_ON_TRANSFORMERS: Mapping[str, Callable[[Any, Given], Method]] = {
    "transformers": plain,
    "transformers-lookup": lookup,
    "transformers-assisted": assisted,
    "dflash-official": official,
}


def open_peers(names: Sequence[str], given: Given) -> dict[str, Method]:
    """The peers of these names (`options.PEERS`), loaded; those on transformers share one copy of the target.

    Raises:
        ConfigError: a peer is not installed, or lacks what it needs.
    """
    model = load_model(given.folder, given) if _ON_TRANSFORMERS.keys() & set(names) else None
    return {name: _open(name, model, given) for name in dict.fromkeys(names)}


def _open(name: str, model: Any, given: Given) -> Method:
    if name in _ON_TRANSFORMERS:
        return _ON_TRANSFORMERS[name](model, given)
    kind = name.removeprefix("llama.cpp-")
    return llama_cpp(kind.removesuffix("-lookup"), given, drafts=kind.endswith("-lookup"))
