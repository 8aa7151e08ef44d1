"""`paceline generate`: one prompt in, one answer out, streamed.

Knows the options and where a prompt comes from; `LLM` does the work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.flags import configured
from paceline.cli.options import Decoding, Drawing, Explain, ShowBlocks, place
from paceline.cli.output import completion_json, say, stats_line, write
from paceline.completion import Chunk, Completion
from paceline.errors import BadRequest, ConfigError
from paceline.request import Infill, Prompt

if TYPE_CHECKING:
    from paceline.llm import LLM

__all__ = ["generate"]


@configured()
def generate(
    *,
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; without it a pipe is read.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option(callback=place("file", exists=True), help="Read the prompt from a file.")
    ] = None,
    prompt_ids: Annotated[str | None, typer.Option(metavar="1,2,3", help="The prompt as token ids.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Fill a hole of --max-tokens behind this; diffusion, APD.")] = None,
    suffix: Annotated[str | None, typer.Option(help="The text behind the hole.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a user's message to a chat model.")] = False,
    decoding: Decoding,
    drawing: Drawing,
    show_blocks: ShowBlocks = False,
    explain: Explain = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Say on stderr how fast it was.")] = False,
) -> None:
    """Answer one prompt: an argument, a file, a pipe or token ids; or fill the hole in a text."""
    if as_json and (show_blocks or explain):
        flag = "--show-blocks" if show_blocks else "--explain"
        raise ConfigError(f"--json and {flag} exclude each other.", remedy="The JSON holds all rounds.")
    sampling = drawing.sampling()
    hole = None if prefix is None and suffix is None else Infill(prefix or "", suffix or "")
    request = _read_prompt(prompt, file, prompt_ids, hole, chat)
    llm = decoding.open(explain=explain)
    if as_json:
        _print_json(llm.generate([request], sampling)[0], stats)
    else:
        _stream(llm, llm.stream(request, sampling), show_blocks, explain, stats)


def _read_prompt(text: str | None, file: Path | None, ids: str | None, hole: Infill | None, chat: bool) -> Prompt:
    """The one prompt that was given."""
    if sum(source is not None for source in (text, file, ids, hole)) > 1:
        remedy = "Give an argument, --file, --prompt-ids, or --prefix with --suffix."
        raise BadRequest("There is more than one prompt.", remedy=remedy, param="prompt")
    if chat and (ids is not None or hole is not None):
        raise BadRequest("--chat needs a message: no token ids, no hole.", param="prompt")
    if hole is not None:
        return hole
    if ids is not None:
        return _parse_ids(ids)
    if text is None:
        text = _read_text(file)
    return [{"role": "user", "content": text}] if chat else text


def _read_text(file: Path | None) -> str:
    if file is None and sys.stdin.isatty():
        raise BadRequest("There is no prompt.", remedy="Give one, or pipe one in; see --help.", param="prompt")
    try:
        return sys.stdin.read() if file is None else file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"The prompt is not UTF-8 text: {error}.", param="prompt") from error


def _parse_ids(ids: str) -> list[int]:
    try:
        return [int(part) for part in ids.replace(",", " ").split()]
    except ValueError as error:
        raise BadRequest(f"--prompt-ids is {ids!r:.80}.", remedy="Write integers: 1,2,3.", param="prompt") from error


def _print_json(completion: Completion, stats: bool) -> None:
    write(completion_json(completion) + "\n")
    if stats:
        say(stats_line(completion.stats, completion.finish_reason, completion.seed))


def _stream(llm: LLM, chunks: Iterable[Chunk], blocks: bool, explain: bool, stats: bool) -> None:
    from paceline.cli.blocks import show_answer
    from paceline.cli.explain import explained

    taken: list[Chunk] = []
    chunks = explained(chunks, llm.tokenizer) if explain else chunks
    show_answer(_kept(chunks, taken), llm.tokenizer, blocks)
    write("\n")
    completion = taken[-1].completion
    if stats and completion is not None:
        say(stats_line(completion.stats, completion.finish_reason, completion.seed))


def _kept(chunks: Iterable[Chunk], taken: list[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        taken.append(chunk)
        yield chunk
