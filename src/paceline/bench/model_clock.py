"""Seconds inside the two models: what is left of a round is our own doing.

The decoders do not measure this themselves: on a GPU they would have to wait for every pass. So the benchmark puts a
clock around the passes, for as long as it runs. Knows nothing of rounds and methods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from paceline.models.drafter import Drafter
from paceline.models.transformer import Transformer

__all__ = ["ModelClock", "timed"]

_OF_TARGET = "forward", "read", "choose", "go_on", "head"
_OF_DRAFTER = "forward", "read", "choose", "rank"
"""Methods that make a pass, the head aside."""


@dataclass(slots=True)
class ModelClock:
    """Seconds since the last `restart`.

    Attributes:
        draft_seconds: inside the drafter: its layers, its context rows, the head for its proposals.
        verify_seconds: inside the target: its layers and its head.
        draft_passes: of the drafter over a block.
    """

    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    draft_passes: int = 0
    _inside: bool = False

    def restart(self) -> None:
        """Begin at 0."""
        self.draft_seconds = self.verify_seconds = 0.0
        self.draft_passes = 0

    def around(
        self, work: Callable[..., Any], part: str, device: torch.device, drafts: bool = False
    ) -> Callable[..., Any]:
        """`work`, its seconds added to `part`; not when another call that counts has called it.

        Args:
            drafts: it is a pass of the drafter, unless it gives None: then it was none.
        """

        def measured(*args: Any, **settings: Any) -> Any:
            if self._inside:
                return work(*args, **settings)
            self._inside, started = True, time.perf_counter()
            try:
                found = work(*args, **settings)
                self.draft_passes += drafts and found is not None
                return found
            finally:
                if device.type != "cpu":
                    torch.accelerator.synchronize(device)
                setattr(self, part, getattr(self, part) + time.perf_counter() - started)
                self._inside = False

        return measured


@contextmanager
def timed(model: Transformer, drafter: Drafter | None) -> Iterator[ModelClock]:
    """Inside the block the clock counts every pass of both models."""
    clock, device = ModelClock(), model.embed.weight.device
    passes: list[tuple[object, str, str]] = [(model, name, "verify_seconds") for name in _OF_TARGET]
    if drafter is not None:
        passes += [(drafter, name, "draft_seconds") for name in (*_OF_DRAFTER, "logits")]
        passes.append((drafter.context, "extend", "draft_seconds"))
    before = [(vars(owner), name, vars(owner).get(name)) for owner, name, _ in passes]
    for owner, name, part in passes:
        drafts = owner is drafter and name in _OF_DRAFTER
        vars(owner)[name] = clock.around(getattr(owner, name), part, device, drafts)
    try:
        yield clock
    finally:
        for attributes, name, own in before:
            if own is None:
                del attributes[name]
            else:
                attributes[name] = own
