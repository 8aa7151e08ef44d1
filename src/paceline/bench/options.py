"""What the benchmarks of speed are asked to do.

Plain settings, without torch, so that the command line can show them quickly. Knows nothing of how they are used.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from paceline.bench.configuration import Configuration, method_named, read_configuration
from paceline.errors import ConfigError, SettingError
from paceline.models.options import (
    PROMISES,
    Device,
    Drafter,
    Model,
    Precision,
    PrecisionSetting,
    Threads,
    check_precision,
)
from paceline.settings import Setting, check_ranges, fields_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "PEERS",
    "SAMPLING_PEERS",
    "CurveBench",
    "DecodeBench",
    "Workload",
    "as_plain_data",
]

PEERS = (
    "transformers",
    "transformers-lookup",
    "transformers-assisted",
    "dflash-official",
    "llama.cpp-f32",
    "llama.cpp-f16",
    "llama.cpp-bf16",
    "llama.cpp-q8_0",
    "llama.cpp-f32-lookup",
    "llama.cpp-f16-lookup",
    "llama.cpp-bf16-lookup",
    "llama.cpp-q8_0-lookup",
)
"""Other programs that can run beside ours (see `bench.peers`)."""

SAMPLING_PEERS = ("dflash-official",)
"""Those that are measured above temperature 0 too: for what they accept, not for their text."""

_ASSISTED = "transformers-assisted"

Drafting = Literal["dflash", "lookup"]
"""Methods of ours beside plain decoding."""

_QUICK_PROMPTS, _QUICK_TOKENS, _QUICK_REPEATS = 3, 48, 2


_BESIDE_SWEEP = {
    "methods": "A sweep varies DFlash: leave it out.",
    "peers": "A sweep compares DFlash with plain decoding: leave them out.",
    "block_sizes": "Leave it out, or write it as --setting dflash,block_size=8.",
}
"""What to do about settings that have no place in a sweep."""

_AS_DFLASH = "Write dflash,candidate_num=6."

_ELSEWHERE = {
    "ar": "Leave it out: plain decoding is always measured.",
    "lookup": "Write dflash,lookup=10 for it beside drafts; paceline bench decode --method lookup measures it alone.",
    **dict.fromkeys(("verifier", "diffusion", "apd"), "paceline bench quality measures this one."),
}
"""What to do about settings of other methods."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is decoded, and how often. The benchmarks inherit it, so that each is asked for in one flat call.

    A prompt file is described in `bench.scenarios`, an inflated model in `models.inflate`.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    model: Model = None
    drafter: Drafter = None
    prompts: Annotated[Path | None, Setting("JSON lines of your own prompts.")] = None
    scenarios: Annotated[tuple[str, ...], Setting("May be repeated; all if left out.", flags=("--scenario",))] = ()
    prompts_per_scenario: Annotated[int | None, Setting("The first so many; all if left out.", least=1)] = None
    quick: Annotated[bool, Setting("A smoke test: few prompts, short answers.")] = False
    repeats: Annotated[int, Setting("Paired measurements of each prompt.", least=1)] = 3
    max_tokens: Annotated[int, Setting("Longest answer.", least=1)] = 128
    seed: Annotated[int, Setting("Of the first prompt; the others have seeds derived from it.")] = 0
    inflate: Annotated[int, Setting("So many times as wide, computing the same function.", least=1, most=16)] = 1
    device: Device = "auto"
    threads: Threads = None

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.quick:
            object.__setattr__(self, "prompts_per_scenario", min(self.prompts_per_scenario or 64, _QUICK_PROMPTS))
            object.__setattr__(self, "max_tokens", min(self.max_tokens, _QUICK_TOKENS))
            object.__setattr__(self, "repeats", min(self.repeats, _QUICK_REPEATS))


