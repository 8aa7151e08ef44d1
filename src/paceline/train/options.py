"""What training is asked to do: the settings of the loop and of the recipes, which are also flags and YAML keys.

Those of APD's two models are in `diffusion_options`. Plain settings, without torch, so that the command line can show
them quickly. Knows nothing of how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from paceline.errors import SettingError
from paceline.settings import Setting, check_kinds, check_ranges

__all__ = [
    "TURN_START",
    "DrafterConfig",
    "FitConfig",
    "Objective",
    "ResponsesConfig",
    "TargetConfig",
    "UnloopConfig",
    "VersionConfig",
]

Weighting = Literal["decay", "pace"]

TURN_START = "<|im_start|>assistant\n"
"""What opens an assistant's turn in the chat format of the zoo."""

_HOTTEST = 100.0
"""The highest temperature that a request may have."""


@dataclass(frozen=True, slots=True)
class FitConfig:
    """Settings of a run, whatever is trained.

    Raises:
        ConfigError: a number out of range.
    """

    steps: Annotated[int, Setting("Optimiser steps in all; the schedule ends there.", least=1)]
    learning_rate: Annotated[
        float,
        Setting(
            "Peak rate of both optimisers (Muon's update is matched to AdamW's RMS).", least=0, alias="training.lr"
        ),
    ] = 4e-3
    warmup_steps: Annotated[int, Setting("Steps of linear rise, before the cosine down.", least=0)] = 50
    final_share: Annotated[float, Setting("Last rate, as a share of the peak.", least=0, most=1)] = 0.02
    clip: Annotated[float, Setting("Largest gradient norm.", least=0)] = 1.0
    micro_batches: Annotated[
        int, Setting("Backward passes per step, shared out among all processes; they must divide it.", least=1)
    ] = 1
    ema_decay: Annotated[
        float,
        Setting(
            "Evaluate and save a running average of the weights, such as 0.99; 0 for the last ones.", least=0, below=1
        ),
    ] = 0.0
    evaluate_every: Annotated[int, Setting("Steps between evaluations; there is one at the end.", least=1)] = 100
    save_every: Annotated[int, Setting("Steps between savings; there is one at the end.", least=1)] = 100
    compile: Annotated[
        bool, Setting("Use torch.compile, which needs a C++ compiler and may gain nothing: compare some steps.")
    ] = False
    gradient_checkpointing: Annotated[
        bool, Setting("Compute layers again in the backward pass instead of keeping them: less memory, more time.")
    ] = False
    seed: Annotated[int, Setting("Of everything that is drawn.", least=0, most=2**32 - 1)] = 0

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """Settings of a target's training."""

    corpus: Annotated[Path, Setting("Folder with train.npz and heldout.npz, as `paceline zoo corpus` writes it.")]
    fit: FitConfig
    window_tokens: Annotated[int, Setting("Length of a training window.", least=2)] = 384
    windows_per_batch: Annotated[int, Setting("Windows of a micro batch.", least=1)] = 11
    repeated_windows: Annotated[
        int, Setting("Of these, how many repeat themselves, to teach the model not to loop.", least=0)
    ] = 0
    evaluation_windows: Annotated[int, Setting("Held-out windows per evaluation.", least=1)] = 33


@dataclass(frozen=True, slots=True)
class UnloopConfig:
    """Settings of teaching a target out of its loops."""

    corpus: Annotated[Path, Setting("Folder with train.npz and heldout.npz, as `paceline zoo corpus` writes it.")]
    fit: FitConfig
    window_tokens: Annotated[int, Setting("Length of a training window.", least=2)] = 384
    windows_per_batch: Annotated[int, Setting("Windows of a micro batch.", least=1)] = 7
    answers_per_batch: Annotated[int, Setting("Looping answers of a micro batch.", least=1)] = 14
    loop_share: Annotated[
        float, Setting("An answer loops where more than this share of it was said before.", least=0, most=1)
    ] = 0.25
    evaluation_windows: Annotated[int, Setting("Held-out windows per evaluation.", least=1)] = 22


