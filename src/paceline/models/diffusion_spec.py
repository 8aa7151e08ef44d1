"""What makes a checkpoint a diffusion language model: Dream, LLaDA, and the zoo's own.

Dream uses Qwen2's keys (arXiv 2508.15487), LLaDA its own (arXiv 2502.09992), which are translated here; a model of the
zoo is a Qwen3 with a section `paceline`. All see the whole text in both directions. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.errors import UnsupportedModel
from paceline.models.fields import Config, flag, integer, section

__all__ = ["DIFFUSION_FAMILIES", "Diffusion", "diffusion_of", "in_own_keys", "in_usual_keys", "is_released_code"]

DIFFUSION_FAMILIES = ("dream", "llada")

_LLADA_KEYS = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "mlp_hidden_size": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "weight_tying": "tie_word_embeddings",
    "include_bias": "mlp_bias",
    "include_qkv_bias": "attention_bias",
}
_LLADA_SWITCHES = {
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "rope": True,
    "alibi": False,
    "attention_layer_norm": False,
    "bias_for_layer_norm": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "multi_query_attention": False,
    "scale_logits": False,
}
_RELEASED_CODE = {
    "dream": ("configuration_dream.", "modeling_dream."),
    "llada": ("configuration_llada.", "modeling_llada."),
}


@dataclass(frozen=True, slots=True)
class Diffusion:
    """A masked-diffusion model: full attention, and row i - `logit_shift` predicts the token at position i."""

    mask_token_id: int
    logit_shift: int


def in_usual_keys(config: Config) -> Config:
    """LLaDA's configuration in the keys of Qwen2; every other one as it is.

    Raises:
        UnsupportedModel: a switch of LLaDA's code base that its released models do not use.
    """
    if _family(config) != "llada":
        return {**config, "model_type": _family(config)}
    for key, value in _LLADA_SWITCHES.items():
        if config.get(key) not in (None, value):
            raise UnsupportedModel(f"{key} is {config[key]!r}.", remedy=f"Paceline runs LLaDA with {key} {value!r}.")
    usual: dict[str, Any] = {_LLADA_KEYS.get(key, key): value for key, value in config.items()}
    padded = config.get("embedding_size")
    return {**usual, "vocab_size": config.get("vocab_size") if padded is None else padded}


def diffusion_of(config: Config) -> Diffusion | None:
    """What the configuration says of diffusion; None for an autoregressive model.

    Raises:
        CheckpointError: no mask token.
    """
    family = _family(config)
    own = section(section(config, "paceline"), "diffusion")
    if family not in DIFFUSION_FAMILIES and not own:
        return None
    mask = integer(own or config, "mask_token_id", low=0)
    return Diffusion(mask, 1 if family == "dream" or flag(own, "shifted") else 0)


def in_own_keys(config: Config, family: str, diffusion: Diffusion | None) -> dict[str, Any]:
    """What `in_usual_keys` and `diffusion_of` read back as the same: `config` in the keys of its family."""
    if diffusion is None:
        return dict(config)
    own = {"mask_token_id": diffusion.mask_token_id}
    if family == "dream":
        return {**config, **own, "model_type": "Dream"}
    if family == "llada":
        theirs = {usual: name for name, usual in _LLADA_KEYS.items()}
        renamed = {theirs.get(key, key): value for key, value in config.items()}
        return {**renamed, **_LLADA_SWITCHES, **own, "embedding_size": config["vocab_size"]}
    return {**config, "paceline": {"diffusion": {**own, "shifted": bool(diffusion.logit_shift)}}}


def is_released_code(config: Config) -> bool:
    """Whether `auto_map` names just the code these families were released with, in whose place ours runs."""
    known = _RELEASED_CODE.get(str(_family(config)), ())
    named = section(config, "auto_map").values()
    return bool(known) and all(isinstance(name, str) and name.startswith(known) for name in named)


def _family(config: Config) -> object:
    """`model_type`; Dream spells its own with a capital letter."""
    kind = config.get("model_type")
    return "dream" if kind == "Dream" else kind
