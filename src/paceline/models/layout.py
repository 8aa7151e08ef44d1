"""Tensor names and shapes of Hugging Face checkpoints, and how ours are made of them.

    ours                          theirs (under `model.`; a drafter's have no prefix)
    embed                         embed_tokens
    layers.i.attention_norm       layers.i.input_layernorm
    layers.i.qkv                  layers.i.self_attn.{q,k,v}_proj, one under the other
    layers.i.head_norm.{q,k}      layers.i.self_attn.{q,k}_norm.weight
    layers.i.out                  layers.i.self_attn.o_proj
    layers.i.mlp_norm             layers.i.post_attention_layernorm
    layers.i.gate_up              layers.i.mlp.{gate,up}_proj, one under the other
    layers.i.down                 layers.i.mlp.down_proj
    norm, fc, hidden_norm         the same
    couplings.i.{attention,mlp}   layers.i.{attention,mlp}_conv
    selector                      candidate_selector; its codebooks also with `.weight` behind them
    head                          lm_head, without prefix; absent where the head is tied

LLaDA has other names for all of them (`_LLADA_NAMES`).

Knows nothing of files. Every tensor is used exactly once, or refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.errors import CheckpointError
from paceline.models.drafter_spec import DFlash2, DrafterSpec
from paceline.models.spec import Spec

__all__ = ["Fusion", "fuse", "layout", "parts_of", "split"]

_LLADA_NAMES = (
    ("lm_head", "model.transformer.ff_out"),
    ("model.embed_tokens", "model.transformer.wte"),
    ("model.norm", "model.transformer.ln_f"),
    ("model.layers", "model.transformer.blocks"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ff_norm"),
    ("self_attn.o_proj", "attn_out"),
    ("self_attn.", ""),
    ("mlp.gate_proj", "ff_proj"),
    ("mlp.up_proj", "up_proj"),
    ("mlp.down_proj", "ff_out"),
)

_NAMED = 5
"""At most so many tensors are named in one message."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """One of our tensors, and the tensors of the checkpoint that it is made of: all [rows, …] with equal columns."""

    name: str
    parts: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def rows(self) -> list[int]:
        """Rows of each part."""
        return [shape[0] for _, shape in self.parts]


def layout(spec: Spec | DrafterSpec) -> list[Fusion]:
    """All tensors of a Transformer or of a drafter; a tied head is not among them."""
    if isinstance(spec, DrafterSpec):
        return list(_drafter(spec))
    return [_llada(fusion) if spec.family == "llada" else fusion for fusion in _transformer(spec)]


def fuse(tensors: Mapping[str, Tensor], spec: Spec | DrafterSpec) -> dict[str, Tensor]:
    """The state dict of the `Transformer` or `Drafter` of `spec`; a tied head is the very tensor of the embedding.

    Every tensor is a copy, so that nothing of a mapped file is kept.

    Raises:
        CheckpointError: as `parts_of`.
    """
    state = {name: torch.cat(parts) for name, parts in parts_of(tensors, spec).items()}
    if isinstance(spec, Spec) and spec.tied_head:
        state["head.weight"] = state["embed.weight"]
    return state


def parts_of(tensors: Mapping[str, Tensor], spec: Spec | DrafterSpec) -> dict[str, list[Tensor]]:
    """Of each tensor of our state dict, those of the checkpoint that it is made of, one under the other; no copies.

    Raises:
        CheckpointError: a tensor is missing, unexpected, or has another shape; names it.
    """
    fusions = layout(spec)
    expected = {name: shape for fusion in fusions for name, shape in fusion.parts}
    tensors = {_published(name, tensors): tensor for name, tensor in tensors.items()}
    tied = isinstance(spec, Spec) and spec.tied_head
    _check_names(tensors.keys(), expected, tied)
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise CheckpointError(
                f"Tensor {name} has shape {list(tensors[name].shape)}; config.json makes it {list(shape)}.",
                remedy="The weights belong to another configuration.",
            )
    found = {fusion.name: [tensors[name] for name, _ in fusion.parts] for fusion in fusions}
    if tied:
        found["head.weight"] = found["embed.weight"]
    return found


def split(state: Mapping[str, Tensor], spec: Spec | DrafterSpec) -> dict[str, Tensor]:
    """The tensors of the checkpoint, as views of the module's state dict: exactly undoes `fuse`."""
    tensors: dict[str, Tensor] = {}
    for fusion in layout(spec):
        names = [name for name, _ in fusion.parts]
        tensors.update(zip(names, torch.split(state[fusion.name], fusion.rows), strict=True))
    return tensors


def _check_names(found: Collection[str], expected: Collection[str], tied: bool) -> None:
    missing = [name for name in expected if name not in found]
    if missing:
        raise CheckpointError(f"The checkpoint has no tensor {_some(missing)}.", remedy="It is incomplete.")
    unexpected = sorted(name for name in found if name not in expected and not _harmless(name, tied))
    if unexpected:
        raise CheckpointError(
            f"The checkpoint has tensors that the model does not use: {_some(unexpected)}.",
            remedy="Its config.json describes another model; loading it all the same would give wrong text.",
        )


