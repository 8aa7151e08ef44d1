"""Weights of a folder, read from safetensors files and nothing else.

A file's header is checked here in full before the safetensors library maps the file: a shortened file would read as
zeros or crash the process, and a crooked header could show one reader other tensors than the next. Format:
8 bytes little-endian header length, header (JSON), data. Knows nothing of models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from paceline.errors import CheckpointError, UnsafeCheckpoint, UnsupportedModel
from paceline.models.json_file import parse_json, read_json

__all__ = ["INDEX", "WEIGHTS", "check_file", "read_json", "read_tensors"]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_MAX_HEADER_BYTES = 100_000_000
_MAX_DIMENSIONS = 8
_AGAIN = "Download it again."
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of the checkpoint in `folder`, on the CPU, as views of the mapped files.

    Where there is an index, exactly the files it names are read. Every file is checked before any weight is read.

    Raises:
        UnsafeCheckpoint: only pickle files, or a file or index built to mislead.
        CheckpointError: a file is missing, truncated or broken; names it.
    """
    index = _index(folder)
    names = sorted(set(index.values())) if index else [_single_file(folder)]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder}: the index names files that are not there: {', '.join(missing)}.",
            remedy="Finish the download.",
        )
    holder: dict[str, str] = {}
    for name in names:
        for tensor in check_file(folder / name):
            if tensor in holder:
                raise UnsafeCheckpoint(f"{folder}: tensor {tensor} is in both {holder[tensor]} and {name}.")
            holder[tensor] = name
    for tensor, name in (index or {}).items():
        if holder.get(tensor) != name:
            raise CheckpointError(f"{folder / name} does not hold {tensor}, which the index says it does.")
    return {tensor: value for name in names for tensor, value in _read(folder / name).items()}


def check_file(path: Path) -> list[str]:
    """Names of the tensors in a file whose header is sound and whose data is complete.

    Raises:
        UnsafeCheckpoint, UnsupportedModel, CheckpointError: as the module says; names the file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise CheckpointError(f"{path} has {size} bytes, less than its header alone.", remedy=_AGAIN)
            if length > _MAX_HEADER_BYTES:
                raise UnsafeCheckpoint(f"{path} has a header of {length} bytes; {_MAX_HEADER_BYTES} are allowed.")
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    if not text.startswith(b"{"):
        raise CheckpointError(f"{path}: the header does not begin with a brace.", remedy=_AGAIN)
    header = parse_json(text, path)
    header.pop("__metadata__", None)
    spans = sorted(_span(name, entry, path) for name, entry in header.items())
    _check_spans(spans, size - 8 - length, path)
    return list(header)


def _span(name: str, entry: object, path: Path) -> tuple[int, int, str]:
    """Begin and end of a tensor's bytes, and its name."""
    where = f"{path}: tensor {name}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where} needs exactly dtype, shape and data_offsets.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise UnsupportedModel(f"{where} has dtype {dtype!r}.", remedy=f"Paceline reads {', '.join(_ITEM_BYTES)}.")
    if not _sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise CheckpointError(f"{where} has shape {shape!r}.")
    if not _sizes(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{where} has data_offsets {offsets!r}.")
    begin, end = offsets
    if end - begin != math.prod(shape) * _ITEM_BYTES[dtype]:
        raise UnsafeCheckpoint(f"{where}: data_offsets {offsets} do not hold shape {shape} in {dtype}.")
    return begin, end, name


def _sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_spans(spans: Sequence[tuple[int, int, str]], data_bytes: int, path: Path) -> None:
    """The tensors lie one behind the other and fill the file."""
    end = 0
    for begin, stop, name in spans:
        if begin != end:
            what = "overlaps the tensor before it" if begin < end else "leaves a hole before it"
            raise UnsafeCheckpoint(f"{path}: tensor {name} {what}: byte {begin} instead of {end}.")
        end = stop
    if data_bytes < end:
        raise CheckpointError(f"{path} is {end - data_bytes} bytes shorter than its header says.", remedy=_AGAIN)
    if data_bytes > end:
        raise UnsafeCheckpoint(f"{path} is {data_bytes - end} bytes longer than its header says.")


def _index(folder: Path) -> Mapping[str, str] | None:
    """The index: file name of every tensor; None without one."""
    path = folder / INDEX
    if not path.is_file():
        return None
    files = read_json(path).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise CheckpointError(f"{path} has no weight_map.")
    for name in files.values():
        if not isinstance(name, str) or not name.endswith(".safetensors") or set(name) & set("/\\:\0"):
            raise UnsafeCheckpoint(f"{path} names {name!r}.", remedy="It may name safetensors files beside it only.")
    return files


def _single_file(folder: Path) -> str:
    """`model.safetensors`, or an error that says what lies there instead."""
    if (folder / WEIGHTS).is_file():
        return WEIGHTS
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES) if folder.is_dir() else []
    if pickles:
        raise UnsafeCheckpoint(
            f"{folder} holds pickled weights only ({pickles[0]}); reading pickle runs code from the file.",
            remedy="Convert them to safetensors in a place you trust: save_pretrained(folder) of transformers does it.",
        )
    raise CheckpointError(f"{folder} has neither {WEIGHTS} nor {INDEX}.", remedy="Paceline reads safetensors only.")


def _read(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
