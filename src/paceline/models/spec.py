"""`config.json` -> `Spec`: everything the one Transformer needs to know about a checkpoint.

Reads the configurations of Llama, Mistral, Qwen2, Qwen3, Dream and LLaDA as Hugging Face writes them, in both styles
(`rope_theta` and `rope_scaling` at top level, or inside `rope_parameters`). Does not read weights and imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import CheckpointError, UnsafeCheckpoint, UnsupportedModel
from paceline.models.diffusion_spec import DIFFUSION_FAMILIES, Diffusion, diffusion_of, in_usual_keys, is_released_code
from paceline.models.fields import Config, flag, integer, number, section, token_ids

__all__ = ["FAMILIES", "MAX_LAYERS", "Rope", "Spec", "refuse_remote_code", "transformer_spec"]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", *DIFFUSION_FAMILIES)

MAX_LAYERS = 4096
"""Far above every model there is; a file of a few bytes must not ask for more memory than a machine has."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding (arXiv 2104.09864), with the `llama3` frequency scaling where `factor` is not 1."""

    theta: float
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class Spec:
    """A decoder-only Transformer, layer by layer.

    `windows[i]` is the sliding window of layer i in tokens (a query at position q sees keys k with
    0 <= q - k < window), or None where layer i sees everything before it.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: Rope
    context_tokens: int
    windows: tuple[int | None, ...]
    tied_head: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    eos_token_ids: tuple[int, ...] = ()
    diffusion: Diffusion | None = None


def transformer_spec(config: Config) -> Spec:
    """Describe the model of a `config.json`.

    Raises:
        UnsafeCheckpoint: the configuration asks for code of its own (`auto_map`).
        UnsupportedModel: another family, or a feature of these that Paceline does not run.
        CheckpointError: a key is missing or has no usable value.
    """
    refuse_remote_code(config)
    config = in_usual_keys(config)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedModel(f"model_type is {family!r}.", remedy=f"Paceline runs {', '.join(FAMILIES)}.")
    _refuse_other_features(config)
    hidden = integer(config, "hidden_size")
    heads = integer(config, "num_attention_heads")
    kv_heads = integer(config, "num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise CheckpointError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}.")
    # Qwen3's own default is a constant, the other families' a quotient.
    head_dim = integer(config, "head_dim", default=128 if family == "qwen3" else hidden // heads)
    if head_dim % 2:
        raise CheckpointError(f"head_dim is {head_dim}.", remedy="Rotary positions need an even number.")
    layers = integer(config, "num_hidden_layers", high=MAX_LAYERS)
    attention_bias = flag(config, "attention_bias")
    return Spec(
        family=family,
        vocab_size=integer(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=integer(config, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=number(config, "rms_norm_eps", default=1e-6),
        rope=_rope(config),
        context_tokens=integer(config, "max_position_embeddings"),
        windows=_windows(config, family, layers),
        tied_head=flag(config, "tie_word_embeddings"),
        qkv_bias=family in ("qwen2", "dream") or attention_bias,
        out_bias=attention_bias and family not in ("qwen2", "dream"),
        mlp_bias=flag(config, "mlp_bias"),
        qk_norm=family == "qwen3",
        eos_token_ids=token_ids(config, "eos_token_id"),
        diffusion=diffusion_of(config),
    )


def refuse_remote_code(config: Config) -> None:
    """Refuse a configuration that names code, unless it is what a family was released with, in whose place ours runs.

    Raises:
        UnsafeCheckpoint: names the code.
    """
    if config.get("auto_map") and not is_released_code(config):
        raise UnsafeCheckpoint(
            f"config.json asks for code of its own: auto_map = {config['auto_map']!r}.",
            remedy="Paceline never runs code from a checkpoint; use one of the supported families.",
        )


def _refuse_other_features(config: Config) -> None:
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"hidden_act is {config['hidden_act']!r}.", remedy="Paceline runs silu.")
    if config.get("quantization_config"):
        raise UnsupportedModel("config.json has a quantization_config.", remedy="Take the unquantized checkpoint.")
    rope = {**config, **section(config, "rope_scaling"), **section(config, "rope_parameters")}
    if rope.get("partial_rotary_factor") not in (None, 1):
        raise UnsupportedModel(
            f"partial_rotary_factor is {rope['partial_rotary_factor']!r}.", remedy="Paceline rotates whole heads."
        )


def _rope(config: Config) -> Rope:
    parameters = section(config, "rope_parameters")
    if not parameters and config.get("rope_theta") is None:
        raise CheckpointError(
            "config.json has neither rope_theta nor rope_parameters.",
            remedy="Add the base the model was trained with; guessing it gives silently wrong text.",
            param="rope_theta",
        )
    scaling = {**section(config, "rope_scaling"), **parameters}
    theta = number({"rope_theta": config.get("rope_theta"), **scaling}, "rope_theta")
    # A factor without a type would be ignored silently.
    kind = scaling.get("rope_type", scaling.get("type", None if "factor" in scaling else "default"))
    if kind == "default":
        return Rope(theta)
    if kind != "llama3":
        raise UnsupportedModel(f"rope_type is {kind!r}.", remedy="Paceline runs default and llama3.")
    rope = Rope(
        theta=theta,
        factor=number(scaling, "factor"),
        low_freq_factor=number(scaling, "low_freq_factor"),
        high_freq_factor=number(scaling, "high_freq_factor"),
        original_context_tokens=integer(scaling, "original_max_position_embeddings"),
    )
    if rope.low_freq_factor >= rope.high_freq_factor:
        raise CheckpointError(f"low_freq_factor {rope.low_freq_factor} is not below {rope.high_freq_factor}.")
    return rope


def _windows(config: Config, family: str, layers: int) -> tuple[int | None, ...]:
    kinds = config.get("layer_types")
    if kinds is None:
        kinds = _default_kinds(config, family, layers)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise CheckpointError(f"layer_types is not a list of {layers}, one for each layer.", param="layer_types")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise UnsupportedModel(
                f"layer_types contains {kind!r}.", remedy="Paceline runs full_attention and sliding_attention."
            )
    window = integer(config, "sliding_window") if "sliding_attention" in kinds else None
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _default_kinds(config: Config, family: str, layers: int) -> list[str]:
    """What the families do where `layer_types` is missing, as older files have it."""
    full = layers
    if config.get("sliding_window") is not None:
        if family == "mistral":
            full = 0
        elif family in ("qwen2", "qwen3") and flag(config, "use_sliding_window"):
            full = min(layers, integer(config, "max_window_layers", default=28, low=0))
    return ["full_attention"] * full + ["sliding_attention"] * (layers - full)
