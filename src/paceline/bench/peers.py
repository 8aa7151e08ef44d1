"""Other programs on the same weights, for an honest comparison: `transformers` generate.

It runs as its documentation shows it: eager, its default attention, a dynamic cache, greedy; with our precision, token
ids, length and end tokens. Knows nothing of our decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from paceline.bench.figures import Sample
from paceline.errors import ConfigError

__all__ = ["transformers_decode"]


def transformers_decode(
    folder: Path, dtype: torch.dtype, device: torch.device, end_token_ids: frozenset[int]
) -> Callable[[tuple[int, ...], int], Sample]:
    """A function (prompt ids, most new tokens) -> Sample that decodes greedily with `transformers`.

    Raises:
        ConfigError: transformers is not installed.
    """
    model = _load(folder, dtype, device)
    ends = sorted(end_token_ids)
    settings = {"do_sample": False, "use_cache": True, "eos_token_id": ends or None, "pad_token_id": (ends or [0])[0]}

    @torch.inference_mode()
    def decode(prompt: tuple[int, ...], max_tokens: int) -> Sample:
        clock = _FirstToken()
        started = time.perf_counter()
        ids = torch.tensor([prompt], device=device)
        mask = torch.ones_like(ids)
        output = model.generate(ids, attention_mask=mask, max_new_tokens=max_tokens, streamer=clock, **settings)
        tokens = tuple(output[0, len(prompt) :].tolist())
        total, first = time.perf_counter() - started, clock.seconds - started
        return Sample(tokens, (1,) * (len(tokens) - 1), first, 0.0, total - first, total)

    return decode


def _load(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    try:
        import transformers
    except ImportError as error:
        remedy = "Install it: pip install 'paceline[bench]'."
        raise ConfigError("The peer transformers is not installed.", remedy=remedy, param="peer") from error
    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    model = library.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True)
    return model.to(device).eval()


class _FirstToken:
    """A streamer, as generate expects one, that notes when the first new token came."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._calls = 0

    def put(self, _: object) -> None:
        """Called with the prompt, then with every new token."""
        self._calls += 1
        if self._calls == 2:
            self.seconds = time.perf_counter()

    def end(self) -> None:
        """Called at the end."""
