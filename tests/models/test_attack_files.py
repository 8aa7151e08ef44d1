"""Files built to mislead (CVE-2025-32434 and others; mlx#3364): each is refused before a weight is read."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tiny import tiny_spec, tiny_transformer, write_checkpoint

from paceline.errors import CheckpointError, UnsafeCheckpoint, UnsupportedModel
from paceline.models.load import load_transformer
from paceline.models.safetensors_file import check_file, read_tensors


def entry(begin: int, end: int, shape: list[Any] | None = None, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def write(folder: Path, header: object, data_bytes: int = 16, length: int | None = None) -> Path:
    """A safetensors file with this header, given as JSON text, bytes or an object to encode."""
    text = header if isinstance(header, bytes) else header.encode() if isinstance(header, str) else _encode(header)
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + bytes(data_bytes))
    return path


def _encode(header: object) -> bytes:
    return json.dumps(header).encode()


def test_a_sound_file_passes(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry(0, 8),
        "a": entry(8, 16, [2, 1]),
        "none": entry(16, 16, [0, 3]),
    }
    path = write(tmp_path, header)
    assert sorted(check_file(path)) == ["a", "b", "none"]
    assert read_tensors(tmp_path)["a"].shape == (2, 1)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ({"a": entry(0, 16, [3])}, "tensor a: data_offsets"),
        ({"a": entry(0, 16, [2**40, 2**40])}, "tensor a: data_offsets"),
        ({"a": entry(0, 8), "b": entry(4, 16)}, "tensor b overlaps"),
        ({"a": entry(0, 16), "b": entry(0, 16)}, "tensor b overlaps"),
        ({"a": entry(4, 16)}, "tensor a leaves a hole"),
        ({"a": entry(0, 4), "b": entry(8, 16)}, "tensor b leaves a hole"),
        ({"a": entry(0, 12)}, "4 bytes longer"),
        (json.dumps({"a": entry(0, 8), "b": entry(8, 16)}).replace('"b"', '"a"'), "'a' occurs twice"),
        ('{"a": {"dtype": "F32", "shape": [4], "shape": [2, 2], "data_offsets": [0, 16]}}', "'shape' occurs twice"),
    ],
)
def test_a_header_that_lies_is_unsafe(header: object, named: str, tmp_path: Path) -> None:
    write(tmp_path, header)
    with pytest.raises(UnsafeCheckpoint, match=named):
        read_tensors(tmp_path)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ({"a": entry(0, 1016)}, "model.safetensors is 1000 bytes shorter than its header says"),
        ({"a": entry(0, 16, [-4])}, "tensor a has shape"),
        ({"a": entry(0, 16, [4.0])}, "tensor a has shape"),
        ({"a": entry(0, 16, [True, 4])}, "tensor a has shape"),
        ({"a": entry(0, 16, [1] * 20 + [4])}, "tensor a has shape"),
        ({"a": {**entry(0, 16), "shape": "4"}}, "tensor a has shape"),
        ({"a": {**entry(0, 16), "data_offsets": [0]}}, "tensor a has data_offsets"),
        ({"a": {**entry(0, 16), "data_offsets": [-16, 0]}}, "tensor a has data_offsets"),
        ({"a": {**entry(0, 16), "data_offsets": [0, 16, 16]}}, "tensor a has data_offsets"),
        ({"a": {**entry(0, 16), "more": 1}}, "tensor a needs exactly"),
        ({"a": {"dtype": "F32"}}, "tensor a needs exactly"),
        ({"a": [0, 16]}, "tensor a needs exactly"),
        ([entry(0, 16)], "does not begin with a brace"),
        ("{", "broken JSON"),
        ("", "does not begin with a brace"),
        (b"\xff\xfe{}", "does not begin with a brace"),
        (b"{\xff}", "broken JSON"),
        ('{"a": ' * 100_000, "broken JSON"),
        ('{"a": %s}' % ("1" * 10_000), "broken JSON"),
        ({"__metadata__": {"format": 1}, "a": entry(0, 16)}, "cannot be read"),
        ("  " + json.dumps({"a": entry(0, 16)}), "does not begin with a brace"),
    ],
)
def test_a_broken_header_is_refused_with_the_file(header: object, named: str, tmp_path: Path) -> None:
    write(tmp_path, header)
    with pytest.raises(CheckpointError, match=named) as caught:
        read_tensors(tmp_path)
    assert "model.safetensors" in str(caught.value)


@pytest.mark.parametrize("dtype", ["I64", "U8", "F8_E4M3", "BOOL", "f32", "", None, ["F32"]])
def test_other_dtypes_are_refused_by_name(dtype: Any, tmp_path: Path) -> None:
    write(tmp_path, {"a": entry(0, 16, [4], dtype)})
    with pytest.raises(UnsupportedModel, match=r"tensor a has dtype .*F64, F32, F16, BF16"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 1 << 40, 1000])
def test_a_giant_header_is_not_read(length: int, tmp_path: Path) -> None:
    write(tmp_path, "{}", length=length)
    with pytest.raises(CheckpointError, match="less than its header alone"):
        read_tensors(tmp_path)


def test_a_giant_header_in_a_giant_file_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, "{}", length=100_000_001)
    with path.open("r+b") as file:
        file.truncate(100_000_100)  # sparse
    with pytest.raises(UnsafeCheckpoint, match="header of 100000001 bytes"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 7, 8])
def test_a_file_without_a_header_is_refused(size: int, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x01" * size)
    with pytest.raises(CheckpointError, match="less than its header alone"):
        read_tensors(tmp_path)


def test_many_duplicate_keys_are_found_quickly(tmp_path: Path) -> None:
    write(tmp_path, "{" + ",".join(f'"{i}": 0' for i in range(100_000)) + ', "99999": 0}')
    with pytest.raises(UnsafeCheckpoint, match="'99999' occurs twice"):
        read_tensors(tmp_path)


def test_no_flipped_byte_is_read_otherwise_than_by_the_library(tmp_path: Path) -> None:
    """Each of 400 damaged headers is refused by us, or else read by safetensors without an error of its own."""
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(3)}, tmp_path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    sound, dice = path.read_bytes(), random.Random(0)
    for _ in range(400):
        damaged = bytearray(sound)
        damaged[dice.randrange(len(sound) - 36)] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            names = check_file(path)
        except CheckpointError:
            continue
        try:
            assert sorted(load_file(path)) == sorted(names)
        except SafetensorError:
            with pytest.raises(CheckpointError):
                read_tensors(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "last.ckpt", "weights.pkl"])
def test_pickle_is_refused_and_never_opened(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, tiny_transformer(tiny_spec()))
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(UnsafeCheckpoint, match=f"{name}.*[Cc]onvert them to safetensors"):
        load_transformer(folder)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"):
        read_tensors(tmp_path)
    with pytest.raises(CheckpointError, match="neither"):
        read_tensors(tmp_path / "missing")


@pytest.mark.parametrize(
    "name",
    ["../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\x.safetensors", "x.bin", "..", "", 3, None,
     "C:x.safetensors", "x\0.safetensors", ".safetensors/../x.safetensors"],
)  # fmt: skip
def test_an_index_that_points_elsewhere_is_unsafe(name: object, tmp_path: Path) -> None:
    write(tmp_path, {"a": entry(0, 16)})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UnsafeCheckpoint, match="names"):
        read_tensors(tmp_path)


@pytest.mark.parametrize(
    ("index", "named"),
    [
        ({}, "no weight_map"),
        ({"weight_map": {}}, "no weight_map"),
        ({"weight_map": ["model.safetensors"]}, "no weight_map"),
        ({"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}, "does not hold b"),
        ("{", "broken JSON"),
        ('{"weight_map": {"a": "model.safetensors", "a": "other.safetensors"}}', "'a' occurs twice"),
    ],
)
def test_a_broken_index_is_refused(index: object, named: str, tmp_path: Path) -> None:
    write(tmp_path, {"a": entry(0, 16)})
    text = index if isinstance(index, str) else json.dumps(index)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match=named):
        read_tensors(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    for name in ("x.safetensors", "y.safetensors"):
        save_file({"a": torch.zeros(2), name[0]: torch.zeros(1)}, tmp_path / name)
    index = {"weight_map": {"a": "x.safetensors", "x": "x.safetensors", "y": "y.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UnsafeCheckpoint, match=r"tensor a is in both x\.safetensors and y\.safetensors"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, "\x00"])
def test_a_broken_config_is_refused_with_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_transformer(tmp_path)