def _published(name: str, found: Collection[str]) -> str:
    """The codebooks of DFlash 2 have no `.weight` as published; some files add it. Two of one are told apart."""
    bare = name.removesuffix(".weight")
    return bare if bare.endswith("_codebook") and bare not in found else name


def _harmless(name: str, tied: bool) -> bool:
    """Old files repeat the rotary frequencies, and a tied head beside its embedding."""
    return name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _transformer(spec: Spec) -> Iterator[Fusion]:
    yield Fusion("embed.weight", (("model.embed_tokens.weight", (spec.vocab_size, spec.hidden_size)),))
    yield from _layers(spec, "model.")
    yield Fusion("norm.weight", (("model.norm.weight", (spec.hidden_size,)),))
    if not spec.tied_head:
        yield Fusion("head.weight", (("lm_head.weight", (spec.vocab_size, spec.hidden_size)),))


def _llada(fusion: Fusion) -> Fusion:
    """The same tensors under the names of LLaDA's code base."""
    return Fusion(fusion.name, tuple((_llada_name(name), shape) for name, shape in fusion.parts))


def _llada_name(name: str) -> str:
    for usual, theirs in _LLADA_NAMES:
        name = name.replace(usual, theirs)
    return name


def _drafter(spec: DrafterSpec) -> Iterator[Fusion]:
    hidden = spec.block.hidden_size
    yield Fusion("fc.weight", (("fc.weight", (hidden, len(spec.target_layer_ids) * hidden)),))
    yield Fusion("hidden_norm.weight", (("hidden_norm.weight", (hidden,)),))
    yield from _layers(spec.block, "")
    yield Fusion("norm.weight", (("norm.weight", (hidden,)),))
    if spec.v2 is not None:
        yield from _second_version(spec.block, spec.v2)


def _second_version(block: Spec, v2: DFlash2) -> Iterator[Fusion]:
    """What DFlash 2 adds."""
    hidden, size = block.hidden_size, v2.kernel_size
    for index in range(block.num_layers):
        for part in ("attention", "mlp"):
            ours, theirs = f"couplings.{index}.{part}", f"layers.{index}.{part}_conv"
            yield Fusion(f"{ours}.base_kernel", ((f"{theirs}.base_kernel", (2, size, hidden)),))
            rows = 2 * size * (hidden // v2.group_size)
            yield from _linear(f"{ours}.kernel_projection", ((f"{theirs}.kernel_projection", rows),), hidden, False)
    for codebook in ("predecessor_codebook", "successor_codebook"):
        shape = (block.vocab_size, v2.selector_rank)
        yield Fusion(f"selector.{codebook}", ((f"candidate_selector.{codebook}", shape),))
    projection = (("candidate_selector.hidden_projection", v2.selector_rank),)
    yield from _linear("selector.hidden_projection", projection, hidden, False)


def _layers(spec: Spec, prefix: str) -> Iterator[Fusion]:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_rows, kv_rows = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    for index in range(spec.num_layers):
        ours, theirs = f"layers.{index}", f"{prefix}layers.{index}"
        qkv = ((f"{theirs}.self_attn.q_proj", q_rows), *((f"{theirs}.self_attn.{x}_proj", kv_rows) for x in "kv"))
        yield Fusion(f"{ours}.attention_norm.weight", ((f"{theirs}.input_layernorm.weight", (hidden,)),))
        yield from _linear(f"{ours}.qkv", qkv, hidden, spec.qkv_bias)
        for x in "qk" if spec.qk_norm else "":
            yield Fusion(f"{ours}.head_norm.{x}", ((f"{theirs}.self_attn.{x}_norm.weight", (spec.head_dim,)),))
        yield from _linear(f"{ours}.out", ((f"{theirs}.self_attn.o_proj", hidden),), q_rows, spec.out_bias)
        yield Fusion(f"{ours}.mlp_norm.weight", ((f"{theirs}.post_attention_layernorm.weight", (hidden,)),))
        gate_up = tuple((f"{theirs}.mlp.{x}_proj", inner) for x in ("gate", "up"))
        yield from _linear(f"{ours}.gate_up", gate_up, hidden, spec.mlp_bias)
        yield from _linear(f"{ours}.down", ((f"{theirs}.mlp.down_proj", hidden),), inner, spec.mlp_bias)


def _linear(ours: str, parts: tuple[tuple[str, int], ...], columns: int, bias: bool) -> Iterator[Fusion]:
    yield Fusion(f"{ours}.weight", tuple((f"{name}.weight", (rows, columns)) for name, rows in parts))
    if bias:
        yield Fusion(f"{ours}.bias", tuple((f"{name}.bias", (rows,)) for name, rows in parts))
