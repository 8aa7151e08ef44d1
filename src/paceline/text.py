"""Text to token ids and back: tokenizer, sandboxed chat template, UTF-8-safe incremental detokenizer.

Knows nothing of models. Two promises hold everywhere:
- the text of some tokens is a prefix of the text of more tokens, so that what was streamed stays true;
- control ids of a chat come from its template alone: text of a message that spells one is encoded as characters.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from paceline.errors import BadRequest, CheckpointError, UnsafeCheckpoint

__all__ = ["Detokenizer", "Tokenizer", "load_tokenizer"]

_SLOW_FILES = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
_ROLE = re.compile(r"[a-zA-Z0-9_-]+")
_MESSAGE_REMEDY = 'Send [{"role": "user", "content": "..."}, ...], with these two keys.'
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
    return Tokenizer(backend, config, _read_template(folder, config))


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


def _read_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / 'chat_template.jinja'} cannot be read: {error}.") from error
    found = config.get("chat_template")
    try:
        named = {entry["name"]: entry["template"] for entry in found} if isinstance(found, list) else {"default": found}
        template = named.get("default")
        if template is None or isinstance(template, str):
            return template
    except (TypeError, KeyError):
        pass
    raise CheckpointError(
        f"chat_template in {folder / 'tokenizer_config.json'} is neither a text nor a list of named texts."
    )


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
        self._chat = None if template is None else _Chat(backend, template, self._named)
        decoder = cast(bytes, backend.decoder.__getstate__()) if backend.decoder else b""
        self._byte_level = b'"type":"ByteLevel"' in decoder
        self._byte_tokens = b'"type":"ByteFallback"' in decoder

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
    def has_chat_template(self) -> bool:
        """True where `encode_chat` can work."""
        return self._chat is not None

    def token_id(self, text: str) -> int | None:
        """The id of one token by its exact spelling in the vocabulary, None where there is none."""
        return self._backend.token_to_id(text)

    def encode(self, text: str) -> list[int]:
        """Token ids of a raw prompt, with the start token where the tokenizer adds one.

        As in the rest of the field, text that spells a special token becomes that token; chats do not do this.

        Raises:
            BadRequest: not valid Unicode text.
        """
        return self._backend.encode(_checked_text(text, "The prompt", "prompt")).ids

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


def _checked_text(text: str, what: str, param: str) -> str:
    if not isinstance(text, str):
        raise BadRequest(f"{what} is {text!r:.200}.", remedy="It must be a text.", param=param)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        remedy = f"Character {error.start} is half of a surrogate pair; send whole characters."
        raise BadRequest(f"{what} is not valid Unicode.", remedy=remedy, param=param) from error
    return text


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


class _Chat:
    """A chat template in its sandbox; `named` are the special tokens it may write."""

    def __init__(self, backend: Backend, template: str, named: Mapping[str, str]) -> None:
        self._template = template
        self._named = named
        self._guard = _Guard(backend)

    def encode(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> list[int]:
        marks = self._guard.marks()
        marked = [{"role": role, "content": marks.hide(content)} for role, content in _checked(messages)]
        try:
            text = self._compiled.render(
                **self._named, messages=marked, add_generation_prompt=add_generation_prompt, tools=None, documents=None
            )
        except Exception as error:  # a template may fail in any way
            message = f"The chat template refused the messages: {marks.clean(str(error))}."
            raise BadRequest(message, param="messages") from error
        return self._guard.encode(text, marks)

    @cached_property
    def _compiled(self) -> jinja2.Template:
        return _environment().from_string(self._template)


class _Guard:
    """Encodes rendered chats so that only control text of the template's own becomes control ids.

    Control text is the spelling of a special token, or of another added token with a bracket or a bar.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self._controls = {id_: token for id_, token in added.items() if token.special or _is_markup(token.content)}
        unknown = getattr(backend.model, "unk_token", None)
        self._forbidden = frozenset(id_ for id_, token in self._controls.items() if token.content != unknown)
        self._texts = sorted((token.content for token in self._controls.values()), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._texts)) or r"(?!)")  # leftmost, then longest

    def marks(self) -> _Marks:
        """New marks for one chat."""
        return _Marks(self._texts, self._pattern)

    def encode(self, text: str, marks: _Marks) -> list[int]:
        """Ids of a rendered chat: the plain way, unless control text stands (or appears) in a message."""
        if not marks.hidden:
            ids = self._backend.encode(text, add_special_tokens=False).ids
            if sum(id_ in self._forbidden for id_ in ids) == sum(1 for _ in self._pattern.finditer(text)):
                return ids
        return self.encode_guarded(text, marks)

    def encode_guarded(self, text: str, marks: _Marks) -> list[int]:
        """The same ids by a twin that knows control tokens by secret aliases only, so that users cannot spell them."""
        twin, aliases, controls = self._twin
        revealed = marks.reveal(text, aliases)
        ids = twin.encode(revealed, add_special_tokens=False).ids
        expected = sum(revealed.count(alias) for alias in aliases.values())
        if sum(id_ in controls for id_ in ids) != expected or not self._forbidden.isdisjoint(ids):
            message = "The messages contain control text that this tokenizer cannot encode as ordinary text."
            raise BadRequest(message, remedy="Leave it out.", param="messages")
        return [controls.get(id_, id_) for id_ in ids]

    @cached_property
    def _twin(self) -> tuple[Backend, dict[str, str], dict[int, int]]:
        """The twin, control text -> alias, id of the alias in the twin -> control id."""
        twin = Backend.from_str(self._backend.to_str())
        twin.add_special_tokens([_copy(token, token.content, special=True) for token in self._controls.values()])
        twin.encode_special_tokens = True  # that is: spell them out, do not recognise them
        nonce = secrets.token_hex(8)
        aliases = {token.content: f"{nonce}z{id_}z" for id_, token in self._controls.items()}
        twin.add_tokens([_copy(token, aliases[token.content], special=False) for token in self._controls.values()])
        ids = {twin.token_to_id(aliases[token.content]): id_ for id_, token in self._controls.items()}
        return twin, aliases, cast(dict[int, int], ids)


