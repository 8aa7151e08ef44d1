"""Names and shapes: splitting is the exact inverse of fusing, and every tensor is used once or refused by name."""

from __future__ import annotations

import pytest
import torch
from tiny import checkpoint_tensors, tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer

from paceline.errors import CheckpointError
from paceline.models.drafter_spec import DFlash2
from paceline.models.layout import fuse, layout, split
from paceline.models.spec import Spec

SPECS = {
    "llama": tiny_spec("llama"),
    "llama with biases": tiny_spec("llama", qkv_bias=True, out_bias=True, mlp_bias=True),
    "mistral": tiny_spec("mistral", windows=(5, 5)),
    "qwen2": tiny_spec("qwen2"),
    "qwen3": tiny_spec("qwen3"),
    "qwen3 tied": tiny_spec("qwen3", tied_head=True),
    "one kv head": tiny_spec("llama", num_kv_heads=1),
}

each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@each_spec
def test_split_and_fuse_undo_each_other(spec: Spec) -> None:
    model = tiny_transformer(spec)
    tensors = split(model.state_dict(), spec)
    assert same(fuse(tensors, spec), dict(model.state_dict()))
    assert same(split(fuse(tensors, spec), spec), tensors)


@pytest.mark.parametrize("v2", [None, DFlash2(3, 8, 5, 4)])
def test_split_and_fuse_undo_each_other_for_a_drafter(v2: DFlash2 | None) -> None:
    target = tiny_transformer(tiny_spec())
    drafter = tiny_drafter(tiny_drafter_spec(target.spec, v2=v2), target)
    tensors = split(drafter.state_dict(), drafter.spec)
    assert same(fuse(tensors, drafter.spec), dict(drafter.state_dict()))
    assert "fc.weight" in tensors
    assert "layers.0.self_attn.k_norm.weight" in tensors
    assert ("layers.0.mlp_conv.base_kernel" in tensors) == (v2 is not None)
    assert sorted(fusion.name for fusion in layout(drafter.spec)) == sorted(drafter.state_dict())


def test_codebooks_may_have_weight_behind_their_names_but_not_twice() -> None:
    target = tiny_transformer(tiny_spec())
    drafter = tiny_drafter(tiny_drafter_spec(target.spec, v2=DFlash2(2, 8, 5, 4)), target)
    tensors = split(drafter.state_dict(), drafter.spec)
    name = "candidate_selector.successor_codebook"
    both = {**tensors, f"{name}.weight": torch.zeros(64, 5)}
    with pytest.raises(CheckpointError, match=rf"does not use: {name}\.weight"):
        fuse(both, drafter.spec)
    del both[name]
    assert torch.equal(fuse(both, drafter.spec)["selector.successor_codebook"], torch.zeros(64, 5))
    del both[f"{name}.weight"]
    with pytest.raises(CheckpointError, match=f"no tensor {name}"):
        fuse(both, drafter.spec)


@each_spec
def test_layout_names_every_tensor_of_the_module_once(spec: Spec) -> None:
    names = [fusion.name for fusion in layout(spec)]
    tied = ["head.weight"] if spec.tied_head else []
    assert sorted(names + tied) == sorted(tiny_transformer(spec).state_dict())


def test_rows_are_q_then_k_then_v_and_gate_then_up() -> None:
    spec = tiny_spec("qwen2")
    tensors = checkpoint_tensors(tiny_transformer(spec))
    state = fuse(tensors, spec)
    base = "model.layers.1."
    for kind in ("weight", "bias"):
        parts = [tensors[f"{base}self_attn.{x}_proj.{kind}"] for x in "qkv"]
        assert [len(part) for part in parts] == [32, 16, 16]
        assert torch.equal(state[f"layers.1.qkv.{kind}"], torch.cat(parts))
    gate_up = torch.cat([tensors[f"{base}mlp.{x}_proj.weight"] for x in ("gate", "up")])
    assert torch.equal(state["layers.1.gate_up.weight"], gate_up)


def test_a_tied_head_is_the_embedding_itself() -> None:
    spec = tiny_spec(tied_head=True)
    state = fuse(checkpoint_tensors(tiny_transformer(spec)), spec)
    assert state["head.weight"] is state["embed.weight"]


@each_spec
def test_a_missing_tensor_is_named(spec: Spec) -> None:
    tensors = checkpoint_tensors(tiny_transformer(spec))
    for name in tensors:
        rest = {key: tensor for key, tensor in tensors.items() if key != name}
        with pytest.raises(CheckpointError, match=rf"no tensor {name}\b"):
            fuse(rest, spec)


def test_many_missing_tensors_make_a_short_message() -> None:
    with pytest.raises(CheckpointError, match="and 20 more") as caught:
        fuse({}, tiny_spec())
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias", "x"])
def test_an_unexpected_tensor_is_named(name: str) -> None:
    spec = tiny_spec("llama")
    tensors = checkpoint_tensors(tiny_transformer(spec))
    with pytest.raises(CheckpointError, match=name):
        fuse({**tensors, name: torch.zeros(1)}, spec)


def test_old_rotary_tensors_are_skipped() -> None:
    spec = tiny_spec("llama")
    tensors = checkpoint_tensors(tiny_transformer(spec))
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    assert same(fuse({**tensors, **extra}, spec), fuse(tensors, spec))


def test_a_wrong_shape_is_named_with_both_shapes() -> None:
    spec = tiny_spec("llama")
    tensors = checkpoint_tensors(tiny_transformer(spec))
    for name, tensor in tensors.items():
        wrong = {**tensors, name: tensor.new_zeros(tensor.shape[0] + 1, *tensor.shape[1:])}
        with pytest.raises(CheckpointError) as caught:
            fuse(wrong, spec)
        assert all(text in str(caught.value) for text in (name, str(list(tensor.shape)), str(list(wrong[name].shape))))


def test_swapped_q_and_k_are_noticed_by_their_shapes() -> None:
    spec = tiny_spec("llama")
    tensors = checkpoint_tensors(tiny_transformer(spec))
    q, k = (f"model.layers.0.self_attn.{x}_proj.weight" for x in "qk")
    with pytest.raises(CheckpointError, match="shape"):
        fuse({**tensors, q: tensors[k], k: tensors[q]}, spec)
