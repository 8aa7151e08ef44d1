"""What a user chooses of a model: which one, how it decodes and computes, and where.

Plain settings, without torch, so that the command line can show them quickly. Knows nothing of how they are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from paceline.errors import ConfigError
from paceline.settings import Setting

__all__ = [
    "PRECISIONS",
    "PROMISES",
    "Device",
    "Drafter",
    "MaxBatch",
    "Method",
    "Model",
    "Precision",
    "PrecisionSetting",
    "Threads",
    "Verifier",
    "check_precision",
]

Method = Literal["auto", "ar", "dflash", "lookup", "diffusion", "apd"]

Precision = Literal["exact", "mixed", "half", "int8", "int8-32", "w8a8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

PROMISES = (
    "exact is float32: plain decoding's tokens, up to certified near-ties of 1e-4. mixed (products and drafter in "
    "bfloat16, the target's attention and norms in float32) and half (all in bfloat16): each token is plain "
    "decoding's own in the same precision, up to near-ties of its rounding; most of them are what exact gives "
    "(docs/equality.md). int8 rounds the weights of all products to int8, with a scale for each output, int8-32 with "
    "one for every 32 weights, and computes in float32: half the memory to read, plain decoding's tokens for these "
    "weights (docs/native.md). w8a8 rounds what they are multiplied with as well, and again gives the tokens of plain "
    "decoding in this precision: fastest."
)
"""What equality each precision promises."""

Model = Annotated[str | Path | None, Setting("A folder, a hub id or a bundled model; the bundled one if left out.")]
Drafter = Annotated[str | Path | None, Setting("The same for a DFlash drafter of the model.")]
Verifier = Annotated[
    str | Path | None,
    Setting("The same for APD's verifier: a small autoregressive model with the tokenizer of the diffusion model."),
]
PrecisionSetting = Annotated[Precision, Setting(PROMISES)]
Device = Annotated[str, Setting("auto, cpu, cuda, ...")]
MaxBatch = Annotated[
    int, Setting("Answers decoded together at most, where there are several; others follow as these end.", least=1)
]
Threads = Annotated[int | None, Setting("Threads on a CPU.", least=1, most=1024)]


def check_precision(name: str) -> None:
    """Refuse what is no precision.

    Raises:
        ConfigError: names the value and the precisions there are.
    """
    if name not in PRECISIONS:
        remedy = f"There are: {', '.join(PRECISIONS)}."
        raise ConfigError(f"precision is {name!r:.40}.", remedy=remedy, param="precision")
