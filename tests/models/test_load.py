"""Loading weights: precision, tied heads, shards; nothing incomplete is ever loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import (
    GOLDEN,
    checkpoint_tensors,
    edit_config,
    run_flat,
    same_weights,
    tiny_cache,
    tiny_drafter,
    tiny_drafter_spec,
    tiny_spec,
    tiny_transformer,
    write_checkpoint,
)
from torch import Tensor

from paceline import native
from paceline.errors import CheckpointError, PacelineError, VocabularyMismatch
from paceline.models.attention import dense_attention
from paceline.models.drafter_spec import DFlash2
from paceline.models.load import (
    load_drafter,
    load_transformer,
)
from paceline.models.save import save_transformer
from paceline.models.transformer import Layer, Transformer


def logits(model: Transformer, tokens: list[int]) -> Tensor:
    out: Tensor = model.head(run_flat(model, [tokens], [tiny_cache(model)]).hidden)
    return out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_converted_on_request(dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    loaded = load_transformer(write_checkpoint(tmp_path, model), dtype)
    assert same_weights(loaded, model.to(dtype))


def test_a_file_of_mixed_precision_takes_that_of_the_embedding(tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec(), dtype=torch.bfloat16)
    tensors = checkpoint_tensors(model)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].float()
    save_file(tensors, write_checkpoint(tmp_path, model) / "model.safetensors")
    assert {parameter.dtype for parameter in load_transformer(tmp_path).parameters()} == {torch.bfloat16}


def test_loaded_modules_hold_their_own_memory_and_nothing_on_meta(tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec(tied_head=True), dtype=torch.float32)
    loaded = load_transformer(write_checkpoint(tmp_path, model))
    assert loaded.rotary.frequencies.dtype == torch.float64
    assert torch.equal(loaded.rotary.frequencies, model.rotary.frequencies)
    expected = logits(model, [1, 2, 3])
    (tmp_path / "model.safetensors").write_bytes(bytes(10_000))
    assert torch.allclose(logits(loaded, [1, 2, 3]), expected, atol=1e-4)


@pytest.mark.slow
def test_loading_does_not_import_the_compiler() -> None:
    """Building on the meta device did, for 4 s of every start."""
    code = (
        "import sys, pathlib, paceline.models.load as load\n"
        "load.load_transformer(pathlib.Path(sys.argv[1]))\n"
        "assert not {'torch._dynamo', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(GOLDEN / "qwen3-tied-tiny")], check=True)


def test_trainable_models_are_plain_and_have_gradients(tmp_path: Path) -> None:
    target = tiny_transformer(tiny_spec(tied_head=True), dtype=torch.float32)
    loaded = load_transformer(write_checkpoint(tmp_path / "target", target), trainable=True)
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert loaded.head.weight is loaded.embed.weight
    hidden = loaded(torch.tensor([1, 2]), torch.tensor([0, 1]), dense_attention(1, loaded.spec.windows)).hidden
    loaded.head(hidden).sum().backward()
    assert loaded.embed.weight.grad is not None
    drafter = tiny_drafter(tiny_drafter_spec(target.spec), target)
    folder = write_checkpoint(tmp_path / "drafter", drafter)
    trained = load_drafter(folder, target, trainable=True)
    assert all(parameter.requires_grad for parameter in trained.parameters())
    frozen = (*load_transformer(tmp_path / "target").parameters(), *load_drafter(folder, target).parameters())
    assert not any(parameter.requires_grad for parameter in frozen)


# loading-02: tied and untied heads


@pytest.mark.parametrize(("tied", "has_head"), [(True, False), (True, True), (False, True), (False, False)])
def test_tied_and_untied_heads(tied: bool, has_head: bool, tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec(tied_head=False), dtype=torch.float32)
    folder, tensors = write_checkpoint(tmp_path, model), checkpoint_tensors(model)
    edit_config(folder, tie_word_embeddings=tied)
    if not has_head:
        del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    if not tied and not has_head:
        with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
            load_transformer(folder)
        return
    loaded = load_transformer(folder)
    assert (loaded.head.weight is loaded.embed.weight) == tied
    assert torch.equal(loaded.head.weight, tensors["model.embed_tokens.weight" if tied else "lm_head.weight"])
    drafter = load_drafter(write_checkpoint(tmp_path / "d", tiny_drafter(tiny_drafter_spec(model.spec), model)), loaded)
    assert drafter.head is loaded.head
    assert drafter.embed is loaded.embed


# loading-03: shards


def shard(folder: Path) -> list[Path]:
    """Split the single file of a checkpoint over three shards with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = [folder / f"model-0000{i + 1}-of-00003.safetensors" for i in range(3)]
    weight_map = {name: files[i % 3].name for i, name in enumerate(tensors)}
    for file in files:
        save_file({name: tensors[name] for name in tensors if weight_map[name] == file.name}, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return files


@pytest.fixture
def sharded(tmp_path: Path) -> tuple[Path, list[Path], Transformer]:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    folder = write_checkpoint(tmp_path / "sharded", model)
    return folder, shard(folder), model


def test_shards_are_joined(sharded: tuple[Path, list[Path], Transformer]) -> None:
    assert same_weights(load_transformer(sharded[0]), sharded[2])


def test_every_missing_shard_is_named_before_weights_are_read(
    sharded: tuple[Path, list[Path], Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, files, _ = sharded
    files[0].unlink()
    files[1].unlink()
    monkeypatch.setattr("paceline.models.safetensors_file.safe_open", lambda *_, **__: pytest.fail("read a weight"))
    with pytest.raises(CheckpointError) as caught:
        load_transformer(folder)
    assert files[0].name in str(caught.value)
    assert files[1].name in str(caught.value)
    assert files[2].name not in str(caught.value)


def test_a_short_shard_is_named(sharded: tuple[Path, list[Path], Transformer]) -> None:
    folder, files, _ = sharded
    files[2].write_bytes(files[2].read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=f"{files[2].name} is 1000 bytes shorter than its header says"):
        load_transformer(folder)


def test_a_stray_file_beside_the_shards_is_not_used(sharded: tuple[Path, list[Path], Transformer]) -> None:
    folder, _, model = sharded
    save_file({"model.norm.weight": torch.zeros(32), "stray": torch.zeros(2)}, folder / "model.safetensors")
    save_file({"stray": torch.zeros(2)}, folder / "other.safetensors")
    assert same_weights(load_transformer(folder), model)


def test_shards_may_be_links_as_in_the_hub_cache(sharded: tuple[Path, list[Path], Transformer]) -> None:
    folder, files, model = sharded
    (folder.parent / "blobs").mkdir()
    blob = files[0].rename(folder.parent / "blobs" / "abc")
    files[0].symlink_to(blob)
    assert same_weights(load_transformer(folder), model)


def test_saving_over_shards_replaces_them(sharded: tuple[Path, list[Path], Transformer]) -> None:
    folder, _, _ = sharded
    (folder / "tokenizer.json").write_text("kept")
    other = tiny_transformer(tiny_spec(), seed=9, dtype=torch.float32)
    write_checkpoint(folder, other)
    assert same_weights(load_transformer(folder), other)
    assert (folder / "tokenizer.json").read_text() == "kept"


@pytest.mark.parametrize("v2", [None, DFlash2(2, 8, 4, 4)])
def test_a_drafter_is_not_taken_for_a_model(v2: DFlash2 | None, tmp_path: Path) -> None:
    target = tiny_transformer(tiny_spec())
    folder = write_checkpoint(tmp_path / "drafter", tiny_drafter(tiny_drafter_spec(target.spec, v2=v2), target))
    with pytest.raises(CheckpointError, match="is a DFlash drafter, not a model") as caught:
        load_transformer(folder)
    assert "beside its target" in str(caught.value.remedy)


def test_codebooks_have_every_id_of_the_target(tmp_path: Path) -> None:
    """A padded table of the target may hold more ids than another one's codebooks."""
    target, larger = tiny_transformer(tiny_spec()), tiny_transformer(tiny_spec(vocab_size=96))
    spec = tiny_drafter_spec(target.spec, v2=DFlash2(2, 8, 4, 4))
    folder = write_checkpoint(tmp_path, tiny_drafter(spec, target))
    assert load_drafter(folder, target).selector is not None
    with pytest.raises(VocabularyMismatch, match=r"codebooks have 64 ids, the target's vocabulary has 96 ids\."):
        load_drafter(folder, larger)
    load_drafter(write_checkpoint(tmp_path, tiny_drafter(replace(spec, v2=None), target)), larger)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(PacelineError, match=r"config\.json cannot be read: No such file"):
            load_transformer(folder)


@pytest.mark.parametrize("arithmetic", [native.Arithmetic("weights", 32), native.Arithmetic("int8")])
def test_int8_refuses_what_is_no_number(tmp_path: Path, arithmetic: native.Arithmetic) -> None:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    cast(Layer, model.layers[1]).down.weight.data[0, 0] = float("nan")
    save_transformer(model, tmp_path, torch.float32)
    load_transformer(tmp_path, torch.float32)
    with pytest.raises(CheckpointError, match=r"layers\.1\.down\.weight .* not finite"):
        load_transformer(tmp_path, torch.float32, arithmetic=arithmetic)
