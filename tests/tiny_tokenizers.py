"""Tokenizers of a few hundred tokens, built in memory in milliseconds: byte-level, and Metaspace with byte fallback."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer

from paceline import text

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_CHAT = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA_NAMES = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "unk_token": "<unk>"}
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mdm_mask|>")
CORPUS = [
    "hello there, the bird sings",
    "Sure. Quick note: the answer is next",
    "Q: what?\n\nA: this",
    "👋ď漢 and é",
] * 3


def byte_level(tokens: Sequence[bytes] = (), specials: Sequence[str] = SPECIALS) -> Tokenizer:
    """Byte-level BPE with a few merges; `tokens` are more entries, as bytes (no merge makes them: for decoding)."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(CORPUS, BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    spec = json.loads(backend.to_str())
    vocabulary = spec["model"]["vocab"]
    for token in tokens:
        vocabulary.setdefault(spell(token), len(vocabulary))
    backend = Tokenizer.from_str(json.dumps(spec))
    backend.add_special_tokens(list(specials))
    return backend


def byte_fallback(prepend: str = "always") -> Tokenizer:
    """As Llama 2: blanks are ▁, characters outside the vocabulary are single bytes, <s> comes first."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:!?<>|_[]/é"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "a"), ("▁", "▁"), ("i", "n"), ("▁", "b")]
    pieces += [left + right for left, right in merges]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend, split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.add_special_tokens(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    return backend


def spell(raw: bytes) -> str:
    """Bytes in the characters of a byte-level vocabulary."""
    return "".join(_CHARS[byte] for byte in raw)


def of_pieces(pieces: Sequence[str | bytes], specials: Sequence[str] = SPECIALS) -> tuple[text.Tokenizer, list[int]]:
    """A byte-level tokenizer that has each piece as one token, and the ids of the pieces in order."""
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    backend = byte_level(raw, specials)
    ids = [backend.token_to_id(spell(piece)) for piece in raw]
    assert None not in ids
    return text.Tokenizer(backend, {}, CHATML), ids


def wrap(backend: Tokenizer, template: str | None = CHATML, **config: Any) -> text.Tokenizer:
    """As `load_tokenizer` would give it."""
    return text.Tokenizer(backend, config, template)


def save(folder: Path, backend: Tokenizer, config: Mapping[str, Any]) -> None:
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def _chars() -> dict[int, str]:
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    points = [*range(0x80), *range(0x80, 0x800, 0x20), *range(0x80, 0xC0), *range(0x800, 0xD800, 0x400)]
    points += [*range(0xE000, 0x10000, 0x400), *range(0x10000, 0x110000, 0x1000)]
    table: dict[int, str] = {}
    for char in map(chr, points):
        table.update(zip(char.encode(), level.pre_tokenize_str(char)[0][0], strict=True))
    unused = [char for char in pre_tokenizers.ByteLevel.alphabet() if char not in table.values()]
    missing = [byte for byte in range(256) if byte not in table]  # bytes that no UTF-8 text contains
    return table | dict(zip(missing, sorted(unused), strict=True))


_CHARS = _chars()

LEVEL = wrap(byte_level())
METASPACE = {
    prepend: wrap(byte_fallback(prepend), LLAMA_CHAT, **LLAMA_NAMES) for prepend in ("always", "first", "never")
}
ALL = [LEVEL, *METASPACE.values()]
