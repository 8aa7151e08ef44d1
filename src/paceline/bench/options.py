"""What the decoding benchmark is asked to do.

Plain settings, without torch, so that the command line can show them quickly. Knows nothing of how they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paceline.errors import ConfigError

__all__ = ["PEERS", "SAMPLING_PEERS", "DecodeBench", "measured_models"]

PEERS = (
    "transformers",
    "transformers-lookup",
    "transformers-assisted",
    "dflash-official",
    "llama.cpp-f32",
    "llama.cpp-f16",
    "llama.cpp-q8_0",
)
"""Other programs that can run beside ours (see `bench.peers`)."""

SAMPLING_PEERS = ("dflash-official",)
"""Those that are measured above temperature 0 too: for what they accept, not for their text."""

_ASSISTED = "transformers-assisted"

_QUICK_PROMPTS, _QUICK_TOKENS, _QUICK_REPEATS = 3, 48, 2


@dataclass(frozen=True, slots=True)
class DecodeBench:
    """Settings of `paceline bench decode`.

    Attributes:
        model, drafter: folder, hub id or bundled name, as for `LLM`; None is the bundled pair. A model without a
            drafter is measured with plain decoding only.
        precision: "exact" (float32) or "half" (bfloat16), as for `LLM`.
        device: as for `LLM`.
        prompts: JSON lines of your own (see `bench.scenarios`); None takes the held-out prompts of the package.
        scenarios: names to run; empty runs all.
        prompts_per_scenario: the first so many of each; None takes all.
        quick: few prompts, short answers, two repeats: a smoke test, not a figure.
        repeats: paired measurements of each prompt.
        max_tokens: longest answer.
        temperature: of every request.
        seed: of the first prompt; the others have seeds derived from it, as further answers of one request have.
        block_sizes: DFlash blocks, anchors included; empty is the drafter's own. Several make a method each:
            "dflash-8", …
        inflate: measure models that are so many times as wide and compute the same function (`models.inflate`).
        peers: programs to measure in the same run, of `PEERS`; above temperature 0 only `SAMPLING_PEERS`.
        assistant: a smaller model of the same tokens, which drafts for the peer "transformers-assisted".
        threads: torch's threads, and a peer's; None leaves them.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    model: str | Path | None = None
    drafter: str | Path | None = None
    precision: Literal["exact", "half"] = "exact"
    device: str = "auto"
    prompts: Path | None = None
    scenarios: tuple[str, ...] = ()
    prompts_per_scenario: int | None = None
    quick: bool = False
    repeats: int = 3
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    block_sizes: tuple[int, ...] = ()
    inflate: int = 1
    peers: tuple[str, ...] = ()
    assistant: str | Path | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.quick:
            object.__setattr__(self, "prompts_per_scenario", min(self.prompts_per_scenario or 64, _QUICK_PROMPTS))
            object.__setattr__(self, "max_tokens", min(self.max_tokens, _QUICK_TOKENS))
            object.__setattr__(self, "repeats", min(self.repeats, _QUICK_REPEATS))
        for name in ("repeats", "max_tokens", "prompts_per_scenario", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value!r}.", remedy="It must be at least 1.", param=name)
        for size in self.block_sizes:
            if not 1 <= size <= 64:
                raise ConfigError(f"block_size is {size!r}.", remedy="It must be in [1, 64].", param="block_size")
        if not 1 <= self.inflate <= 16:
            raise ConfigError(f"inflate is {self.inflate!r}.", remedy="It must be in [1, 16].", param="inflate")
        self._check_peers()

    def _check_peers(self) -> None:
        for peer in self.peers:
            if peer not in PEERS:
                raise ConfigError(f"peer is {peer!r}.", remedy=f"Known: {', '.join(PEERS)}.", param="peers")
        if (_ASSISTED in self.peers) != (self.assistant is not None):
            remedy = f"Give --peers {_ASSISTED} and --assistant FOLDER, a smaller model of the same tokens, together."
            raise ConfigError(f"assistant is {self.assistant!r}.", remedy=remedy, param="assistant")
        if self.temperature > 0.0 and set(self.peers) - set(SAMPLING_PEERS):
            remedy = f"Above 0 peers draw other random numbers than we do; measured there: {', '.join(SAMPLING_PEERS)}."
            raise ConfigError(f"temperature is {self.temperature!r}.", remedy=remedy, param="temperature")


def measured_models(settings: Mapping[str, Any]) -> str:
    """The models of a result, from its settings, for a title."""
    models = " + ".join(Path(name).name for name in (settings["model"], settings["drafter"]) if name)
    factor = settings.get("inflate", 1)
    return f"{models} inflated {factor}× (same function, {factor**2}× the work)" if factor > 1 else models
