"""What the training of APD's two models is asked to do, as `options` says it of the others.

Plain settings, without torch. Knows nothing of how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from paceline.errors import SettingError
from paceline.models.options import Precision, check_precision
from paceline.settings import Setting
from paceline.train.options import FitConfig, ResponsesConfig

__all__ = ["ROW_STEP", "DllmConfig", "JointConfig", "NgramConfig", "SamplesConfig", "VerifierConfig"]

ROW_STEP = 32
"""Rows of a diffusion model's training are multiples of so many tokens long."""

_TOKENS_PER_BATCH = 4224


@dataclass(frozen=True, slots=True)
class DllmConfig:
    """Settings of a diffusion language model's training.

    Raises:
        ConfigError: rows that are not multiples of 32 tokens, or not in order; a batch that does not hold the longest,
            or whose size is given twice.
    """

    corpus: Annotated[Path, Setting("Folder with train.npz and heldout.npz, as `paceline zoo corpus` writes it.")]
    fit: FitConfig
    shortest_row: Annotated[int, Setting("Rows are at least so many tokens long, a multiple of 32.", least=32)] = 64
    longest_row: Annotated[int, Setting("Rows are at most so many tokens long, a multiple of 32.", least=32)] = 384
    tokens_per_batch: Annotated[
        int | None, Setting("Tokens of a micro batch, in rows of one length; 4224 without rows_per_batch.", least=32)
    ] = None
    rows_per_batch: Annotated[
        int | None,
        Setting(
            "Rows of a micro batch, however long; instead of tokens_per_batch.", least=1, alias="training.batch_size"
        ),
    ] = None
    run_share: Annotated[
        float,
        Setting(
            "Share of rows that lose one run of tokens, at the end or inside; the others random ones.", least=0, most=1
        ),
    ] = 0.5
    longest_run: Annotated[int, Setting("Tokens of such a run at most.", least=1)] = 64
    diffusion_steps: Annotated[
        int | None,
        Setting(
            "Noise levels T: tokens are masked at random with a probability of 1/T, 2/T … or 1; any, if left out.",
            least=1,
            alias="training.diffusion_steps",
        ),
    ] = None
    evaluation_rows: Annotated[int, Setting("Held-out rows per evaluation.", least=1)] = 66

    def __post_init__(self) -> None:
        if self.shortest_row % ROW_STEP or self.longest_row % ROW_STEP or self.shortest_row > self.longest_row:
            raise self._refusal("shortest_row", "longest_row", f"Give multiples of {ROW_STEP}, the shorter first.")
        if self.rows_per_batch is not None and self.tokens_per_batch is not None:
            remedy = "Give one of them: both say how large a micro batch is."
            raise self._refusal("rows_per_batch", "tokens_per_batch", remedy)
        if self.rows_of(self.longest_row) < 1:
            told = {"tokens_per_batch": f"is {self.batch[1]}", "longest_row": f"is {self.longest_row}"}
            raise SettingError(told, remedy="A batch must hold one row at least.")

    def _refusal(self, name: str, other: str, remedy: str) -> SettingError:
        return SettingError({each: f"is {getattr(self, each)}" for each in (name, other)}, remedy=remedy)

    @property
    def batch(self) -> tuple[str, int]:
        """The setting that says how large a micro batch is, and its value."""
        if self.rows_per_batch is not None:
            return "rows_per_batch", self.rows_per_batch
        return "tokens_per_batch", self.tokens_per_batch or _TOKENS_PER_BATCH

    def rows_of(self, length: int) -> int:
        """How many rows of this length a micro batch has."""
        return self.rows_per_batch or self.batch[1] // length


@dataclass(frozen=True, slots=True)
class JointConfig:
    """Settings of training a diffusion model and its verifier together."""

    rows: DllmConfig
    marginal_share: Annotated[
        float, Setting("Share of the diffusion model's own loss; the rest is that of the product.", least=0, most=1)
    ] = 0.7
    alpha: Annotated[float, Setting("The diffusion model's weight in the product, as in APD.", least=0, most=1)] = 0.5


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """Settings of a verifier's training."""

    corpus: Annotated[Path, Setting("Folder with train.npz and heldout.npz, as `paceline zoo corpus` writes it.")]
    fit: FitConfig
    window_tokens: Annotated[int, Setting("Length of a window of the corpus.", least=2)] = 256
    windows_per_batch: Annotated[int, Setting("Windows of the corpus in a micro batch.", least=1)] = 16
    samples_per_batch: Annotated[int, Setting("Samples of the diffusion model in a micro batch.", least=1)] = 32
    distill_share: Annotated[
        float,
        Setting("Share of KL(dLLM || verifier) in the loss; the rest is the corpus.", least=0, most=1),
    ] = 0.7
    heldout_samples: Annotated[int, Setting("Samples kept back for evaluations; at most a quarter.", least=1)] = 128


@dataclass(frozen=True, slots=True)
class SamplesConfig:
    """What a diffusion model is to say from left to right, for a verifier to learn from.

    Raises:
        ConfigError: more tokens per step than are seen.
    """

    texts: ResponsesConfig
    window: Annotated[int | None, Setting("Masks that the diffusion model sees; all if null.", least=1)] = 32
    kv_window: Annotated[
        int | None, Setting("Recompute so many tokens before those of the last pass, less one; all if null.", least=1)
    ] = 16
    tokens_per_step: Annotated[int, Setting("Tokens fixed in a pass; 1 is what the model can do best.", least=1)] = 1
    teacher_top_k: Annotated[int, Setting("Likeliest tokens that are told apart in what it says.", least=1)] = 16
    precision: Annotated[Precision, Setting("In which it speaks: half and mixed are faster where half is.")] = "exact"

    def __post_init__(self) -> None:
        check_precision(self.precision)
        if self.window is not None and self.tokens_per_step > self.window:
            told = {name: f"is {getattr(self, name)}" for name in ("tokens_per_step", "window")}
            raise SettingError(told, remedy="A pass fixes no more masks than it sees.")


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """Settings of the table of what a verifier says behind frequent contexts."""

    corpus: Annotated[Path, Setting("Folder with train.npz, as `paceline zoo corpus` writes it.")]
    context_tokens: Annotated[int, Setting("Tokens of a context.", least=1, most=16)] = 3
    contexts: Annotated[int, Setting("The most frequent contexts: so many at most.", least=1)] = 50_000
    places: Annotated[int, Setting("Places of a context whose mean is kept; fewer where it is rare.", least=1)] = 8
    top_k: Annotated[int, Setting("Likeliest tokens that are told apart; the others share their mass.", least=1)] = 32
    window_tokens: Annotated[int, Setting("Length of the pieces of text that the verifier reads.", least=2)] = 256
    windows_per_batch: Annotated[int, Setting("Pieces that it reads at once.", least=1)] = 16
