"""A running average of the weights (Polyak and Juditsky 1992; exponential): what is evaluated and kept as the result.

Its first steps forget faster, so that the random weights of the start weigh nothing in a short run. Knows no loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["Average"]


class Average:
    """average <- decay * average + (1 - decay) * weights, of the trained weights of `module`; decay 0 averages nothing.

    Where nothing is averaged, everything here leaves the module as it is.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._decay = decay
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad and decay > 0.0}
        self._weights = trained
        self._average = {name: p.detach().clone() for name, p in trained.items()}

    def update(self, step: int) -> None:
        """Take in the weights after `step` steps; the decay is (1 + step) / (10 + step) as long as that is less."""
        decay = min(self._decay, (1 + step) / (10 + step))
        for name, average in self._average.items():
            average.lerp_(self._weights[name].detach(), 1.0 - decay)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The module has the averaged weights inside the block, and its own again behind it."""
        own = {name: p.detach().clone() for name, p in self._weights.items()}
        self.keep()
        try:
            yield
        finally:
            self._set(own)

    def keep(self) -> None:
        """The module has the averaged weights from now on."""
        self._set(self._average)

    def state_dict(self) -> dict[str, Tensor]:
        """The averaged weights by name; empty where nothing is averaged."""
        return self._average

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state_dict` gave."""
        for name, average in self._average.items():
            average.copy_(state[name])

    @torch.no_grad()
    def _set(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in weights.items():
            self._weights[name].copy_(weight)
