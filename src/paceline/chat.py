"""Chat messages to token ids: the sandboxed chat template of a checkpoint.

Control ids of a chat come from its template alone: text of a message that spells one is encoded as characters.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from paceline.errors import BadRequest, CheckpointError

__all__ = ["Chat", "checked_text", "read_template"]

_ROLE = re.compile(r"[a-zA-Z0-9_-]+")
_MESSAGE_REMEDY = 'Send [{"role": "user", "content": "..."}, ...], with these two keys.'


def read_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The Jinja source of a model folder: chat_template.jinja, else `chat_template` of its tokenizer_config.json.

    Raises:
        CheckpointError: a file that cannot be read, or a template that is no text.
    """
    path = folder / "chat_template.jinja"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    found = config.get("chat_template")
    try:
        named = {entry["name"]: entry["template"] for entry in found} if isinstance(found, list) else {"default": found}
        template = named.get("default")
        if template is None or isinstance(template, str):
            return template
    except (TypeError, KeyError):
        pass
    file = folder / "tokenizer_config.json"
    raise CheckpointError(f"chat_template in {file} is neither a text nor a list of named texts.")


def checked_text(text: str, what: str, param: str) -> str:
    """`text` itself; a BadRequest about `what` where it is not valid Unicode text."""
    if not isinstance(text, str):
        raise BadRequest(f"{what} is {text!r:.200}.", remedy="It must be a text.", param=param)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        remedy = f"Character {error.start} is half of a surrogate pair; send whole characters."
        raise BadRequest(f"{what} is not valid Unicode.", remedy=remedy, param=param) from error
    return text


class Chat:
    """A chat template, which is code of strangers, in its sandbox; `named` are the special tokens it may write."""

    def __init__(self, backend: Backend, template: str, named: Mapping[str, str]) -> None:
        self._template = template
        self._named = named
        self._guard = _Guard(backend)

    def encode(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> list[int]:
        """Token ids of a chat.

        Raises:
            BadRequest: messages that are not role and content texts, or that the template refuses.
        """
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
        checked.append((role, checked_text(content, f"The content of messages[{place}]", "messages")))
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
