"""What `paceline bench throughput` is asked to do.

Plain settings, without torch, so that the command line can show them quickly. Knows nothing of how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from paceline.bench.options import Workload
from paceline.models.options import PrecisionSetting, check_precision
from paceline.settings import Setting

__all__ = ["ThroughputBench"]

Serving = Literal["ar", "dflash"]
"""Methods that answer requests."""


@dataclass(frozen=True, slots=True)
class ThroughputBench(Workload):
    """Settings of `paceline bench throughput`. Each repeat has arrivals of its own, the same for everybody.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    precision: PrecisionSetting = "exact"
    methods: Annotated[
        tuple[Serving, ...],
        Setting("May be repeated; ar, and dflash where there is a drafter, if left out.", flags=("--method",)),
    ] = ()
    running: Annotated[
        tuple[int, ...], Setting("Answers that decode together at most; may be repeated.", least=1, most=256)
    ] = (1, 8)
    loads: Annotated[
        tuple[float, ...],
        Setting(
            "Arrivals, times what one plain answer at a time can serve; may be repeated.",
            least=0.01,
            most=100,
            flags=("--load",),
        ),
    ] = (0.1, 0.4, 0.8, 1.2, 1.6, 2.4)
    seconds: Annotated[float, Setting("Of arrivals at each load.", least=0.1, most=3600)] = 10.0
    temperature: Annotated[float, Setting("Of every request.", least=0, most=100)] = 0.0

    def __post_init__(self) -> None:
        Workload.__post_init__(self)  # super() knows the class that `slots` has replaced
        check_precision(self.precision)
