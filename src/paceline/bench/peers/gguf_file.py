"""A Qwen3 checkpoint and its tokenizer as a GGUF file, which llama.cpp reads. Written through the package `gguf`.

Weights as float32, float16, bfloat16, or q8_0: 32 numbers of a row share one float16 scale, 8 bits each. Vectors stay
float32; where 32 does not divide the rows of a matrix, it stays float16 in a q8_0 file. llama.cpp does not know our
pattern for cutting text into words; the file names the nearest, qwen2. Peers are given token ids, so nothing depends on
it. Does not know what the file is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from paceline.bench.peers.given import peer_library
from paceline.chat import read_template
from paceline.errors import UnsupportedModel
from paceline.models.safetensors_file import read_json, read_tensors
from paceline.models.spec import Spec, transformer_spec

__all__ = ["KINDS", "write_gguf"]

KINDS = ("f32", "f16", "bf16", "q8_0")

_ROW_BLOCK = 32
"""Numbers of a row that share a scale in q8_0."""


def write_gguf(folder: Path, path: Path, kind: str) -> int:
    """Write the checkpoint in `folder` to `path`; returns the bytes of weights that one pass of it reads.

    Args:
        folder: config.json and safetensors; tokenizer.json and its configuration, where there are any.
        path: the new file.
        kind: one of `KINDS`.

    Raises:
        ConfigError: the package gguf is not installed.
        UnsupportedModel: llama.cpp's Qwen3 is not this model.
        CheckpointError: the checkpoint cannot be read.
    """
    library = peer_library("gguf", "pip install 'paceline[peers]'")
    spec = _checked(transformer_spec(read_json(folder / "config.json")))
    writer = library.GGUFWriter(path, "qwen3")
    writer.add_name(folder.name)
    writer.add_file_type(_file_type(library, kind))
    _write_sizes(writer, spec)
    _write_tokens(library, writer, spec, folder)
    written = 0
    for name, values, form in _tensors(library, folder, spec, kind):
        writer.add_tensor(name, values, raw_dtype=form)
        written += values.nbytes if spec.tied_head or name != "token_embd.weight" else 0
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written


def _checked(spec: Spec) -> Spec:
    biased = spec.qkv_bias or spec.out_bias or spec.mlp_bias
    if spec.family != "qwen3" or biased or spec.rope.factor != 1.0 or any(spec.windows):
        raise UnsupportedModel(
            f"This {spec.family} model is not one that the benchmark writes as GGUF.",
            remedy="It writes Qwen3 without biases, sliding windows and rope scaling.",
            param="peers",
        )
    return spec


def _file_type(library: Any, kind: str) -> int:
    types = library.LlamaFileType
    mostly = {"f16": types.MOSTLY_F16, "bf16": types.MOSTLY_BF16, "q8_0": types.MOSTLY_Q8_0}
    return int(types.ALL_F32 if kind == "f32" else mostly[kind])


def _write_sizes(writer: Any, spec: Spec) -> None:
    writer.add_context_length(spec.context_tokens)
    writer.add_embedding_length(spec.hidden_size)
    writer.add_feed_forward_length(spec.intermediate_size)
    writer.add_block_count(spec.num_layers)
    writer.add_head_count(spec.num_heads)
    writer.add_head_count_kv(spec.num_kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_layer_norm_rms_eps(spec.norm_eps)
    writer.add_rope_freq_base(spec.rope.theta)
    writer.add_vocab_size(spec.vocab_size)


def _write_tokens(library: Any, writer: Any, spec: Spec, folder: Path) -> None:
    """The byte-level BPE of tokenizer.json; ids that only pad the table get names of their own."""
    if not (folder / "tokenizer.json").is_file():
        writer.add_tokenizer_model("none")
        return
    file = read_json(folder / "tokenizer.json")
    if file["model"].get("type") != "BPE" or (file.get("decoder") or {}).get("type") != "ByteLevel":
        raise UnsupportedModel(f"{folder}: the tokenizer is no byte-level BPE.", param="peers")
    names, types = _tokens(library.TokenType, file, spec.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(names)
    writer.add_token_types(types)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in file["model"]["merges"]])
    writer.add_add_bos_token(False)
    if spec.eos_token_ids:
        writer.add_eos_token_id(spec.eos_token_ids[0])
    config = folder / "tokenizer_config.json"
    template = read_template(folder, read_json(config) if config.is_file() else {})
    if template is not None:
        writer.add_chat_template(template)


def _tokens(types: Any, file: Mapping[str, Any], vocab_size: int) -> tuple[list[str], list[int]]:
    """Spelling and kind of every id below `vocab_size`."""
    spelled = {index: (name, types.NORMAL) for name, index in file["model"]["vocab"].items()}
    for token in file.get("added_tokens", ()):
        spelled[token["id"]] = (token["content"], types.CONTROL if token["special"] else types.USER_DEFINED)
    entries = [spelled.get(index, (f"[PAD{index}]", types.UNUSED)) for index in range(vocab_size)]
    return [name for name, _ in entries], [int(kind) for _, kind in entries]


def _tensors(library: Any, folder: Path, spec: Spec, kind: str) -> Iterator[tuple[str, Any, Any]]:
    """Name, array and type in the file of every tensor; a tied head is the embedding, and is not repeated."""
    names = library.get_tensor_name_map(library.MODEL_ARCH.QWEN3, spec.num_layers)
    for name, tensor in read_tensors(folder).items():
        if name.endswith("rotary_emb.inv_freq") or (spec.tied_head and name == "lm_head.weight"):
            continue
        form = _form(library.GGMLQuantizationType, tensor, kind)
        yield (
            names.get_name(name, try_suffixes=(".weight",)),
            library.quants.quantize(tensor.float().numpy(), form),
            form,
        )


def _form(types: Any, tensor: Tensor, kind: str) -> Any:
    if kind == "f32" or tensor.dim() == 1:
        return types.F32
    if kind == "bf16":
        return types.BF16
    return types.F16 if kind == "f16" or tensor.shape[-1] % _ROW_BLOCK else types.Q8_0
