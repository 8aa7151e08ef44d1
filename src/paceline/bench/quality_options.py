"""What `paceline bench quality` and `paceline bench frontier` are asked to do.

Plain settings, without torch, so that the command line can show them quickly. Knows nothing of how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from paceline.bench.configuration import Configuration, read_configuration
from paceline.errors import ConfigError
from paceline.models.options import Device, Threads
from paceline.settings import Setting, check_ranges

__all__ = ["ADAPTIVE", "REFERENCE", "FrontierBench", "QualityBench"]

REFERENCE = "diffusion,tokens_per_step=1"
"""Standard decoding of a masked diffusion model: low_confidence, one token per pass."""

ADAPTIVE = "apd,alpha=0.7,tau=0.5"
"""APD as the source article sets it: it trusts the diffusion model the more, the surer the verifier is."""

_COMPARED = (
    "ar",
    "dflash",
    "verifier",
    REFERENCE,
    "diffusion,strategy=left_to_right",
    "diffusion,tokens_per_step=2",
    "diffusion,tokens_per_step=4",
    "diffusion,threshold=0.9",
    "apd",
    ADAPTIVE,
)

_SWEPT = (
    *("ar", "dflash", "verifier"),
    *(f"diffusion,tokens_per_step={tokens}" for tokens in (1, 2, 4, 8)),
    *(f"diffusion,threshold={threshold}" for threshold in (0.7, 0.9, 0.95)),
    *(f"diffusion,factor={factor}" for factor in (0.5, 1.0)),
    *(f"diffusion,threshold=0.9,block_length={length}" for length in (16, 32)),
    "diffusion,threshold=0.9,block_length=16,cache=dual",
    *(f"diffusion,strategy=left_to_right,tokens_per_step={tokens}" for tokens in (1, 2, 4)),
    "apd",
    *(f"apd,alpha={alpha}" for alpha in (0.1, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0)),
    *(f"apd,alpha={alpha},tau={tau}" for alpha in (0.3, 0.5, 0.7) for tau in (0.3, 0.5)),
    *(f"apd,window={window}" for window in (8, 16, 64, "all")),
    *(f"apd,kv_window={tokens}" for tokens in (4, 8, 32, "all")),
    *(f"apd,alpha={alpha},window=16,kv_window={tokens}" for alpha in (0.5, 0.9) for tokens in (8, "all")),
)
"""Each knob of APD around its defaults, a small grid, and what else can be set to be faster or better."""


@dataclass(frozen=True, slots=True)
class QualityBench:
    """Settings of `paceline bench quality`: a diffusion model, its verifier, and a target of equal size.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    dllm: Annotated[
        str | Path | None, Setting("The diffusion language model: a folder, a hub id or a bundled model.")
    ] = None
    verifier: Annotated[str | Path | None, Setting("The same for its small autoregressive verifier.")] = None
    target: Annotated[str | Path | None, Setting("The same for an autoregressive model to compare with.")] = None
    drafter: Annotated[str | Path | None, Setting("The same for a DFlash drafter of that.")] = None
    problems: Annotated[int, Setting("So many held-out problems.", least=1)] = 500
    kinds: Annotated[
        tuple[str, ...], Setting("Of sums,records,functions; all if left out.", flags=("--kinds", "--kind"))
    ] = ()
    max_tokens: Annotated[
        int | None, Setting("Length of every answer; the longest right one, rounded up, if left out.", least=1)
    ] = None
    settings: Annotated[
        tuple[str, ...],
        Setting("May be repeated: a method and its settings, as apd,alpha=0.7,kv_window=16.", flags=("--setting",)),
    ] = _COMPARED
    reference: Annotated[
        str,
        Setting(
            f"The setting whose accuracy the others should keep; if left out, {REFERENCE}, or the first setting where "
            "all of them are the target's."
        ),
    ] = ""
    batch: Annotated[int, Setting("Problems that are answered together.", least=1)] = 1
    repeats: Annotated[int, Setting("Measurements of each.", least=1)] = 1
    device: Device = "auto"
    threads: Threads = None

    def __post_init__(self) -> None:
        check_ranges(self)
        named = [name.strip() for names in self.kinds for name in names.split(",")]
        object.__setattr__(self, "kinds", tuple(filter(None, named)))
        if not self.settings:
            raise ConfigError("settings is empty.", remedy="Name at least one.", param="settings")
        if not self.reference:
            theirs = all(read_configuration(text).method in ("ar", "dflash") for text in self.settings)
            object.__setattr__(self, "reference", self.settings[0] if theirs else REFERENCE)
        _ = self.configurations

    @property
    def configurations(self) -> list[Configuration]:
        """What is measured, the reference always, each once."""
        return [read_configuration(text) for text in dict.fromkeys([*self.settings, self.reference])]

    @property
    def methods(self) -> frozenset[str]:
        """Of these configurations."""
        return frozenset(each.method for each in self.configurations)


@dataclass(frozen=True, slots=True)
class FrontierBench(QualityBench):
    """Settings of `paceline bench frontier`: the same for many more settings.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    problems: Annotated[int, Setting("So many held-out problems.", least=1)] = 100
    settings: Annotated[
        tuple[str, ...],
        Setting("May be repeated: a method and its settings, as apd,alpha=0.7,kv_window=16.", flags=("--setting",)),
    ] = _SWEPT
