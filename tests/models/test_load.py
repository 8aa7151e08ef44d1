"""Loading and saving: what is loaded is what was saved, and nothing incomplete or mismatched is ever loaded."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import (
    GOLDEN,
    checkpoint_tensors,
    edit_config,
    run_flat,
    tiny_cache,
    tiny_drafter,
    tiny_drafter_spec,
    tiny_spec,
    tiny_transformer,
    write_checkpoint,
)
from torch import Tensor, nn

import paceline.models.load as load_module
from paceline.errors import CheckpointError, PacelineError, VocabularyMismatch
from paceline.models.load import (
    check_same_tokens,
    load_drafter,
    load_transformer,
    resolve,
    shared_vocabulary,
    zoo_folder,
)
from paceline.models.save import save_drafter, save_transformer
from paceline.models.transformer import Transformer

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def same_weights(left: nn.Module, right: nn.Module) -> bool:
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def logits(model: Transformer, tokens: list[int]) -> Tensor:
    out: Tensor = model.head(run_flat(model, [tokens], [tiny_cache(model)]).hidden)
    return out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_is_loaded_bit_for_bit(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec(family, eos_token_ids=(3,)), dtype=dtype)
    loaded = load_transformer(write_checkpoint(tmp_path / "new" / "folder", model))
    assert loaded.spec == model.spec
    assert same_weights(loaded, model)
    assert {parameter.dtype for parameter in loaded.parameters()} == {dtype}


def test_saving_rounds_to_bfloat16_once(tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    save_transformer(model, tmp_path)
    loaded = load_transformer(tmp_path)
    assert same_weights(loaded, model.to(torch.bfloat16))
    save_transformer(loaded, tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_saved_drafter_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    target = tiny_transformer(tiny_spec(num_layers=4))
    drafter = tiny_drafter(tiny_drafter_spec(target.spec, final_logit_softcapping=9.0), target)
    loaded = load_drafter(write_checkpoint(tmp_path, drafter), target)
    assert loaded.spec == drafter.spec
    assert same_weights(loaded, drafter)
    save_drafter(drafter, tmp_path, torch.float32)
    assert load_drafter(tmp_path, target).fc.weight.dtype == torch.float64, "the target's precision"


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
    assert loaded.frequencies.dtype == torch.float64
    assert torch.equal(loaded.frequencies, model.frequencies)
    expected = logits(model, [1, 2, 3])
    (tmp_path / "model.safetensors").write_bytes(bytes(10_000))
    assert torch.allclose(logits(loaded, [1, 2, 3]), expected, atol=1e-4)


def test_trainable_models_are_plain_and_have_gradients(tmp_path: Path) -> None:
    target = tiny_transformer(tiny_spec(tied_head=True), dtype=torch.float32)
    loaded = load_transformer(write_checkpoint(tmp_path / "target", target), trainable=True)
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert loaded.head.weight is loaded.embed.weight
    logits(loaded, [1, 2]).sum().backward()
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


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    write_checkpoint(tmp_path, model)

    def fail(_: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("paceline.models.save.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(tmp_path, tiny_transformer(tiny_spec(), seed=9))
    assert same_weights(load_transformer(tmp_path), model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


# drafters and their targets


DRAFTERS = sorted(path.parent.name for path in GOLDEN.glob("dflash-v1-*/draft"))


@pytest.mark.parametrize("case", DRAFTERS)
def test_golden_drafters_load(case: str) -> None:
    content = json.loads((GOLDEN / case / "cases.json").read_text())
    target = load_transformer(GOLDEN / case / "target")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        drafter = load_drafter(GOLDEN / case / "draft", target)
    assert list(drafter.spec.target_layer_ids) == content["target_layer_ids"]
    assert drafter.spec.mask_token_id == content["mask_token_id"]
    assert drafter.spec.block_size == content["block_size"]
    assert (drafter.head, drafter.embed) == (target.head, target.embed)
    guessed = [str(warning.message) for warning in caught if str(content["target_layer_ids"]) in str(warning.message)]
    assert len(guessed) == (case == "dflash-v1-sliding")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Transformer]:
    """A drafter's folder, and a target of four layers, 32 wide, with 64 ids."""
    target = tiny_transformer(tiny_spec(num_layers=4), dtype=torch.float32)
    return write_checkpoint(tmp_path, tiny_drafter(tiny_drafter_spec(target.spec), target)), target


def test_missing_taps_warn_with_the_layers_taken(pair: tuple[Path, Transformer]) -> None:
    folder, target = pair
    edit_config(folder, dflash_config={"mask_token_id": 63}, num_target_layers=...)
    with pytest.raises(CheckpointError, match=r"fc\.weight"), pytest.warns(UserWarning, match=r"layers \[2\]"):
        load_drafter(folder, target)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_hidden_layers": 3}, "num_target_layers is 4; the target has 3"),
        ({"hidden_size": 48}, "hidden_size is 32, the target's is 48"),
        ({"vocab_size": 63}, "mask_token_id is 63; the target's vocabulary has 63"),
    ],
)
def test_a_drafter_for_another_target_is_refused(
    changes: dict[str, int], named: str, pair: tuple[Path, Transformer]
) -> None:
    names = {"num_hidden_layers": "num_layers"}
    spec = tiny_spec(**{"num_layers": 4, **{names.get(key, key): value for key, value in changes.items()}})
    with pytest.raises(CheckpointError, match=named):
        load_drafter(pair[0], tiny_transformer(spec))


