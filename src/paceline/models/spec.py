"""`config.json` -> `Spec`: everything the one Transformer needs to know about a checkpoint.

Reads the configurations of Llama, Mistral, Qwen2 and Qwen3 as Hugging Face writes them, in both styles
(`rope_theta` and `rope_scaling` at top level, or inside `rope_parameters`), and the DFlash drafter's
(arXiv 2602.06036; layout of the released checkpoints). Does not read weights and imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.errors import CheckpointError, UnsafeCheckpoint, UnsupportedModel

__all__ = ["FAMILIES", "DrafterSpec", "Rope", "Spec", "default_target_layer_ids", "drafter_spec", "transformer_spec"]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")

Config = Mapping[str, Any]


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


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A DFlash drafter: Qwen3 layers between the target's embedding and the target's head.

    `block` describes the layers (its vocabulary is the target's). `causal[i]` says whether the slots of a block
    see only earlier slots in layer i. Slot 0 of a block is the anchor, slot j predicts the token at anchor + j.
    """

    block: Spec
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    causal: tuple[bool, ...]
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    guessed_taps: bool = False


def transformer_spec(config: Config) -> Spec:
    """Describe the model of a `config.json`.

    Raises:
        UnsafeCheckpoint: the configuration asks for code of its own (`auto_map`).
        UnsupportedModel: another family, or a feature of these that Paceline does not run.
        CheckpointError: a key is missing or has no usable value.
    """
    _refuse_remote_code(config)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedModel(f"model_type is {family!r}.", remedy=f"Paceline runs {', '.join(FAMILIES)}.")
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"hidden_act is {config['hidden_act']!r}.", remedy="Paceline runs silu.")
    heads = _integer(config, "num_attention_heads")
    kv_heads = config.get("num_key_value_heads") or heads
    if heads % kv_heads:
        raise CheckpointError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}.")
    layers = _integer(config, "num_hidden_layers")
    attention_bias = bool(config.get("attention_bias", False))
    return Spec(
        family=family,
        vocab_size=_integer(config, "vocab_size"),
        hidden_size=_integer(config, "hidden_size"),
        intermediate_size=_integer(config, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=config.get("head_dim") or _integer(config, "hidden_size") // heads,
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope=_rope(config),
        context_tokens=_integer(config, "max_position_embeddings"),
        windows=_windows(config, family, layers),
        tied_head=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2" or attention_bias,
        out_bias=attention_bias and family != "qwen2",
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
        eos_token_ids=_token_ids(config.get("eos_token_id")),
    )


def drafter_spec(config: Config) -> DrafterSpec:
    """Describe the DFlash drafter of a `config.json`. Keys in `dflash_config` win over those at top level.

    Without `target_layer_ids` the published default is taken and `guessed_taps` set, so that the loader can warn.

    Raises:
        CheckpointError: no mask token, no block size, or taps outside the target; names the key.
        UnsupportedModel: another architecture, or a version of the format that is not supported.
    """
    _refuse_remote_code(config)
    if "DFlashDraftModel" not in config.get("architectures", ()):
        raise UnsupportedModel(
            f"architectures is {config.get('architectures')!r}.", remedy="A drafter must be a DFlashDraftModel."
        )
    keys = {**config, **(config.get("dflash_config") or {})}
    _refuse_other_block_conventions(keys)
    block = transformer_spec({**config, "model_type": "qwen3", "tie_word_embeddings": True})
    target_layers = _integer(keys, "num_target_layers")
    given = keys.get("target_layer_ids")
    taps = tuple(given) if given else default_target_layer_ids(target_layers, block.num_layers)
    for tap in taps:
        if not (isinstance(tap, int) and 0 <= tap < target_layers):
            raise CheckpointError(f"target_layer_ids contains {tap!r}; the target has {target_layers} layers.")
    return DrafterSpec(
        block=block,
        block_size=_integer(keys, "block_size"),
        mask_token_id=_integer(keys, "mask_token_id"),
        target_layer_ids=taps,
        num_target_layers=target_layers,
        causal=_causal(keys, block),
        input_embedding_scale=_scale(keys, "input_embedding_scale"),
        output_multiplier=_scale(keys, "output_multiplier"),
        final_logit_softcapping=keys.get("final_logit_softcapping"),
        guessed_taps=not given,
    )


def default_target_layer_ids(target_layers: int, draft_layers: int) -> tuple[int, ...]:
    """The taps of the released drafters where the configuration names none: evenly spaced in [1, L - 3].

    Halves round to even. One draft layer taps the middle of the target.
    """
    if draft_layers == 1:
        return (target_layers // 2,)
    step = (target_layers - 4) / (draft_layers - 1)
    return tuple(round(1 + i * step) for i in range(draft_layers))


def _refuse_remote_code(config: Config) -> None:
    if config.get("auto_map"):
        raise UnsafeCheckpoint(
            f"config.json asks for code of its own: auto_map = {config['auto_map']!r}.",
            remedy="Paceline never runs code from a checkpoint; use one of the supported families.",
        )


def _refuse_other_block_conventions(keys: Config) -> None:
    if keys.get("sample_from_anchor"):
        raise UnsupportedModel(
            "sample_from_anchor is set: slot 0 of a block is a prediction.",
            remedy="Paceline runs drafters whose slot 0 is the anchor.",
        )
    if keys.get("candidate_selector") or keys.get("conv_kernel_size"):
        raise UnsupportedModel("This is a DFlash 2 drafter.", remedy="Paceline runs DFlash v1 drafters.")


def _integer(config: Config, key: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CheckpointError(f"config.json: {key} is {value!r}.", remedy="It must be an integer >= 0.", param=key)
    return value


def _scale(keys: Config, key: str) -> float:
    value = keys.get(key)
    return 1.0 if value is None else float(value)


def _token_ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(str(value)),)


def _rope(config: Config) -> Rope:
    parameters = config.get("rope_parameters")
    if parameters is None and "rope_theta" not in config:
        raise CheckpointError(
            "config.json has neither rope_theta nor rope_parameters.",
            remedy="Add the base the model was trained with; guessing it gives silently wrong text.",
        )
    scaling = {**(config.get("rope_scaling") or {}), **(parameters or {})}
    theta = scaling.get("rope_theta", config.get("rope_theta"))
    if theta is None:
        raise CheckpointError("config.json: rope_parameters has no rope_theta.")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return Rope(float(theta))
    if kind != "llama3":
        raise UnsupportedModel(f"rope_type is {kind!r}.", remedy="Paceline runs default and llama3.")
    return Rope(
        theta=float(theta),
        factor=float(scaling["factor"]),
        low_freq_factor=float(scaling["low_freq_factor"]),
        high_freq_factor=float(scaling["high_freq_factor"]),
        original_context_tokens=int(scaling["original_max_position_embeddings"]),
    )


def _windows(config: Config, family: str, layers: int) -> tuple[int | None, ...]:
    window = config.get("sliding_window")
    kinds = config.get("layer_types")
    if kinds is None:
        if family == "mistral" and window is not None:
            kinds = ["sliding_attention"] * layers
        elif family in ("qwen2", "qwen3") and config.get("use_sliding_window"):
            first = config.get("max_window_layers", 0)
            kinds = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
        else:
            kinds = ["full_attention"] * layers
    if len(kinds) != layers:
        raise CheckpointError(f"layer_types has {len(kinds)} entries for {layers} layers.")
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown:
        raise UnsupportedModel(
            f"layer_types contains {sorted(unknown)}.", remedy="Paceline runs full_attention and sliding_attention."
        )
    if "sliding_attention" in kinds and not isinstance(window, int):
        raise CheckpointError(f"layer_types asks for sliding attention, but sliding_window is {window!r}.")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _causal(keys: Config, block: Spec) -> tuple[bool, ...]:
    if keys.get("is_causal") is not None:
        return (bool(keys["is_causal"]),) * block.num_layers
    return tuple(window is not None for window in block.windows)