@dataclass(frozen=True, slots=True)
class Objective:
    """Which slots are masked, what a slot's loss is, and what it weighs.

    Raises:
        ConfigError: no such weighting, or shares of more than the whole.
    """

    weighting: Annotated[
        Weighting, Setting("How slots are weighted: exp(-(slot - 1) / gamma), or by D-PACE, see train/losses.py.")
    ] = "decay"
    gamma: Annotated[float, Setting("Decay of the slots' weights.", least=0.1)] = 7.0
    distill_share: Annotated[
        float, Setting("Share of KL(target || drafter) in the loss; the rest is cross-entropy.", least=0, most=1)
    ] = 0.0
    teacher_top_k: Annotated[int, Setting("Likeliest tokens of the target that are told apart in it.", least=1)] = 16
    step_distill_share: Annotated[
        float,
        Setting("Share of KL(drafter at more steps || drafter) in the loss, besides distill_share.", least=0, most=1),
    ] = 0.0
    teacher_steps: Annotated[int, Setting("Denoising steps of that drafter.", least=2)] = 4
    reveal_share: Annotated[
        float, Setting("Share of the blocks that start with some of their slots filled.", least=0, most=1)
    ] = 0.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_ranges(self)
        if self.distill_share + self.step_distill_share > 1.0 + 1e-9:
            told = {name: f"is {getattr(self, name)}" for name in ("distill_share", "step_distill_share")}
            raise SettingError(told, remedy="Lower one: the loss has no more than 1 to share out.")


@dataclass(frozen=True, slots=True)
class VersionConfig:
    """Which version of DFlash a new drafter is of. The sizes are of version 2, and say nothing of version 1."""

    drafter_version: Annotated[
        int, Setting("2 for a drafter whose slots know their left neighbour.", least=1, most=2)
    ] = 1
    conv_kernel_size: Annotated[
        int, Setting("Slots that a convolution of version 2 sees, its own included.", least=1, most=64)
    ] = 2
    conv_group_size: Annotated[
        int, Setting("Channels that share a kernel in version 2; it must divide the width.", least=1)
    ] = 16
    selector_rank: Annotated[int, Setting("Width of the codebooks of version 2's selector.", least=1, most=1024)] = 64
    selector_top_k: Annotated[int, Setting("Candidates per slot that this selector sees.", least=1, most=256)] = 16


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """Settings of a drafter's training.

    Raises:
        ConfigError: too small a block.
    """

    fit: FitConfig
    block_size: Annotated[
        int | None,
        Setting(
            "Slots of the new drafter's blocks, anchor included; 0 for a guess from the target's width; 16, or those "
            "of the drafter that is started from.",
            least=0,
            most=64,
        ),
    ] = None
    rows_per_batch: Annotated[int, Setting("Answers of a micro batch.", least=1)] = 32
    block_rows: Annotated[
        int, Setting("Slots per answer, anchors included; shared out over blocks of one random length.", least=1)
    ] = 96
    version: VersionConfig = VersionConfig()
    shortest_block: Annotated[int, Setting("Blocks are this long, up to the drafter's own.", least=2)] = 4
    objective: Objective = Objective()
    heldout_rows: Annotated[
        int, Setting("Answers kept back, to measure the acceptance length on; at most a quarter.", least=1)
    ] = 128

    def __post_init__(self) -> None:
        if 0 < self.first_block_size < 4:
            raise SettingError(
                {"block_size": f"is {self.block_size}"}, remedy="It must be at least 4, or 0 for a guess."
            )

    @property
    def first_block_size(self) -> int:
        """Slots of the blocks of a drafter that begins with random weights; 0 for a guess."""
        return 16 if self.block_size is None else self.block_size


@dataclass(frozen=True, slots=True)
class ResponsesConfig:
    """What a target is to answer, for a drafter to learn from.

    Raises:
        ConfigError: lengths of prompts or temperatures that are not in order, or not above 0.
    """

    count: Annotated[int, Setting("Answers the target generates to learn from.", least=8)] = 4800
    prompt_tokens: Annotated[tuple[int, int], Setting("Shortest and longest beginning of a plain document.")] = (24, 80)
    chat_share: Annotated[
        float, Setting("Share of the answers that are turns of a chat, where the corpus has both.", least=0, most=1)
    ] = 0.5
    max_tokens: Annotated[int, Setting("Longest answer.", least=8)] = 160
    sampled_share: Annotated[float, Setting("Share that is sampled; the rest is greedy.", least=0, most=1)] = 0.25
    temperatures: Annotated[
        tuple[float, float], Setting("Lowest and highest temperature; each sampled answer draws its own between them.")
    ] = (0.5, 1.0)
    batch: Annotated[int, Setting("Answers decoded together.", least=1)] = 48
    part: Annotated[int, Setting("Answers per file: so many are lost when the run is killed.", least=1)] = 480
    seed: Annotated[int, Setting("Of everything that is drawn.", least=0)] = 0

    def __post_init__(self) -> None:
        shortest, longest = self.prompt_tokens
        if not 1 <= shortest <= longest:
            told = {"prompt_tokens": f"is {self.prompt_tokens}"}
            raise SettingError(told, remedy="Give the shorter length first.")
        lowest, highest = self.temperatures
        if not 0.0 < lowest <= highest <= _HOTTEST:
            remedy = f"Give the lower one first, both above 0 and at most {_HOTTEST:g}."
            raise SettingError({"temperatures": f"is {self.temperatures}"}, remedy=remedy)
