"""JSON objects in files of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import CheckpointError, UnsafeCheckpoint
from paceline.models.json_file import parse_json, read_json


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": {"b": [1, null]}, "b": "\u00e9"}')
    assert read_json(tmp_path / "a.json") == {"a": {"b": [1, None]}, "b": "é"}


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b"{", b"\xff", b"[" * 100_000])
def test_anything_else_is_refused_with_the_file(text: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"a\.json"):
        parse_json(text, Path("a.json"))


@pytest.mark.parametrize("text", [b'{"a": 1, "a": 1}', b'{"b": [{"a": 1, "a": 2}]}'])
def test_a_key_that_is_there_twice_is_refused(text: bytes) -> None:
    with pytest.raises(UnsafeCheckpoint, match=r"a\.json: the key 'a' occurs twice"):
        parse_json(text, Path("a.json"))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_json(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_json(tmp_path / "none.json")
