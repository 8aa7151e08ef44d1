"""The processes that train together, by Accelerate: one, or as many as torchrun or `accelerate launch` have started.

The micro batches of a step are shared out among them and the gradients averaged, so that any number of processes takes
the same step, up to rounding. Accelerate is imported when training starts. Knows nothing of models or batches.
"""

from __future__ import annotations

from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from paceline.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from accelerate import Accelerator, PartialState

__all__ = ["accelerator", "check_same_step", "join", "own_share"]

_PATIENCE = timedelta(days=1)
"""How long processes wait for each other: the first one alone writes answers and evaluates, the others wait."""


def join(cpu: bool = True) -> PartialState:
    """Meet the other processes, where there are some; may be called again.

    Raises:
        ConfigError: Accelerate is not installed.
    """
    if find_spec("accelerate") is None:
        remedy = "Install it: pip install 'paceline[train]'."
        raise ConfigError("accelerate, which training runs on, is not installed.", remedy=remedy)
    from accelerate import PartialState

    return PartialState(cpu=cpu, timeout=_PATIENCE)


def accelerator(micro_batches: int, device: torch.device) -> Accelerator:
    """Precision (bfloat16 products), accumulation over this process's share of `micro_batches`, averaged gradients.

    Raises:
        ConfigError: Accelerate is not installed, or the micro batches cannot be shared out.
    """
    cpu = device.type == "cpu"
    team = join(cpu)
    share = len(own_share(micro_batches, team.process_index, team.num_processes))
    from accelerate import Accelerator
    from accelerate.utils import GradientAccumulationPlugin

    # The plugin rather than the number: an environment variable of `accelerate launch` would win over the number.
    accumulation = GradientAccumulationPlugin(num_steps=share, sync_with_dataloader=False)
    return Accelerator(
        mixed_precision="bf16", cpu=cpu, device_placement=False, gradient_accumulation_plugin=accumulation
    )


def own_share(micro_batches: int, index: int, count: int) -> range:
    """Which micro batches of a step process `index` of `count` takes.

    Raises:
        ConfigError: `count` does not divide them.
    """
    if micro_batches % count:
        remedy = f"It must be a multiple of {count}; lower the size of a micro batch by as much."
        raise ConfigError(f"micro_batches is {micro_batches}, for {count} processes.", remedy=remedy)
    return range(index, micro_batches, count)


def check_same_step(team: Accelerator, step: int) -> None:
    """Refuse processes that would go on from different checkpoints.

    Raises:
        TrainingError: they stand at different steps.
    """
    steps = team.gather(torch.tensor([step], device=team.device)).tolist()
    if len(set(steps)) > 1:
        remedy = "Give all processes one folder, on a disk that they share."
        raise TrainingError(f"The processes stand at the steps {steps}.", remedy=remedy)