@dataclass(frozen=True, slots=True)
class DecodeBench(Workload):
    """Settings of `paceline bench decode`. Without `methods`, a model without a drafter only decodes plainly.

    With `sweep` it is told what each part of DFlash buys; methods, peers and block sizes have no place in that.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    precision: PrecisionSetting = "exact"
    methods: Annotated[
        tuple[Drafting, ...],
        Setting("Beside ar, may be repeated; dflash where there is a drafter if left out.", flags=("--method",)),
    ] = ()
    block_sizes: Annotated[
        tuple[int, ...],
        Setting("Of dflash, may be repeated: a method for each.", least=1, most=64, flags=("--block-size",)),
    ] = ()
    peers: Annotated[
        tuple[str, ...],
        Setting(f"Also measure these programs, a,b: {', '.join(PEERS)}.", flags=("--peer", "--peers")),
    ] = ()
    assistant: Annotated[
        str | Path | None, Setting("The small model of transformers-assisted: a folder or a hub id.")
    ] = None
    sweep: Annotated[bool, Setting("Measure what each part of DFlash buys: chains, trees, steps, and so on.")] = False
    settings: Annotated[
        tuple[str, ...],
        Setting(
            "With --sweep, may be repeated: measure these instead, written as dflash,candidate_num=6,overlap=3.",
            flags=("--setting",),
        ),
    ] = ()
    rescorer: Annotated[
        str | Path | None,
        Setting("With --sweep: also weigh candidates anew with this, a small model or a folder of `train ngram`."),
    ] = None
    temperatures: Annotated[
        tuple[float, ...],
        Setting(
            "Of every request; 0. With --sweep it may be repeated, and is 0 and 1.",
            least=0,
            most=100,
            flags=("--temperature",),
        ),
    ] = ()

    def __post_init__(self) -> None:
        Workload.__post_init__(self)  # super() knows the class that `slots` has replaced
        check_precision(self.precision)
        object.__setattr__(self, "peers", tuple(name for names in self.peers for name in names.split(",") if name))
        self._check_methods()
        self._check_peers()
        self._check_sweep()
        _ = self.configurations

    @property
    def temperature(self) -> float:
        """Of a run without a sweep."""
        return self.temperatures[0] if self.temperatures else 0.0

    @property
    def configurations(self) -> list[Configuration]:
        """What a sweep is to measure instead of its own list.

        Raises:
            ConfigError: a setting that is none of DFlash.
        """
        for text in self.settings:
            if (method := method_named(text)) != "dflash":
                told = f"setting {text!r:.80} begins with {method!r:.40}: a sweep measures settings of dflash."
                raise ConfigError(told, remedy=_ELSEWHERE.get(method, _AS_DFLASH), param="settings")
        return [read_configuration(text) for text in dict.fromkeys(self.settings)]

    def _check_methods(self) -> None:
        for method in self.methods:
            if method not in get_args(Drafting):
                remedy = f"There are: {', '.join(get_args(Drafting))}; ar is always measured."
                raise ConfigError(f"method is {method!r:.40}.", remedy=remedy, param="methods")
        if self.block_sizes and self.methods and "dflash" not in self.methods:
            so = f", and the only method is {self.methods[0]!r}."
            raise SettingError(_told(self, "block_sizes"), so, remedy="Leave it out, or add --method dflash.")

    def _check_sweep(self) -> None:
        """What goes with a sweep, and what only with it."""
        for name in ("methods", "peers", "block_sizes") if self.sweep else ("settings", "rescorer"):
            if getattr(self, name):
                so = f", {'and' if self.sweep else 'without'} --sweep."
                remedy = _BESIDE_SWEEP.get(name, "Add --sweep, or leave it out.")
                raise SettingError(_told(self, name), so, remedy=remedy)
        if self.sweep and self.settings and self.rescorer is not None:
            told = _told(self, "rescorer") | _told(self, "settings")
            remedy = "Write it as --setting dflash,candidate_num=32,rescorer=…"
            raise SettingError(told, remedy=remedy)
        if len(self.temperatures) > 1 and not self.sweep:
            so = f"temperature is {' and '.join(map(str, self.temperatures))}, without --sweep."
            raise ConfigError(so, remedy="Give one, or add --sweep.", param="temperature")

    def _check_peers(self) -> None:
        for peer in self.peers:
            if peer not in PEERS:
                raise ConfigError(f"peer is {peer!r}.", remedy=f"Known: {', '.join(PEERS)}.", param="peers")
        if (_ASSISTED in self.peers) != (self.assistant is not None):
            remedy = f"Give --peers {_ASSISTED} and --assistant FOLDER, a smaller model of the same tokens, together."
            if self.assistant is None:
                raise ConfigError("There is no assistant.", remedy=remedy, param="assistant")
            raise SettingError(_told(self, "assistant"), ", without its peer.", remedy=remedy)
        if self.temperature > 0.0 and set(self.peers) - set(SAMPLING_PEERS):
            remedy = f"Above 0 peers draw other random numbers than we do; measured there: {', '.join(SAMPLING_PEERS)}."
            raise ConfigError(f"temperature is {self.temperature!r}.", remedy=remedy, param="temperature")
        if self.peers and self.precision == "mixed":
            remedy = "Peers compute in one precision: compare them in exact, half or int8."
            raise SettingError({"precision": f"is {self.precision!r}"}, remedy=remedy)


@dataclass(frozen=True, slots=True)
class CurveBench(Workload):
    """Settings of `paceline bench curve`: a point for every block size in every precision.

    Raises:
        ConfigError: a value that cannot be used; names it.
    """

    precisions: Annotated[
        tuple[Precision, ...], Setting(f"May be repeated: a line for each. {PROMISES}", flags=("--precision",))
    ] = ("exact", "mixed", "half")
    block_sizes: Annotated[
        tuple[int, ...],
        Setting("May be repeated: a point for each; 1 is plain decoding.", least=1, most=64, flags=("--block-size",)),
    ] = (1, 4, 6, 8, 10, 12, 16)
    temperature: Annotated[float, Setting("Of every request.", least=0, most=100)] = 0.0

    def __post_init__(self) -> None:
        Workload.__post_init__(self)
        for name in ("precisions", "block_sizes"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty.", remedy="Name at least one.", param=name)
        for precision in self.precisions:
            check_precision(precision)


def _told(options: DataclassInstance, name: str) -> dict[str, str]:
    """A setting for `SettingError`, as users write it: a flag that may be repeated says one of its values."""
    field = next(field for field in fields_of(type(options)) if field.name == name)
    value = getattr(options, name)
    words = map(repr, value) if isinstance(value, tuple) else (repr(str(value)),)
    return {next(iter(field.other_names), name): f"is {' and '.join(words):.80}"}


def as_plain_data(options: DataclassInstance) -> dict[str, Any]:
    """The settings of a benchmark, ready for JSON."""

    def plain(value: Any) -> Any:
        return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in asdict(options).items()}
