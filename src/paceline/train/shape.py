"""The shape of a diffusion model that begins with random weights: a named size, and what is changed of it.

The sizes are those of DiT (arXiv 2212.09748, table 1), without what belongs to images there: the layers are the bundled
models', and what tells them the noise level is the masks they see. Imports no torch. Knows nothing of training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from paceline.errors import ConfigError, SettingError
from paceline.models.spec import MAX_LAYERS, Spec
from paceline.settings import Setting, check_kinds, check_ranges

__all__ = ["ModelSize", "ShapeConfig", "check_fits", "shape_of", "shaped"]

ModelSize = Literal["pace-13m", "DiT-S", "DiT-B", "DiT-L", "DiT-XL"]

_SIZES: dict[str, dict[str, int]] = {
    "pace-13m": {},
    "DiT-S": {"num_layers": 12, "hidden_size": 384, "num_heads": 6},
    "DiT-B": {"num_layers": 12, "hidden_size": 768, "num_heads": 12},
    "DiT-L": {"num_layers": 24, "hidden_size": 1024, "num_heads": 16},
    "DiT-XL": {"num_layers": 28, "hidden_size": 1152, "num_heads": 16},
}

_NAMES = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "intermediate_size")


@dataclass(frozen=True, slots=True)
class ShapeConfig:
    """What is set of the shape; None leaves it to the others.

    Raises:
        ConfigError: no such size, or a number out of range.
    """

    model_size: Annotated[
        ModelSize | None, Setting("A size to begin with; the bundled target's if left out.", alias="model.type")
    ] = None
    num_layers: Annotated[
        int | None, Setting("Layers; those of the size.", least=1, most=MAX_LAYERS, alias="model.num_layers")
    ] = None
    hidden_size: Annotated[
        int | None, Setting("Width of the layers; that of the size.", least=1, alias="model.hidden_size")
    ] = None
    num_heads: Annotated[
        int | None, Setting("Heads of the queries; those of the size.", least=1, alias="model.num_heads")
    ] = None
    num_kv_heads: Annotated[
        int | None, Setting("Heads of keys and values; half of num_heads.", least=1, alias="model.num_kv_heads")
    ] = None
    head_dim: Annotated[
        int | None, Setting("Width of a head, even; hidden_size / num_heads.", least=2, alias="model.head_dim")
    ] = None
    intermediate_size: Annotated[
        int | None,
        Setting("Width inside the MLPs; 2.5 times hidden_size.", least=1, alias="model.intermediate_size"),
    ] = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_ranges(self)

    @property
    def given(self) -> dict[str, Any]:
        """What is set, by name."""
        values = {name: getattr(self, name) for name in ("model_size", *_NAMES)}
        return {name: value for name, value in values.items() if value is not None}


def shape_of(spec: Spec) -> dict[str, int]:
    """The settings, all but the size, that give a model its shape."""
    return {name: getattr(spec, name) for name in _NAMES}


def shaped(spec: Spec, config: ShapeConfig) -> Spec:
    """`spec`, of a model that sees the whole text, in another shape.

    Raises:
        ConfigError: no such shape; names the settings that do not fit together, and their values.
    """
    if not config.given:
        return spec
    values = {**shape_of(spec), **_SIZES[config.model_size or "pace-13m"], **config.given}
    layers, hidden, heads = (values[name] for name in ("num_layers", "hidden_size", "num_heads"))
    kv_heads = config.num_kv_heads or (heads if heads % 2 else heads // 2)
    if heads % kv_heads:
        raise _refusal("num_heads", heads, "num_kv_heads", kv_heads, "The first must be a multiple of the second.")
    if config.head_dim is None and hidden % heads:
        raise _refusal("hidden_size", hidden, "num_heads", heads, "Give a multiple of the heads, or head_dim.")
    head_dim = config.head_dim or hidden // heads
    if head_dim % 2:
        told = f"head_dim is {head_dim}, of hidden_size {hidden} and num_heads {heads}."
        raise ConfigError(told, remedy="Rotary positions need an even number.", param="head_dim")
    return replace(
        spec,
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=config.intermediate_size or hidden * 5 // 2,
        windows=(None,) * layers,
    )


def check_fits(spec: Spec, memory_bytes: int) -> None:
    """Refuse a shape to train in so much memory where it would end in an error of the allocator, or a killed process.

    Raises:
        ConfigError: names the shape, what it takes at least, and what there is.
    """
    needed = 3 * 4 * _weights(spec)  # in float32: each weight, its gradient, and at least one moment of its optimiser
    if needed > memory_bytes:
        shape = ", ".join(f"{name} {value}" for name, value in shape_of(spec).items())
        told = (
            f"Training takes at least {needed / 1e9:,.1f} GB with {shape}; this machine has {memory_bytes / 1e9:,.1f}."
        )
        raise ConfigError(told, remedy="Choose a smaller shape.", param="model_size")


def _weights(spec: Spec) -> int:
    """In all matrices; a tied head is the embedding."""
    attention = spec.hidden_size * spec.head_dim * 2 * (spec.num_heads + spec.num_kv_heads)
    layers = spec.num_layers * (attention + 3 * spec.hidden_size * spec.intermediate_size)
    return layers + spec.vocab_size * spec.hidden_size * (1 if spec.tied_head else 2)


def _refusal(name: str, value: int, other: str, value_of_other: int, rule: str) -> SettingError:
    return SettingError({name: f"is {value}", other: f"is {value_of_other}"}, remedy=rule)
