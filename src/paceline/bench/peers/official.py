"""The drafter's own published loop: the PyPI wheel `dflash`, which reads the layout our drafters are saved in.

Its commands ask for a CUDA device, so only its model and loop are used. The loop's statistics synchronise with CUDA;
elsewhere that clock is replaced for the time of a call. Above temperature 0 it draws every slot from the drafter and
accepts by rejection sampling (arXiv:2211.17192), with torch's own random numbers: a text of the same law, never ours.
Knows nothing of our decoding.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from paceline.bench.figures import Sample
from paceline.bench.method import Method, Task
from paceline.bench.peers.given import Given, peer_library
from paceline.bench.peers.hugging_face import model_bytes
from paceline.errors import ConfigError

__all__ = ["official"]


def official(model: Any, given: Given) -> Method:
    """DFlash with the drafter's own block size, on the `transformers` target; promises our text at temperature 0.

    Raises:
        ConfigError: the wheel is not installed, or there is no drafter.
    """
    if given.drafter_folder is None:
        remedy = "Name one with --drafter."
        raise ConfigError("The peer dflash-official needs a drafter.", remedy=remedy, param="drafter")
    library = peer_library("dflash.model", "pip install --no-deps 'dflash>=0.1,<0.2'")
    drafter = library.DFlashDraftModel.from_pretrained(given.drafter_folder, dtype=given.dtype, use_safetensors=True)
    drafter = drafter.to(given.device).eval()
    ends = sorted(given.end_token_ids) or None

    def decode(task: Task) -> Sample:
        started = time.perf_counter()
        ids = torch.tensor([task.prompt], device=given.device)
        request = {"max_new_tokens": task.max_tokens, "stop_token_ids": ends, "temperature": given.temperature}
        with _clock_for(library, given.device), _seeded(task.seed, given.device):
            answer = library.dflash_generate(drafter, model, ids, return_stats=True, **request)
        tokens = tuple(answer.output_ids[0, len(task.prompt) :].tolist())
        total = time.perf_counter() - started
        # Its statistics do not tell drafting from reading.
        return Sample(tokens, tuple(answer.acceptance_lengths), answer.time_to_first_token, 0.0, 0.0, total)

    return Method(decode, model_bytes(model), lossless=given.temperature == 0.0)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Inside the block torch's random numbers are those of the seed; outside they go on as if nothing had happened."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _clock_for(library: Any, device: torch.device) -> Iterator[None]:
    """Inside the block the wheel's clock works without CUDA."""
    own = library._cuda_time
    if device.type != "cuda":
        library._cuda_time = time.perf_counter
    try:
        yield
    finally:
        library._cuda_time = own
