"""Benchmarks that measure answers other than those that were given, to see whether it is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paceline.bench.figures import Sample
from paceline.bench.method import Task

DecodeWith = Callable[..., Callable[[Task], Sample]]
"""`race.decode_with`: (decoder, …) -> what measures one answer."""


def lying(honest: DecodeWith, lie: Callable[[Any, Task, Sample], Sample]) -> DecodeWith:
    """`honest`, with lie(decoder, task, sample) for every sample."""

    def decode_with(decoder: Any, *rest: Any) -> Callable[[Task], Sample]:
        decode = honest(decoder, *rest)
        return lambda task: lie(decoder, task, decode(task))

    return decode_with


def wrong_token(sample: Sample) -> Sample:
    """Another token in place 9."""
    return replace(sample, tokens=(*sample.tokens[:9], (sample.tokens[9] + 1) % 250, *sample.tokens[10:]))
