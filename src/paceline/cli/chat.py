"""`paceline chat`: a conversation of many turns, each answer streamed as it is made.

Knows the options, what the user says and the messages so far. Does not know how messages become tokens or tokens an
answer: `LLM` reads the whole conversation anew in every turn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.flags import configured
from paceline.cli.options import Decoding, Drawing, Explain, ShowBlocks
from paceline.cli.output import say, say_error, write
from paceline.completion import Chunk, Stats
from paceline.errors import BadRequest, ConfigError, ContextOverflow
from paceline.request import Message, Sampling

if TYPE_CHECKING:
    from paceline.llm import LLM

__all__ = ["chat"]

_COMMANDS = {
    "/reset": "forget the conversation; the system message stays",
    "/exit": "end the chat, as ^D and ^C do here; while an answer comes, ^C stops the answer only",
    "/help": "show this",
}


@configured()
def chat(
    *,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="A system message before the first turn.")] = None,
    decoding: Decoding,
    drawing: Drawing,
    show_blocks: ShowBlocks = False,
    explain: Explain = False,
) -> None:
    """Talk with a chat model; every line of a pipe is a turn. In the chat, /help lists what else it understands."""
    sampling = drawing.sampling()
    llm = decoding.open(explain=explain)
    opening = () if system is None else ({"role": "system", "content": system},)
    talk = _Talk(llm, sampling, opening, show_blocks, explain)
    _check(talk)
    with suppress(KeyboardInterrupt):  # a second ^C, before the prompt is back
        _converse(talk, _lines())


@dataclass(frozen=True, slots=True)
class _Talk:
    """What is the same in every turn; `opening` holds the system message, if there is one."""

    llm: LLM
    sampling: Sampling
    opening: tuple[Message, ...]
    show_blocks: bool
    explain: bool


def _check(talk: _Talk) -> None:
    """Refuse at the start what every turn would meet.

    Raises:
        ConfigError: a model that cannot chat.
        BadRequest: a system message that the template refuses, or that fills the context.
    """
    tokenizer = talk.llm.tokenizer
    if tokenizer is None or not tokenizer.has_chat_template:
        missing, file = ("tokenizer", "tokenizer.json") if tokenizer is None else ("template", "chat_template.jinja")
        remedy = f"Add {file} to its folder, or use paceline generate."
        raise ConfigError(f"This model has no {missing} for chats.", remedy=remedy, param="model")
    talk.llm.stream([*talk.opening, _message("user", "?")], talk.sampling)  # checks now, would decode when read


def _lines() -> Iterator[str]:
    """What the user says, line by line, until the input ends."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # bytes that are no text: one message is refused, not the rest
    return _typed() if sys.stdin.isatty() else iter(sys.stdin)


def _typed() -> Iterator[str]:
    """Lines from the keyboard, until ^C or ^D."""
    with suppress(ImportError):
        import readline  # noqa: F401  (where it exists, input() lets lines be edited)
    say("/help lists the commands, ^C stops an answer, ^D ends the chat.", "dim")
    while True:
        try:
            line = input("> " if sys.stdout.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            say("")  # the shell's prompt gets a line of its own
            return
        yield line


def _converse(talk: _Talk, lines: Iterable[str]) -> None:
    messages = talk.opening
    for line in lines:
        text = line.strip()
        if line.startswith("/"):
            if text == "/exit":
                return
            messages = _obey(text, talk, messages)
        elif text:
            messages = _turn(text, talk, messages)


def _obey(command: str, talk: _Talk, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages after a command; one that does not exist changes nothing."""
    if command == "/reset":
        say("The conversation is forgotten.", "dim")
        return talk.opening
    if command != "/help":
        say_error(f"{command!r:.80} is no command and was not sent; to send it, put a blank before it.")
    for name, meaning in _COMMANDS.items():
        say(f"{name}: {meaning}", "dim")
    return messages


def _turn(text: str, talk: _Talk, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Ask, and stream the answer: the messages with both of them.

    ^C stops the answer, and what was said until then counts. Where nothing was said, or the request was refused, the
    messages are as before.
    """
    asked = (*messages, _message("user", text))
    taken: list[Chunk] = []
    started = perf_counter()
    try:
        with suppress(KeyboardInterrupt):
            _show(talk, asked, taken)
    except BadRequest as error:
        say_error(_reason(error))
        return messages
    seconds = perf_counter() - started
    write("\n")
    said = "".join(chunk.text for chunk in taken)
    if not said and _stopped(taken):
        say("Stopped before the first word; the message is forgotten.", "dim")
        return messages
    say(_figures(talk, taken, seconds), "dim")
    return (*asked, _message("assistant", said))


def _show(talk: _Talk, asked: tuple[Message, ...], taken: list[Chunk]) -> None:
    """Show the answer as it comes, each chunk put into `taken`; or tell its rounds as they come, and then show it."""
    from paceline.cli.blocks import show_answer
    from paceline.cli.explain import explained

    chunks = _until_stopped(talk.llm.stream(asked, talk.sampling), taken)
    if talk.explain:
        with suppress(KeyboardInterrupt):  # while a round is told
            explained(chunks, talk.llm.tokenizer)
        chunks = iter(taken)
    show_answer(chunks, talk.llm.tokenizer, talk.show_blocks)


def _until_stopped(chunks: Iterable[Chunk], taken: list[Chunk]) -> Iterator[Chunk]:
    """The chunks until the end or ^C, each put into `taken`; a display sees an answer that ends."""
    with suppress(KeyboardInterrupt):
        for chunk in chunks:
            taken.append(chunk)
            yield chunk


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _stopped(taken: list[Chunk]) -> bool:
    return not taken or taken[-1].finish_reason is None


def _reason(error: BadRequest) -> str:
    """Why a message was not sent, and what to do in a chat."""
    if not isinstance(error, ContextOverflow):
        return f"{error} The message was not sent."
    return (
        f"With this message the conversation has {error.prompt_tokens} tokens, and the model's context is "
        f"{error.context_tokens} tokens. The message was not sent: /reset forgets the conversation, or say less."
    )


def _figures(talk: _Talk, taken: list[Chunk], seconds: float) -> str:
    """The line after an answer: how long, how fast, and what cut it short."""
    tokens = sum(len(chunk.token_ids) for chunk in taken)
    stats = Stats.of(talk.llm.method, [chunk.round for chunk in taken if chunk.round is not None], tokens, seconds)
    parts = [f"{tokens} tokens", f"{stats.tokens_per_second:.1f} tokens/s"]
    if stats.method in ("dflash", "lookup"):
        parts.append(f"acceptance length {stats.acceptance_length:.2f}")
    elif stats.method in ("diffusion", "apd"):
        parts.append(f"{stats.tokens_per_forward:.2f} tokens per forward")
    if _stopped(taken):
        parts.append("stopped")
    elif taken[-1].finish_reason == "length":
        full = tokens < talk.sampling.max_tokens
        parts.append("cut: the context is full, /reset empties it" if full else "cut by --max-tokens")
    return ", ".join(parts)
