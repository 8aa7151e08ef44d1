"""Modules -> a folder in Hugging Face's layout, which other tools open: config.json and model.safetensors.

What is loaded again equals what was saved, bit for bit in the precision it was saved in. Every file appears under
its name only when it is complete, config.json last. Does not write tokenizers, and leaves those it finds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from paceline.files import write_atomically
from paceline.models.diffusion_spec import in_own_keys
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import DRAFTERS, DrafterSpec
from paceline.models.layout import split
from paceline.models.safetensors_file import INDEX, WEIGHTS
from paceline.models.spec import Rope, Spec
from paceline.models.transformer import Transformer

__all__ = ["drafter_config", "save_drafter", "save_transformer", "transformer_config"]

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "dream": "DreamModel",
    "llada": "LLaDAModelLM",
}


def save_transformer(model: Transformer, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write `model` to `folder`, which is made where it does not exist; a checkpoint in it is replaced."""
    _write(folder, split(model.state_dict(), model.spec), transformer_config(model.spec, dtype), dtype)


def save_drafter(drafter: Drafter, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write `drafter` to `folder` as `save_transformer`; embedding and head stay with its target."""
    _write(folder, split(drafter.state_dict(), drafter.spec), drafter_config(drafter.spec, dtype), dtype)


def transformer_config(spec: Spec, dtype: torch.dtype) -> dict[str, Any]:
    """The config.json of `spec`; `transformer_spec` reads it back as the same specification.

    Rotary positions are written in both styles, so that older and newer tools read them.
    """
    eos = list(spec.eos_token_ids)
    usual = {
        "architectures": [_ARCHITECTURES[spec.family]],
        "model_type": spec.family,
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.norm_eps,
        "max_position_embeddings": spec.context_tokens,
        "attention_bias": spec.out_bias,
        "mlp_bias": spec.mlp_bias,
        "tie_word_embeddings": spec.tied_head,
        "bos_token_id": None,
        "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
        "torch_dtype": str(dtype).removeprefix("torch."),
        **_rope_keys(spec.rope),
        **_window_keys(spec.windows),
    }
    return in_own_keys(usual, spec.family, spec.diffusion)


def drafter_config(spec: DrafterSpec, dtype: torch.dtype) -> dict[str, Any]:
    """The config.json of `spec` in the layout of the released drafters; the taps are always written."""
    settings = {
        "mask_token_id": spec.mask_token_id,
        "target_layer_ids": list(spec.target_layer_ids),
        "input_embedding_scale": spec.input_embedding_scale,
        "output_multiplier": spec.output_multiplier,
        "final_logit_softcapping": spec.final_logit_softcapping,
    }
    causal = set(spec.causal)
    by_layer_type = spec.causal == tuple(window is not None for window in spec.block.windows)
    assert by_layer_type or len(causal) == 1, "config.json has one is_causal for all layers"
    return {
        **transformer_config(spec.block, dtype),
        "architectures": [DRAFTERS[spec.v2 is not None]],
        "tie_word_embeddings": False,
        "num_target_layers": spec.num_target_layers,
        "block_size": spec.block_size,
        "dflash_config": {
            **{key: value for key, value in settings.items() if value not in (None, 1.0) or "_id" in key},
            **_second_version(spec),
        },
        **({} if by_layer_type else {"is_causal": causal.pop()}),
    }


def _second_version(spec: DrafterSpec) -> dict[str, int]:
    """What DFlash 2 adds to dflash_config."""
    if spec.v2 is None:
        return {}
    return {
        "conv_kernel_size": spec.v2.kernel_size,
        "conv_group_size": spec.v2.group_size,
        "selector_rank": spec.v2.selector_rank,
        "selector_top_k": spec.v2.selector_top_k,
    }


def _rope_keys(rope: Rope) -> dict[str, Any]:
    scaling: dict[str, Any] = {"rope_type": "default"}
    if rope.factor != 1.0:
        scaling = {
            "rope_type": "llama3",
            "factor": rope.factor,
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
            "original_max_position_embeddings": rope.original_context_tokens,
        }
    return {
        "rope_theta": rope.theta,
        "rope_scaling": scaling if rope.factor != 1.0 else None,
        "rope_parameters": {"rope_theta": rope.theta, **scaling},
    }


def _window_keys(windows: tuple[int | None, ...]) -> dict[str, Any]:
    sizes = {window for window in windows if window is not None}
    assert len(sizes) <= 1, "config.json has one sliding_window for all layers"
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    return {
        "layer_types": kinds,
        "sliding_window": next(iter(sizes), None),
        "use_sliding_window": bool(sizes),
        "max_window_layers": (*kinds, "sliding_attention").index("sliding_attention"),
    }


def _write(folder: Path, tensors: Mapping[str, Tensor], config: dict[str, Any], dtype: torch.dtype) -> None:
    # A copy of its own for each: safetensors refuses tensors that share memory.
    owned = {name: tensor.detach().to("cpu", dtype, copy=True).contiguous() for name, tensor in tensors.items()}
    text = json.dumps(config, indent=2) + "\n"
    write_atomically(folder / WEIGHTS, lambda path: save_file(owned, path, metadata={"format": "pt"}))
    # The index of a sharded checkpoint that lay here would win over the new file.
    (folder / INDEX).unlink(missing_ok=True)
    write_atomically(folder / "config.json", lambda path: path.write_text(text))
