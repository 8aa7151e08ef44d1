"""Plain decoding, one token per round: the oracle that every other method is compared with."""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch

from paceline.completion import Round
from paceline.decode.commit import plain_record, read_plainly
from paceline.decode.sequence import Sequence
from paceline.decode.target import Target
from paceline.request import Sampling

__all__ = ["Autoregressive"]


@dataclass(frozen=True, slots=True)
class Autoregressive:
    """Propose nothing, read the anchor, commit the target's next token."""

    target: Target
    name = "ar"

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded; see `Target.check`."""
        self.target.check(prompt, sampling, suffix)

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Sequence:
        """A new sequence; see `Target.open`."""
        assert not suffix, "`check` refuses holes"
        return self.target.open(prompt, sampling, seed, draft_cache=None)

    @torch.inference_mode()
    def prefill(self, sequences: Many[Sequence]) -> list[tuple[int, ...]]:
        """Read the prompts and commit the first token of each answer."""
        self.target.prefill(sequences)
        return [sequence.new_tokens for sequence in sequences]

    @torch.inference_mode()
    def step(self, sequences: Many[Sequence]) -> list[Round]:
        """One round for every sequence."""
        started = time.perf_counter()
        readings, _ = read_plainly(self.target, sequences)
        seconds = (time.perf_counter() - started) / len(sequences)
        return [plain_record(reading, seconds) for reading in readings]
