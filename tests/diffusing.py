"""Masked-diffusion answers through the engine's loop, with what every pass of theirs fixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scripted import answer_all

from paceline.decode.diffusion import MaskedDiffusion
from paceline.engine.loop import Job
from paceline.request import Sampling


class Request(NamedTuple):
    """One answer to produce."""

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    suffix: tuple[int, ...] = ()


class Uncovered(NamedTuple):
    """An answer, and of each pass the places it fixed, those behind the end left out."""

    tokens: list[int]
    finish_reason: str | None
    fixed: list[list[int]]

    @property
    def forward_passes(self) -> int:
        return len(self.fixed)

    @property
    def unmasked_per_step(self) -> list[int]:
        return [len(places) for places in self.fixed]


def uncover(
    decoder: MaskedDiffusion, requests: Iterable[Request], max_batch: int = 1, ends: Sequence[int] | None = None
) -> list[Uncovered]:
    """Decode all requests; answers end at `ends`, else at the end tokens of the model."""
    for prompt, sampling, _, suffix in (requests := list(requests)):
        decoder.check(prompt, sampling, suffix)
    jobs = [Job(prompt, sampling, seed, suffix=suffix) for prompt, sampling, seed, suffix in requests]
    found = frozenset(decoder.model.spec.eos_token_ids if ends is None else ends)
    uncovered = []
    for answer in answer_all(decoder, jobs, ends=found, batch=max_batch):
        length = len(answer.token_ids)
        fixed = [[place for place in round.positions if place < length] for round in answer.rounds]
        uncovered.append(Uncovered(answer.token_ids, answer.finish_reason, fixed))
        pairs = [pair for round in answer.rounds for pair in zip(round.positions, round.proposed, strict=True)]
        assert answer.token_ids == [dict(pairs)[place] for place in range(length)]
    return uncovered
