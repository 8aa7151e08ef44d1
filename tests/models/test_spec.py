"""config.json -> Spec: both styles, defaults, refusals, and no surprise from any value of any key."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from tiny import GOLDEN, tiny_spec

from paceline.errors import CheckpointError, UnsafeCheckpoint, UnsupportedModel
from paceline.models.drafter_spec import drafter_spec
from paceline.models.save import transformer_config
from paceline.models.spec import Rope, Spec, transformer_spec

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def golden_config(case: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((GOLDEN / case / "config.json").read_text())
    return config


def llama(**changes: Any) -> dict[str, Any]:
    """The configuration of llama-tiny, with rope_theta at top level; `...` removes a key."""
    config = {**golden_config("llama-tiny"), "rope_theta": 10000.0, "rope_parameters": ..., **changes}
    return {key: value for key, value in config.items() if value is not ...}


def test_golden_configs_are_read() -> None:
    qwen3 = transformer_spec(golden_config("qwen3-tied-tiny"))
    assert (qwen3.family, qwen3.tied_head, qwen3.qk_norm, qwen3.qkv_bias, qwen3.head_dim) == (
        "qwen3",
        True,
        True,
        False,
        16,
    )
    assert transformer_spec(golden_config("mistral-tiny")).windows == (16, 16, 16)
    qwen2 = transformer_spec(golden_config("qwen2-tiny"))
    assert (qwen2.qkv_bias, qwen2.out_bias, qwen2.qk_norm, qwen2.windows) == (True, False, False, (None,) * 3)
    assert qwen2.eos_token_ids == (1,)


@pytest.mark.parametrize(
    "style",
    [
        {"rope_theta": 5e5, "rope_scaling": LLAMA3},
        {"rope_theta": ..., "rope_parameters": {"rope_theta": 5e5, **LLAMA3}},
        {"rope_theta": 1.0, "rope_parameters": {"rope_theta": 5e5, **LLAMA3}},
        {"rope_theta": 5e5, "rope_parameters": LLAMA3},
        {"rope_theta": 5e5, "rope_scaling": {"type" if k == "rope_type" else k: v for k, v in LLAMA3.items()}},
    ],
)
def test_rope_in_every_style(style: dict[str, Any]) -> None:
    assert transformer_spec(llama(**style)).rope == Rope(5e5, 8.0, 1.0, 4.0, 32)


def test_rope_without_a_base_is_refused() -> None:
    for changes in ({"rope_theta": ...}, {"rope_theta": ..., "rope_parameters": {"rope_type": "default"}}):
        with pytest.raises(CheckpointError, match="rope_theta"):
            transformer_spec(llama(**changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gpt2"}, "'gpt2'.*llama, mistral, qwen2, qwen3"),
        ({"model_type": ...}, "None"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
        ({"rope_scaling": {"factor": 4.0}}, "rope_type is None"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "'linear_attention'"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
    ],
)
def test_what_paceline_does_not_run_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        transformer_spec(llama(**changes))


def test_remote_code_is_refused() -> None:
    with pytest.raises(UnsafeCheckpoint, match="auto_map"):
        transformer_spec(llama(auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"}))


def test_sliding_windows_without_layer_types() -> None:
    qwen2 = {"model_type": "qwen2", "sliding_window": 7}
    assert transformer_spec(llama(**qwen2)).windows == (None,) * 3
    qwen2["use_sliding_window"] = True
    assert transformer_spec(llama(**qwen2)).windows == (None,) * 3, "max_window_layers is 28 by default"
    assert transformer_spec(llama(**qwen2, max_window_layers=1)).windows == (None, 7, 7)
    assert transformer_spec(llama(**{**qwen2, "sliding_window": None}, max_window_layers=0)).windows == (None,) * 3
    assert transformer_spec(llama(model_type="llama", sliding_window=7)).windows == (None,) * 3


def test_layer_types_decide_layer_by_layer() -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    assert transformer_spec(llama(layer_types=kinds, sliding_window=7)).windows == (7, None, 7)
    for changes in ({"sliding_window": None}, {"sliding_window": 0}, {"layer_types": kinds[:2]}):
        with pytest.raises(CheckpointError, match=r"sliding_window|layer_types"):
            transformer_spec(llama(**{"layer_types": kinds, "sliding_window": 7, **changes}))


def test_head_dim_defaults() -> None:
    assert transformer_spec(llama(head_dim=...)).head_dim == 12
    assert transformer_spec(llama(head_dim=..., model_type="qwen3")).head_dim == 128
    with pytest.raises(CheckpointError, match="head_dim is 5"):
        transformer_spec(llama(head_dim=5))


def test_end_of_text_is_one_id_or_several() -> None:
    assert [transformer_spec(llama(eos_token_id=x)).eos_token_ids for x in (None, 0, [2, 5])] == [(), (0,), (2, 5)]


JUNK = [None, True, 0, -1, 1.5, 10**30, 10**9, "x", "", [], {}, [1], {"a": 1}, ["full_attention"], float("nan")]


@pytest.mark.parametrize("case", ["llama3-rope-tiny", "mistral-tiny", "qwen3-tiny", "dflash-v1-scaled/draft"])
def test_no_value_of_any_key_gives_anything_but_a_spec_or_our_error(case: str) -> None:
    config = golden_config(case)
    parse = drafter_spec if "architectures" in config and "DFlash" in config["architectures"][0] else transformer_spec
    inner = [(outer, key) for outer in config if isinstance(config[outer], dict) for key in config[outer]]
    for path in [(key,) for key in config] + inner:
        for junk in [*JUNK, ...]:
            edited = copy.deepcopy(config)
            place = edited if len(path) == 1 else edited[path[0]]
            place[path[-1]] = junk
            if junk is ...:
                del place[path[-1]]
            try:
                spec = parse(edited)
            except CheckpointError:
                continue
            assert hash(spec) is not None


@pytest.mark.parametrize(
    "spec",
    [
        tiny_spec("llama", rope=Rope(5e5, 8.0, 1.0, 4.0, 32), eos_token_ids=(1, 2)),
        tiny_spec("llama", qkv_bias=True, out_bias=True, mlp_bias=True, context_tokens=99, norm_eps=1e-5),
        tiny_spec("mistral", windows=(5, 5), eos_token_ids=(3,)),
        tiny_spec("qwen2", windows=(None, 6)),
        tiny_spec("qwen2", windows=(6, None)),
        tiny_spec("qwen3", tied_head=True, head_dim=6, num_kv_heads=1),
        tiny_spec("qwen3", qkv_bias=True, out_bias=True),
    ],
)
def test_a_written_config_is_read_back_as_the_same_spec(spec: Spec) -> None:
    config = json.loads(json.dumps(transformer_config(spec, torch.bfloat16)))
    assert transformer_spec(config) == spec
    for style in ("rope_parameters", "rope_theta", "rope_scaling"):
        rest = {key: value for key, value in config.items() if key != style}
        assert transformer_spec(rest) == spec, f"without {style}"
