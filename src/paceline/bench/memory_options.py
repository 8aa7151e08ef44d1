"""What `paceline bench memory` is asked to do.

Plain settings, without torch, so that the command line can show them quickly. Knows nothing of how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from paceline.errors import ConfigError
from paceline.settings import Setting, check_ranges

__all__ = ["MemoryBench"]


@dataclass(frozen=True, slots=True)
class MemoryBench:
    """Settings of `paceline bench memory`. Only the shapes of the models are read.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    model: Annotated[
        str | Path | None, Setting("A folder, a hub id or a bundled model; also APD's verifier. The bundled target.")
    ] = None
    dllm: Annotated[
        str | Path | None, Setting("The same for APD's diffusion model; one of the model's shape if left out.")
    ] = None
    lengths: Annotated[
        tuple[int, ...], Setting("Tokens of the prompt; may be repeated.", least=1, most=1 << 17, flags=("--length",))
    ] = (256, 512, 1024, 2048, 4096, 8192)

    def __post_init__(self) -> None:
        check_ranges(self)
        if len(set(self.lengths)) < 2:
            remedy = "A growth needs two different lengths at least."
            raise ConfigError(f"lengths is {list(self.lengths)}.", remedy=remedy, param="lengths")
