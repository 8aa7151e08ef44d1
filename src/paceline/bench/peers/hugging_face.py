"""`transformers` generate: plain, with prompt lookup, and assisted by a smaller model.

It runs as its documentation shows it: eager, its default attention, a dynamic cache, greedy; with our precision, token
ids, length and end tokens. Prompt lookup copies what followed the last two tokens when they stood in the text before.
Assisted decoding (arXiv 2211.17192, greedy) lets a smaller model draft. Knows nothing of our decoding.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from paceline.bench.figures import Sample
from paceline.bench.method import Method, Task
from paceline.bench.peers.given import Given, peer_library
from paceline.errors import ConfigError
from paceline.models.load import check_same_tokens
from paceline.text import load_tokenizer

__all__ = ["assisted", "load_model", "lookup", "model_bytes", "plain"]

_LOOKUP_TOKENS = 10
"""Tokens that prompt lookup drafts at a time: the value in its documentation."""


def plain(model: Any, given: Given) -> Method:
    """One token a pass."""
    return Method(_Generate(model, given, drafts=False), model_bytes(model))


def lookup(model: Any, given: Given) -> Method:
    """Drafts are copied from the text so far."""
    return Method(_Generate(model, given, drafts=True, prompt_lookup_num_tokens=_LOOKUP_TOKENS), model_bytes(model))


def assisted(model: Any, given: Given) -> Method:
    """Drafts come from the assistant.

    Raises:
        ConfigError: the assistant has other tokens.
        VocabularyMismatch: its tokenizer is another one.
    """
    assert given.assistant_folder is not None, "the options see to it"
    assistant = load_model(given.assistant_folder, given)
    sizes = assistant.config.vocab_size, model.config.vocab_size
    if sizes[0] != sizes[1]:
        remedy = "Name a smaller model of the same tokenizer."
        raise ConfigError(f"The assistant has {sizes[0]} ids, the target {sizes[1]}.", remedy=remedy, param="assistant")
    tokenizers = [load_tokenizer(folder) for folder in (given.folder, given.assistant_folder)]
    vocabularies = [tokenizer.vocabulary for tokenizer in tokenizers if tokenizer is not None]
    if len(vocabularies) == 2:
        check_same_tokens(*vocabularies)
    return Method(_Generate(model, given, drafts=True, assistant_model=assistant), model_bytes(model))


def load_model(folder: Path, given: Given) -> Any:
    """The checkpoint as `transformers` loads it, in our precision.

    Raises:
        ConfigError: transformers is not installed.
    """
    library = peer_library("transformers", "pip install 'paceline[peers]'")
    library.utils.logging.disable_progress_bar()
    model = library.AutoModelForCausalLM.from_pretrained(folder, dtype=given.dtype, use_safetensors=True)
    return model.to(given.device).eval()


def model_bytes(model: Any) -> int:
    """Bytes of weights that one pass of a `transformers` model reads: all but an embedding of its own."""
    embedding = model.get_input_embeddings().weight
    tied = model.get_output_embeddings().weight is embedding
    everything: int = sum(tensor.nbytes for tensor in model.parameters())
    return everything - (0 if tied else embedding.nbytes)


class _Generate:
    """Calls generate with `settings` beside ours. `drafts` says that a pass may commit several tokens."""

    def __init__(self, model: Any, given: Given, *, drafts: bool, **settings: Any) -> None:
        ends = sorted(given.end_token_ids)
        ours = {"do_sample": False, "use_cache": True, "eos_token_id": ends or None, "pad_token_id": (ends or [0])[0]}
        self._model, self._device, self._drafts = model, given.device, drafts
        self._settings = ours | settings

    @torch.inference_mode()
    def __call__(self, task: Task) -> Sample:
        clock = _Rounds()
        started = time.perf_counter()
        ids = torch.tensor([task.prompt], device=self._device)
        limits = {"attention_mask": torch.ones_like(ids), "max_new_tokens": task.max_tokens}
        output = self._model.generate(ids, streamer=clock, **limits, **self._settings)
        tokens = tuple(output[0, len(task.prompt) :].tolist())
        total, first = time.perf_counter() - started, clock.first_seconds - started
        # Drafting is not told apart from reading: where there is any, neither is claimed.
        return Sample(tokens, tuple(clock.sizes[1:]), first, 0.0, 0.0 if self._drafts else total - first, total)


class _Rounds:
    """A streamer, as generate expects one, that notes how many tokens each pass gave, and when the first came."""

    def __init__(self) -> None:
        self.first_seconds = 0.0
        self.sizes: list[int] = []
        self._prompt_is_here = False

    def put(self, tokens: torch.Tensor) -> None:
        """Called with the prompt, then with the new tokens of every pass."""
        if self._prompt_is_here:
            self.first_seconds = self.first_seconds or time.perf_counter()
            self.sizes.append(tokens.numel())
        self._prompt_is_here = True

    def end(self) -> None:
        """Called at the end."""
