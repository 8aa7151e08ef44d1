"""The GGUF file of a checkpoint, read back by the package that defines the format."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tokenizers
import torch
from tiny import GOLDEN, edit_config, tiny_spec, tiny_transformer, write_checkpoint

from paceline.bench.peers.gguf_file import KINDS, write_gguf
from paceline.errors import ConfigError, UnsupportedModel
from paceline.models.safetensors_file import read_json, read_tensors

UNTIED, TIED = GOLDEN / "dflash-v1-full" / "target", GOLDEN / "qwen3-tied-tiny"
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INSIDE = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def theirs(name: str) -> str:
    """The name that llama.cpp looks for."""
    stem = name.removesuffix(".weight")
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.weight"
    _, _, index, rest = stem.split(".", 3)
    return f"blk.{index}.{INSIDE[rest]}.weight"


def read(path: Path) -> Any:
    return pytest.importorskip("gguf").GGUFReader(path)


def field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("folder", [UNTIED, TIED], ids=["untied", "tied"])
def test_every_tensor_comes_back(folder: Path, kind: str, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    types = gguf.GGMLQuantizationType
    read_bytes = write_gguf(folder, tmp_path / "model.gguf", kind)
    found = {tensor.name: tensor for tensor in read(tmp_path / "model.gguf").tensors}
    tensors = read_tensors(folder)
    assert found.keys() == {theirs(name) for name in tensors}
    seen = set()
    for name, tensor in tensors.items():
        entry, exact = found[theirs(name)], tensor.float().numpy()
        assert list(reversed(entry.shape.tolist())) == list(exact.shape)
        values = gguf.quants.dequantize(entry.data, entry.tensor_type)
        if exact.ndim == 1 or kind == "f32":
            assert entry.tensor_type == types.F32
            assert np.array_equal(values, exact)
        elif kind == "bf16":
            assert entry.tensor_type == types.BF16
            assert np.array_equal(values, torch.from_numpy(exact).bfloat16().float().numpy())
        elif kind == "f16" or exact.shape[-1] % 32:
            assert entry.tensor_type == types.F16
            assert np.array_equal(values, exact.astype(np.float16).astype(np.float32))
        else:
            assert entry.tensor_type == types.Q8_0
            half_step = 0.5 / 127 + 2.0**-11  # of 8 bits; and the scale itself is rounded to float16
            largest = np.abs(exact.reshape(-1, 32)).max(1, keepdims=True)
            assert (np.abs(values.reshape(-1, 32) - exact.reshape(-1, 32)) <= largest * half_step).all()
        seen.add(entry.tensor_type)
    assert len(seen) == {"f32": 1, "f16": 2, "bf16": 2, "q8_0": 3}[kind], "each case has been met"
    counted = (tensor for name, tensor in found.items() if folder == TIED or name != "token_embd.weight")
    assert read_bytes == sum(int(tensor.n_bytes) for tensor in counted)


def test_sizes_are_those_of_the_config(tmp_path: Path) -> None:
    write_gguf(UNTIED, tmp_path / "model.gguf", "q8_0")
    reader = read(tmp_path / "model.gguf")
    config = read_json(UNTIED / "config.json")
    expected = {
        "general.architecture": "qwen3",
        "general.file_type": 7,  # mostly q8_0
        "qwen3.context_length": config["max_position_embeddings"],
        "qwen3.embedding_length": config["hidden_size"],
        "qwen3.feed_forward_length": config["intermediate_size"],
        "qwen3.block_count": config["num_hidden_layers"],
        "qwen3.attention.head_count": config["num_attention_heads"],
        "qwen3.attention.head_count_kv": config["num_key_value_heads"],
        "qwen3.attention.key_length": config["head_dim"],
        "qwen3.attention.value_length": config["head_dim"],
        "qwen3.rope.freq_base": config["rope_parameters"]["rope_theta"],
        "qwen3.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "none",
    }
    assert {name: field(reader, name) for name in expected} == expected
    assert field(reader, "qwen3.attention.layer_norm_rms_epsilon") == pytest.approx(1e-6)


def test_the_tokenizer_comes_along_and_padding_gets_names(tmp_path: Path) -> None:
    backend = tiny_tokenizers.byte_level()
    tokens = backend.get_vocab_size()
    model = tiny_transformer(tiny_spec(vocab_size=tokens + 3, eos_token_ids=(tokens - 4, tokens - 2)))
    folder = write_checkpoint(tmp_path / "model", model.float())
    tiny_tokenizers.save(folder, backend, {"chat_template": tiny_tokenizers.CHATML})
    write_gguf(folder, tmp_path / "model.gguf", "f16")
    reader = read(tmp_path / "model.gguf")
    assert field(reader, "tokenizer.ggml.model") == "gpt2"
    names = field(reader, "tokenizer.ggml.tokens")
    assert names[:tokens] == [backend.id_to_token(index) for index in range(tokens)]
    assert names[tokens:] == [f"[PAD{index}]" for index in range(tokens, tokens + 3)]
    normal, control, unused = 1, 3, 5
    specials = {backend.token_to_id(name) for name in tiny_tokenizers.SPECIALS}
    kinds = [control if index in specials else normal for index in range(tokens)] + [unused] * 3
    assert field(reader, "tokenizer.ggml.token_type") == kinds
    merges = [" ".join(pair) for pair in json.loads(backend.to_str())["model"]["merges"]]
    assert field(reader, "tokenizer.ggml.merges") == merges
    assert field(reader, "tokenizer.ggml.eos_token_id") == tokens - 4
    assert field(reader, "tokenizer.ggml.add_bos_token") is False
    assert field(reader, "tokenizer.chat_template") == tiny_tokenizers.CHATML


@pytest.mark.parametrize(
    "changes", [{"attention_bias": True}, {"sliding_window": 8, "layer_types": ["sliding_attention"] * 6}]
)
def test_other_models_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    write_checkpoint(tmp_path, tiny_transformer(tiny_spec(num_layers=6), dtype=torch.float32))
    edit_config(tmp_path, **changes)
    with pytest.raises(UnsupportedModel, match="without biases, sliding windows"):
        write_gguf(tmp_path, tmp_path / "model.gguf", "f32")
    with pytest.raises(UnsupportedModel, match="llama model"):
        write_gguf(GOLDEN / "llama-tiny", tmp_path / "model.gguf", "f32")


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    backend = tiny_tokenizers.byte_fallback()
    model = tiny_transformer(tiny_spec(vocab_size=backend.get_vocab_size()), dtype=torch.float32)
    tiny_tokenizers.save(write_checkpoint(tmp_path, model), backend, {})
    with pytest.raises(UnsupportedModel, match="no byte-level BPE"):
        write_gguf(tmp_path, tmp_path / "model.gguf", "f32")


def test_the_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigError, match=r"gguf.*not installed.*pip install"):
        write_gguf(UNTIED, tmp_path / "model.gguf", "f32")
