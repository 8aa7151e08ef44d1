"""What `paceline bench kernels` is asked to do.

Plain settings, without torch, so that the command line can show them quickly. Knows nothing of how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from paceline.bench.options import PEERS
from paceline.errors import ConfigError
from paceline.models.options import Drafter, Model, Precision, Threads, check_precision
from paceline.settings import Setting, check_ranges

__all__ = ["PASS_PEERS", "KernelBench"]

PASS_PEERS = tuple(peer for peer in PEERS if peer.startswith("llama.cpp-") and not peer.endswith("-lookup"))
"""Those whose passes can be timed one by one."""


@dataclass(frozen=True, slots=True)
class KernelBench:
    """Settings of `paceline bench kernels`, on a CPU; an inflated model is in `models.inflate`.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    model: Model = None
    drafter: Drafter = None
    inflate: Annotated[int, Setting("So many times as wide, computing the same function.", least=1, most=16)] = 1
    rows: Annotated[tuple[int, ...], Setting("Of a product or pass; may be repeated.", least=1, most=64)] = (
        *(1, 2, 4, 8),
        *(16, 32, 64),
    )
    precisions: Annotated[
        tuple[Precision, ...],
        Setting("Of native products and passes; may be repeated. Those of torch are float32.", flags=("--precision",)),
    ] = ("exact",)
    peers: Annotated[
        tuple[str, ...],
        Setting(f"Also time the target's pass in these, a,b: {', '.join(PASS_PEERS)}.", flags=("--peer", "--peers")),
    ] = ()
    repeats: Annotated[int, Setting("Turns that everything takes.", least=1)] = 9
    seconds: Annotated[float, Setting("Least time of a turn; its mean counts as one sample.", least=0, most=60)] = 0.02
    threads: Threads = None

    def __post_init__(self) -> None:
        check_ranges(self)
        object.__setattr__(self, "peers", tuple(name for names in self.peers for name in names.split(",") if name))
        object.__setattr__(self, "rows", tuple(sorted(set(self.rows))))
        for name in ("rows", "precisions"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty.", remedy="Name at least one.", param=name)
        for precision in self.precisions:
            check_precision(precision)
        for peer in self.peers:
            if peer not in PASS_PEERS:
                remedy = f"Known here: {', '.join(PASS_PEERS)}."
                raise ConfigError(f"peer is {peer!r:.40}.", remedy=remedy, param="peers")