def test_tap_i_is_the_output_of_layer_i() -> None:
    """loading-01's toy: layer l adds 10^l to every element, and nothing else."""
    model = tiny_transformer(tiny_spec("llama", num_layers=4, mlp_bias=True))
    for parameter in model.parameters():
        parameter.zero_()
    model.norm.weight.fill_(1.0)
    for index, layer in enumerate(model.layers):
        layer.down.bias.fill_(10.0**index)
    features = run_flat(model, [[1, 2]], [tiny_cache(model)], (0, 1, 2, 3)).features
    assert features is not None
    assert features[0].unflatten(0, (4, 32))[:, 0].tolist() == pytest.approx([1, 11, 111, 1])  # the last after the norm
    reordered = run_flat(model, [[1, 2]], [tiny_cache(model)], (2, 0)).features
    assert reordered is not None
    assert reordered[0, ::32].tolist() == pytest.approx([111, 1])


# tokenizer-03: vocabularies


def test_padding_is_no_mismatch() -> None:
    assert shared_vocabulary(152064, 151936, 151669) == 151669
    assert shared_vocabulary(151936, 152064, 151936) == 151936


@pytest.mark.parametrize("sizes", [(152064, 32002), (32002, 152064), (151668, 151668)])
def test_a_table_smaller_than_the_tokenizer_is_refused_with_both_sizes(sizes: tuple[int, int]) -> None:
    with pytest.raises(VocabularyMismatch, match=f"{sizes[0]} and {sizes[1]}.*151669"):
        shared_vocabulary(*sizes, 151669)


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"a": 0, "c": 1, "b": 2}, "3 and 3 tokens.*id 1: 'b' and 'c'"),
        ({"a": 0, "b": 1}, "3 and 2 tokens.*id 2: 'c' and None"),
        ({"a": 0, "b": 1, "c": 2, "d": 3}, "3 and 4 tokens.*id 3: None and 'd'"),
        ({}, "3 and 0 tokens.*id 0: 'a' and None"),
    ],
)
def test_tokenizers_are_compared_token_by_token(others: dict[str, int], named: str) -> None:
    with pytest.raises(VocabularyMismatch, match=named):
        check_same_tokens({"a": 0, "b": 1, "c": 2}, others)


def test_equal_tokenizers_in_another_order_pass() -> None:
    check_same_tokens({"a": 0, "b": 1}, {"b": 1, "a": 0})


# names


def test_a_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert resolve("owner/name") == Path("owner/name")
    assert resolve(tmp_path) == tmp_path


@pytest.mark.parametrize(
    "name", ["", "nothing", "../x/y", "/no/such", "a/b/c", "a/..", "a" * 100 + "/b", "x\0y", "a" * 5000, "~nobody/x/y"]
)
def test_a_name_of_no_form_is_refused_with_the_three_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("went online"))
    with pytest.raises(CheckpointError, match=r"a folder, the name of a bundled model, or a hub id \(owner/name\)"):
        resolve(name)


def test_bundled_models_are_found_by_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "__file__", str(tmp_path / "models" / "load.py"))
    folder = tmp_path / "zoo" / "weights" / "tiny-target"
    folder.mkdir(parents=True)
    assert zoo_folder("tiny-target") is None
    (folder / "config.json").write_text("{}")
    (tmp_path / "zoo" / "config.json").write_text("{}")
    assert zoo_folder("tiny-target") == resolve("tiny-target") == folder
    assert zoo_folder("..") is None
    assert zoo_folder("../weights/tiny-target") is None


def test_a_hub_id_is_downloaded_without_code_or_pickle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def download(hub_id: str, **options: Any) -> str:
        asked.update(options, hub_id=hub_id)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve("Owner/Name-1.5") == tmp_path
    assert asked["hub_id"] == "Owner/Name-1.5"
    assert {pattern.rpartition(".")[2] for pattern in asked["allow_patterns"]} == {
        "json", "safetensors", "txt", "model", "jinja"
    }  # fmt: skip


@pytest.mark.parametrize(
    "failure",
    [
        lambda: huggingface_hub.errors.LocalEntryNotFoundError("offline"),
        lambda: huggingface_hub.errors.HFValidationError("bad id"),
        lambda: OSError("no route"),
        lambda: ValueError("anything"),
    ],
)
def test_a_failed_download_names_the_id_and_the_forms(
    failure: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: object, **__: object) -> None:
        raise failure()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(CheckpointError, match=r"'owner/name'.*a folder, the name of a bundled model"):
        resolve("owner/name")


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(PacelineError, match=r"config\.json cannot be read: No such file"):
            load_transformer(folder)


# other tools


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "spec",
    [
        tiny_spec("llama", eos_token_ids=(3,)),
        tiny_spec("mistral", windows=(5, 5)),
        tiny_spec("qwen2", windows=(None, 6)),
        tiny_spec("qwen3", tied_head=True),
    ],
    ids=FAMILIES,
)
def test_transformers_opens_what_is_saved(spec: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = tiny_transformer(spec, dtype=torch.float32)
    write_checkpoint(tmp_path, model)
    reference, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens = [(7 * i) % 64 for i in range(20)]
    with torch.no_grad():
        theirs = reference(torch.tensor([tokens])).logits[0]
    assert reference.dtype == torch.float32
    assert float((logits(model, tokens) - theirs).abs().max()) < 1e-4
