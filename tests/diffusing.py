"""Masked-diffusion answers through the engine's loop, with what every pass of theirs fixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from scripted import answer_all

from paceline.decode.apd import APD
from paceline.decode.diffusion import MaskedDiffusion
from paceline.engine.loop import Answer, Job
from paceline.request import Sampling


class Request(NamedTuple):
    """One answer to produce."""

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    suffix: tuple[int, ...] = ()


class Uncovered(NamedTuple):
    """An answer, of each pass the places it fixed, those behind the end left out, and the passes without a verifier."""

    tokens: list[int]
    finish_reason: str | None
    fixed: list[list[int]]
    skipped: list[int]

    @property
    def forward_passes(self) -> int:
        return len(self.fixed)

    @property
    def unmasked_per_step(self) -> list[int]:
        return [len(places) for places in self.fixed]


def uncover(
    decoder: MaskedDiffusion | APD, requests: Iterable[Request], max_batch: int = 1, ends: Sequence[int] | None = None
) -> list[Uncovered]:
    """Decode all requests; answers end at `ends`, else at the end tokens of the model."""
    for prompt, sampling, _, suffix in (requests := list(requests)):
        decoder.check(prompt, sampling, suffix)
    jobs = [Job(prompt, sampling, seed, suffix=suffix) for prompt, sampling, seed, suffix in requests]
    spec = decoder.dllm.model.spec
    found = frozenset(spec.eos_token_ids if ends is None else ends)
    return [_uncovered(answer) for answer in answer_all(decoder, jobs, ends=found, batch=max_batch)]


def _uncovered(answer: Answer[Any]) -> Uncovered:
    """With APD, which commits in order, a pass fixes what it commits."""
    length, done, fixed, by_place = len(answer.token_ids), 0, [], {}
    for round in answer.rounds:
        places = round.positions or range(done, done + len(round.committed))
        by_place.update(zip(places, round.proposed, strict=False))
        fixed.append([place for place in places if place < length])
        done += len(round.committed)
    assert answer.token_ids == [by_place[place] for place in range(length)]
    skipped = [index for index, round in enumerate(answer.rounds) if round.verifier_skipped]
    return Uncovered(answer.token_ids, answer.finish_reason, fixed, skipped)