class _Marks:
    """Private marks, new for each chat, around the control text that its messages contain.

    The text itself stays visible between the marks: templates look for some of it, such as `</think>`.
    """

    def __init__(self, controls: Sequence[str], pattern: re.Pattern[str]) -> None:
        nonce = secrets.randbits(64)
        self._open, self._close = f"\ue000{nonce}\ue001", f"\ue002{nonce}\ue003"
        self._controls = controls
        self._pattern = pattern
        self.hidden: set[str] = set()

    def hide(self, content: str) -> str:
        """The content with marks around control text, and around an end that the next text might complete to one."""
        content = self._pattern.sub(lambda found: self._wrap(found[0]), content)
        longest = len(self._controls[0]) if self._controls else 0
        for start in range(max(len(content) - longest + 1, 0), len(content)):
            if any(control.startswith(content[start:]) for control in self._controls):
                return content[:start] + self._wrap(content[start:])
        return content

    def reveal(self, text: str, aliases: Mapping[str, str]) -> str:
        """Rendered text without marks; the template's own control text becomes its alias."""
        hidden = "|".join(map(re.escape, sorted(self.hidden, key=len, reverse=True))) or r"(?!)"
        single = f"{self._open}|{self._close}"  # of a pair that the template has parted
        pattern = re.compile(f"{self._open}({hidden}){self._close}|{single}|({self._pattern.pattern})")
        return pattern.sub(lambda found: aliases[found[2]] if found[2] else found[1] or "", text)

    def clean(self, text: str) -> str:
        """The text without marks, for error messages."""
        return text.replace(self._open, "").replace(self._close, "")

    def _wrap(self, text: str) -> str:
        self.hidden.add(text)
        return f"{self._open}{text}{self._close}"


def _is_markup(text: str) -> bool:
    return not set("<>[]{}|｜").isdisjoint(text)


def _copy(token: AddedToken, content: str, *, special: bool) -> AddedToken:
    return AddedToken(
        content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=special,
    )


def _checked(messages: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Role and content of each message, or BadRequest with the place of the first fault."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise BadRequest("messages is not a non-empty list.", remedy=_MESSAGE_REMEDY, param="messages")
    checked = []
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise BadRequest(f"messages[{place}] is {message!r:.200}.", remedy=_MESSAGE_REMEDY, param="messages")
        role, content = message["role"], message["content"]
        if not isinstance(role, str) or not _ROLE.fullmatch(role):
            remedy = "It must be a word of letters, digits, _ and -."
            raise BadRequest(f"The role of messages[{place}] is {role!r:.200}.", remedy=remedy, param="messages")
        checked.append((role, _checked_text(content, f"The content of messages[{place}]", "messages")))
    return checked


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here it only lets them through."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """What chat templates expect of transformers, in a sandbox."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
