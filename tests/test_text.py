"""Text in and out. Cases named tokenizer-NN are reports of faults in other engines."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import ALL, CHATML, LEVEL, METASPACE, byte_fallback, byte_level, of_pieces, save, spell, wrap
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from paceline.errors import BadRequest, CheckpointError, UnsafeCheckpoint
from paceline.text import Detokenizer, Tokenizer, load_tokenizer

FALLBACK = METASPACE["always"]


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def stream(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*map(detokenizer.push, ids), detokenizer.finish()]


# tokenizer-01: incremental text


REPORTED = [bytes.fromhex(raw) for raw in ("6f6b20", "f09f", "91", "8b", "c4", "8f", "e6bca2")]


def test_tokenizer_01_characters_over_several_tokens() -> None:
    tokenizer, ids = of_pieces(REPORTED)
    assert stream(tokenizer, ids) == ["ok ", "", "", "👋", "", "ď", "漢", ""]
    assert tokenizer.decode(ids) == "ok 👋ď漢"


def test_tokenizer_01_the_end_inside_a_character_is_rendered_alike() -> None:
    tokenizer, ids = of_pieces(REPORTED)
    assert stream(tokenizer, ids[:2]) == ["ok ", "", "\ufffd"]
    assert tokenizer.decode(ids[:2]) == tokenizer._backend.decode(ids[:2]) == "ok \ufffd"


def test_tokenizer_01_the_end_inside_a_character_of_byte_tokens() -> None:
    ids = FALLBACK.encode("a 👋")[:-1]
    assert (
        "".join(stream(FALLBACK, ids))
        == FALLBACK.decode(ids)
        == FALLBACK._backend.decode(ids)
        == "a \ufffd\ufffd\ufffd"
    )


@pytest.mark.parametrize("content", ["👍🏽 ok", "👩‍👩‍👧", unicodedata.normalize("NFD", "é ố"), "🇩🇪", "漢字かな"])
@pytest.mark.parametrize("tokenizer", ALL)
def test_tokenizer_01_composed_characters_are_sent_once(tokenizer: Tokenizer, content: str) -> None:
    ids = tokenizer.encode(content)
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == tokenizer._backend.decode(ids)
    assert "".join(pieces).lstrip() == content
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("tokenizer", ALL)
@settings(max_examples=60, deadline=None)
@given(content=st.text(max_size=30))
def test_valid_text_is_what_the_checkpoint_decodes(tokenizer: Tokenizer, content: str) -> None:
    ids = tokenizer.encode(content)
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == tokenizer._backend.decode(ids)


@settings(max_examples=200, deadline=None)
@given(
    raw=st.lists(
        st.binary(min_size=1, max_size=1) | st.sampled_from([*"aé漢👋".encode(), 0xED, 0xF4]).map(lambda b: bytes([b]))
    )
)
def test_any_bytes_of_a_byte_level_tokenizer_are_decoded_as_by_the_library(raw: list[bytes]) -> None:
    ids = [LEVEL.token_id(spell(byte)) for byte in raw]
    assert "".join(stream(LEVEL, ids)) == LEVEL._backend.decode(ids)


@pytest.mark.parametrize("tokenizer", ALL)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_ids_text_only_grows_and_joins_to_decode(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.size + 3), max_size=30))
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    for end in range(len(ids)):
        assert tokenizer.decode(ids).startswith("".join(pieces[:end]))


def test_valid_characters_beside_broken_bytes_are_kept() -> None:
    ids = [FALLBACK.token_id(f"<0x{byte:02X}>") for byte in "é".encode() + b"\xff"]
    assert FALLBACK.decode(ids) == "é\ufffd"


def test_broken_bytes_come_before_the_ordinary_token_after_them() -> None:
    ids = [FALLBACK.token_id(piece) for piece in ("▁the", "<0xF0>", "▁a")]
    assert stream(FALLBACK, ids) == ["the", "", "\ufffd a", ""]
    assert FALLBACK._backend.decode(ids) == "the\ufffd a"


def test_a_line_break_as_a_byte_token_is_not_held_back() -> None:
    detokenizer = Detokenizer(FALLBACK)
    assert detokenizer.push(FALLBACK.token_id("<0x0A>")) == "\n"


def test_blanks_at_the_start_are_those_of_the_library() -> None:
    for spelling in (["▁", "▁the"], ["▁▁", "a"], ["</s>", "▁the", "</s>", "▁a"], ["▁", "▁", "▁"]):
        ids = [FALLBACK.token_id(piece) for piece in spelling]
        assert "".join(stream(FALLBACK, ids)) == FALLBACK._backend.decode(ids)


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.BPEDecoder(suffix="e"), decoders.Metaspace()])
def test_other_decoders_stream_what_they_decode(decoder: Any) -> None:
    backend = Backend(models.WordLevel({"one": 0, "##two": 1, "▁three": 2, ".": 3, "[UNK]": 4}, unk_token="[UNK]"))
    if decoder is not None:
        backend.decoder = decoder
    for ids in ([0, 1, 2, 3], [2, 0, 3, 1], [3, 3, 2, 2]):
        assert "".join(stream(wrap(backend), ids)) == wrap(backend).decode(ids)
        if not isinstance(decoder, decoders.BPEDecoder):  # it looks ahead to the last token
            assert wrap(backend).decode(ids) == backend.decode(ids)


def test_special_and_unknown_ids_have_no_text() -> None:
    assert LEVEL.decode([LEVEL.token_id("<|im_end|>"), LEVEL.size, 10**9]) == ""


def test_without_a_tokenizer_there_is_no_text() -> None:
    assert stream(None, [1, 2]) == ["", "", ""]


def test_streaming_takes_linear_time_on_broken_bytes() -> None:
    ids = [LEVEL.token_id(spell(b"\xf0"))] * 20_000
    start = time.perf_counter()
    assert "".join(stream(LEVEL, ids)) == "\ufffd" * 20_000
    assert time.perf_counter() - start < 2  # quadratic: minutes


# prompts


def test_special_text_in_a_raw_prompt_is_a_special_token() -> None:
    assert LEVEL.encode("a<|im_end|>")[-1] == LEVEL.token_id("<|im_end|>")


@pytest.mark.parametrize("prompt", ["\ud800", "a\udfff", 5, None, b"a"])
def test_prompts_that_are_no_text_are_refused(prompt: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        LEVEL.encode(prompt)
    assert caught.value.param == "prompt"


# names and sizes


def test_sizes_and_names() -> None:
    tokenizer = wrap(byte_level(), eos_token={"content": "<|im_end|>"})
    assert tokenizer.size == 304
    assert tokenizer.eos_ids == {tokenizer.token_id("<|im_end|>")}
    assert tokenizer.token_id("no such token") is None
    assert wrap(byte_level()).eos_ids == wrap(byte_level(), eos_token="gone").eos_ids == frozenset()


def test_the_start_token_comes_from_the_post_processor_once() -> None:
    assert FALLBACK.encode("the").count(1) == 1
    assert FALLBACK.encode_chat(user("the")).count(1) == 1


# folders


def test_a_saved_tokenizer_loads(tmp_path: Path) -> None:
    save(tmp_path, byte_level(), {"chat_template": CHATML, "eos_token": "<|im_end|>"})
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None
    assert tokenizer.encode_chat(user("hi")) == LEVEL.encode_chat(user("hi"))


def test_a_folder_without_tokenizer_has_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert load_tokenizer(tmp_path) is None


def test_nothing_is_cut_or_padded(tmp_path: Path) -> None:
    backend = byte_level()
    backend.enable_truncation(max_length=4)
    backend.enable_padding(length=64)
    save(tmp_path, backend, {})
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode("hello there, the bird")) == "hello there, the bird"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"), ("tokenizer.json", "[]"), ("tokenizer.json", "\x00"),
        ("tokenizer.json", '{"version":"1.0","added_tokens":[],"model":{"type":"Nope"}}'),
        ("tokenizer_config.json", "{"), ("tokenizer_config.json", "[1]"), ("tokenizer_config.json", "[" * 100_000),
        ("tokenizer_config.json", '{"chat_template": 5}'),
        ("tokenizer_config.json", '{"chat_template": [{"name": 1}]}'),
        ("tokenizer_config.json", '{"chat_template": ["a"]}'),
    ],
)  # fmt: skip
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    save(tmp_path, byte_level(), {})
    (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=name):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_file_that_is_not_utf8_is_named(tmp_path: Path, name: str) -> None:
    save(tmp_path, byte_level(), {})
    (tmp_path / name).write_bytes(b'{"\xff": 1}')
    with pytest.raises(CheckpointError, match=name):
        load_tokenizer(tmp_path)


def test_a_config_without_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "a"}')
    with pytest.raises(CheckpointError, match="no vocabulary"):
        load_tokenizer(tmp_path)


def test_remote_code_is_refused(tmp_path: Path) -> None:
    save(tmp_path, byte_level(), {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}})
    with pytest.raises(UnsafeCheckpoint, match="auto_map"):
        load_tokenizer(tmp_path)


def test_an_older_format_without_transformers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CheckpointError, match="pip install transformers"):
        load_tokenizer(tmp_path)


def test_an_older_format_is_read_without_remote_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"")
    asked: dict[str, Any] = {}

    def from_pretrained(folder: str, **options: Any) -> SimpleNamespace:
        asked.update(options)
        return SimpleNamespace(backend_tokenizer=byte_level())

    fake = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=from_pretrained))
    monkeypatch.setitem(sys.modules, "transformers", fake)
    assert load_tokenizer(tmp_path) is not None
    assert asked == {"trust_remote_code": False, "local_files_only": True}


def test_an_older_format_that_is_broken_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    fake = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=lambda *_, **__: SimpleNamespace()))
    monkeypatch.setitem(sys.modules, "transformers", fake)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_an_older_format_with_transformers(tmp_path: Path) -> None:
    model = json.loads(byte_level().to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode("hello there é")) == "hello there é"


def test_import_brings_neither_torch_nor_transformers() -> None:
    code = "import sys, paceline.text, paceline.engine.stop; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_part_of_a_text_gets_no_start_token() -> None:
    tokenizer = wrap(byte_fallback())
    assert tokenizer.encode("ab")[0] == tokenizer.token_id("<s>")
    assert tokenizer.encode("ab", whole=False) == tokenizer.encode("ab")[1:]
