"""Text to token ids and back: tokenizer, and UTF-8-safe incremental detokenizer.

Knows nothing of models, and of chats only that `chat.py` encodes them. One promise holds everywhere: the text of some
tokens is a prefix of the text of more tokens, so that what was streamed stays true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer as Backend

from paceline.chat import Chat, checked_text, read_template
from paceline.errors import BadRequest, CheckpointError, UnsafeCheckpoint

__all__ = ["Detokenizer", "Tokenizer", "load_tokenizer"]

_SLOW_FILES = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_of() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for (GPT-2's table)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_of()


def load_tokenizer(folder: Path | str) -> Tokenizer | None:
    """The tokenizer of a model folder; None where the folder has no tokenizer files.

    Raises:
        CheckpointError: a file that cannot be read; names it.
        UnsafeCheckpoint: the tokenizer asks for code of its own (`auto_map`).
    """
    folder = Path(folder)
    config = _read_config(folder / "tokenizer_config.json")
    if (folder / "tokenizer.json").is_file():
        backend = _read_fast(folder / "tokenizer.json")
    elif any((folder / name).is_file() for name in _SLOW_FILES):
        backend = _read_slow(folder)
    elif config:
        raise CheckpointError(f"{folder} has a tokenizer_config.json but no vocabulary.", remedy="Add tokenizer.json.")
    else:
        return None
    return Tokenizer(backend, config, read_template(folder, config))


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.", remedy="Download the file again.") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} is not a JSON object.", remedy="Download the file again.")
    if config.get("auto_map"):
        remedy = "Paceline runs no code from checkpoints; save the tokenizer as tokenizer.json and remove auto_map."
        raise UnsafeCheckpoint(f"{path} asks for code of its own: auto_map is {config['auto_map']!r}.", remedy=remedy)
    return config


def _read_fast(path: Path) -> Backend:
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{path} cannot be read: {error}.", remedy="Download the file again.") from error


def _read_slow(folder: Path) -> Backend:
    remedy = "Save it as tokenizer.json: transformers' AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        message = f"{folder} has no tokenizer.json, and reading an older format needs the package transformers."
        raise CheckpointError(message, remedy=f"pip install transformers. {remedy}") from error
    try:
        loaded = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        return cast(Backend, loaded.backend_tokenizer)
    except Exception as error:
        raise CheckpointError(f"The tokenizer in {folder} cannot be read: {error}.", remedy=remedy) from error


def _special_texts(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token`, `eos_token` and their like, as the template sees them."""
    named = {key: value for key, value in config.items() if key.endswith("_token")}
    texts = {key: value.get("content") if isinstance(value, dict) else value for key, value in named.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


class Tokenizer:
    """A tokenizer with its chat template; made by `load_tokenizer`. Safe to share between threads.

    Args:
        backend: from the library `tokenizers`; truncation and padding are switched off, nothing is cut silently.
        config: the content of tokenizer_config.json.
        template: Jinja source of the chat template, None without one.
    """

    def __init__(self, backend: Backend, config: Mapping[str, Any], template: str | None) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._named = _special_texts(config)
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(id_ for id_, token in added.items() if token.special)
        self._chat = None if template is None else Chat(backend, template, self._named)
        decoder = cast(bytes, backend.decoder.__getstate__()) if backend.decoder else b""
        self._byte_level = b'"type":"ByteLevel"' in decoder
        self._byte_tokens = b'"type":"ByteFallback"' in decoder
        self._spelled: dict[int, bytes | None] = {}

    @cached_property
    def size(self) -> int:
        """Highest token id + 1, added tokens included; ids at or above it have no text."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """The id of the configured `eos_token`, if any; a model's generation config may name more."""
        found = self.token_id(self._named["eos_token"]) if "eos_token" in self._named else None
        return frozenset() if found is None else frozenset({found})

    @property
    def vocabulary(self) -> dict[str, int]:
        """Every token and its id, added ones included."""
        return dict(self._backend.get_vocab(with_added_tokens=True))

    @property
    def has_chat_template(self) -> bool:
        """True where `encode_chat` can work."""
        return self._chat is not None

    def token_id(self, text: str) -> int | None:
        """The id of one token by its exact spelling in the vocabulary, None where there is none."""
        return self._backend.token_to_id(text)

    def encode(self, text: str, *, whole: bool = True) -> list[int]:
        """Token ids of a raw prompt, with the start token where the tokenizer adds one; none for a part of a text.

        As in the rest of the field, text that spells a special token becomes that token; chats do not do this.

        Raises:
            BadRequest: not valid Unicode text.
        """
        return self._backend.encode(checked_text(text, "The prompt", "prompt"), add_special_tokens=whole).ids

    def encode_chat(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a chat. Control ids come from the template only, whatever the contents spell.

        Raises:
            BadRequest: no template, messages that are not role and content texts, or a template that refuses them.
        """
        if self._chat is None:
            remedy = "Send a text prompt, or add chat_template.jinja to the model folder."
            raise BadRequest("This model has no chat template.", remedy=remedy, param="messages")
        return self._chat.encode(messages, add_generation_prompt)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids without special tokens, equal to what a `Detokenizer` gives piece by piece.

        Bytes that are no character become U+FFFD. Where a vocabulary spells rare characters as single bytes, valid
        characters next to broken bytes are kept (the library `tokenizers` replaces the whole run of bytes).
        """
        detokenizer = Detokenizer(self)
        return "".join([detokenizer.push(id_) for id_ in ids]) + detokenizer.finish()

    def raw_bytes(self, token_id: int) -> bytes | None:
        """The bytes a token stands for; b"" for special and unknown ids, None where only the decoder knows its text."""
        if token_id not in self._spelled:  # spelling takes longer than all else that is done with a token
            self._spelled[token_id] = self._spell(token_id)
        return self._spelled[token_id]

    def _spell(self, token_id: int) -> bytes | None:
        token = self._backend.id_to_token(token_id)
        if not token or token_id in self._special_ids:
            return b""
        if self._byte_level:
            try:
                return bytes([_BYTE_OF[char] for char in token])
            except KeyError:  # an added token, spelled in plain characters
                return token.encode()
        found = _BYTE_TOKEN.fullmatch(token) if self._byte_tokens else None
        return bytes([int(found[1], 16)]) if found else None

    def text_after(self, token_id: int, previous: int | None) -> str:
        """What a token adds to the text, given the ordinary token before it (None at the start)."""
        if previous is None:
            return self._backend.decode([token_id])
        return self._backend.decode([previous, token_id])[len(self._backend.decode([previous])) :]

    @property
    def replaces_each_byte(self) -> bool:
        """True where every broken byte becomes a U+FFFD of its own, as the checkpoint's decoder does."""
        return not self._byte_level


class Detokenizer:
    """Text of one answer, token by token, in linear time. Never gives half a character, never takes text back.

    The joined pieces, `finish()` included, equal `Tokenizer.decode` of all ids. A character that is unfinished when
    the answer ends is rendered as U+FFFD, streamed or not. Without a tokenizer all text is "".
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._previous: int | None = None
        self._bytes = b""

    def push(self, token_id: int) -> str:
        """The text that is complete now and was not before."""
        if self._tokenizer is None:
            return ""
        raw = self._tokenizer.raw_bytes(token_id)
        if raw == b"":
            return ""
        previous, self._previous = self._previous, token_id
        if raw is None:
            return self.finish() + self._tokenizer.text_after(token_id, previous)
        self._bytes += raw
        return self._take(final=False)

    def finish(self) -> str:
        """The bytes still held back, as U+FFFD; "" when the last character is complete."""
        return self._take(final=True)

    def _take(self, *, final: bool) -> str:
        each_byte = self._tokenizer is not None and self._tokenizer.replaces_each_byte
        text, data, self._bytes = "", self._bytes, b""
        while data:
            try:
                return text + data.decode()
            except UnicodeDecodeError as error:
                text += data[: error.start].decode()
                if error.end == len(data) and error.reason == "unexpected end of data" and not final:
                    self._bytes = data[error.start :]
                    return text
                text += "\ufffd" * (error.end - error.start if each_byte else 1)
                data = data[error.end :]
        return text
