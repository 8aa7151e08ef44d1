"""Conversations, held as a user holds them: through a pipe, and line by line at a keyboard."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from talking import DRAFT, TARGET, Run, run, talking_pair

from paceline import LLM, Sampling
from paceline.completion import Chunk

__all__ = ["run"]  # a fixture

TOKENS = 12
SETTINGS = Sampling(max_tokens=TOKENS, temperature=1.0, seed=7)
"""The tiny model says the same to most prompts; drawn at other positions, its words are others."""
FLAGS = ("--max-tokens", TOKENS, "--temperature", 1, "--seed", 7)
CONTEXT = 160

Talk = Callable[..., SimpleNamespace]
"""Hold a chat through a pipe: the lines, then more options; gives code, out and err."""


class Keyboard(io.StringIO):
    """A terminal at which these lines are typed, and then ^C or ^D is pressed."""

    def __init__(self, *lines: str, interrupted: bool = False) -> None:
        super().__init__("".join(f"{line}\n" for line in lines))
        self.interrupted = interrupted

    def isatty(self) -> bool:
        return True

    def readline(self, *size: Any) -> str:
        line = super().readline(*size)
        if not line and self.interrupted:
            raise KeyboardInterrupt
        return line


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return talking_pair(tmp_path_factory.mktemp("pair"), max_position_embeddings=CONTEXT)


@pytest.fixture(scope="module")
def llm(pair: tuple[Path, Path]) -> LLM:
    return LLM(pair[0], drafter=pair[1])


@pytest.fixture
def talk(run: Run, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Talk:
    def call(lines: list[str], *options: object) -> SimpleNamespace:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        beside = () if "ar" in options else ("--drafter", pair[1])
        return run("chat", "--model", pair[0], *beside, *FLAGS, *options)

    return call


FIXED = ("--block-size", 8)
"""Blocks that the machine does not choose, which would be others in every run."""


def conversation(*contents: str, system: str | None = None) -> list[dict[str, str]]:
    """Turns of user and assistant, one after the other."""
    roles = ("user", "assistant") * len(contents)
    opening = [] if system is None else [{"role": "system", "content": system}]
    return opening + [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)]


def said(llm: LLM, *contents: str, system: str | None = None) -> str:
    """What the model says after these turns."""
    return llm.generate(conversation(*contents, system=system), SETTINGS)[0].text


def stopping(after: int, calls: int = 1) -> Callable[..., Iterator[Chunk]]:
    """`LLM.stream`, whose first `calls` answers are interrupted after so many chunks."""
    stream, left = LLM.stream, [calls]

    def interrupted(self: LLM, *request: Any) -> Iterator[Chunk]:
        chunks = stream(self, *request)
        left[0] -= 1
        return chunks if left[0] < 0 else cut(chunks)

    def cut(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for _ in range(after):
            yield next(chunks)
        raise KeyboardInterrupt

    return interrupted


# turns


def test_every_turn_reads_the_whole_conversation(talk: Talk, llm: LLM) -> None:
    told = talk(["hello", "and then?"])
    first = said(llm, "hello")
    second = said(llm, "hello", first, "and then?")
    assert second != said(llm, "and then?")
    assert (told.code, told.out) == (0, f"{first}\n{second}\n")


def test_a_pipe_gets_answers_only(talk: Talk, llm: LLM) -> None:
    told = talk(["", "  ", "hello", ""])
    assert told.out == f"{said(llm, 'hello')}\n"
    assert told.err.count("\n") == 1
    assert ">" not in told.err
    assert talk([]).out == talk([]).err == ""


def test_a_system_message_comes_first_and_outlives_a_reset(talk: Talk, llm: LLM) -> None:
    answer = said(llm, "hello", system="Be brief.")
    assert answer != said(llm, "hello")
    told = talk(["hello", "/reset", "hello"], "--system", "Be brief.")
    assert told.out == f"{answer}\n" * 2


def test_settings_arrive(talk: Talk, llm: LLM) -> None:
    flags = {"temperature": 1.5, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 3}
    spelled = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", value)]
    hot = llm.generate(conversation("hello"), Sampling(max_tokens=TOKENS, **flags))[0].text
    assert hot != said(llm, "hello")
    assert talk(["hello"], *spelled, "--block-size", 3).out == f"{hot}\n"


def test_each_answer_has_its_figures(talk: Talk) -> None:
    told = talk(["hello", "more"])
    assert len(told.err.splitlines()) == 2
    for line in told.err.splitlines():
        assert line.startswith(f"{TOKENS} tokens, ")
        assert "tokens/s, acceptance length" in line
        assert line.endswith("cut by --max-tokens")
    assert "acceptance" not in talk(["hello"], "--method", "ar").err


def test_blocks_are_shown(talk: Talk) -> None:
    plain, shown = talk(["hello", "more"]).out, talk(["hello", "more"], *FIXED, "--show-blocks").out
    assert shown.replace("⟦", "").replace("⟧", "") == plain
    assert shown.count("⟦") == shown.count("⟧") >= 2


def rounds_of(told: SimpleNamespace) -> list[str]:
    """The numbers of the rounds that were told, behind each prompt pass."""
    lines = [line.split(":")[0] for line in told.err.splitlines()]
    return [line for line in lines if line == "prompt pass" or line.startswith("round ")]


def test_the_rounds_of_each_turn_are_told_before_its_answer(talk: Talk) -> None:
    plain, told = talk(["hello", "more"]), talk(["hello", "more"], *FIXED, "--explain")
    assert (told.code, told.out) == (0, plain.out)
    rounds = rounds_of(told)
    assert rounds[:2] == ["prompt pass", "round 1"]
    assert rounds.count("prompt pass") == rounds.count("round 1") == 2
    assert "round 1: block 8, 1 pass: fixed by the settings\n" in told.err
    assert told.err.count(" tokens/s, acceptance length") == 2
    shown = talk(["hello", "more"], *FIXED, "--show-blocks")
    assert talk(["hello", "more"], *FIXED, "--explain", "--show-blocks").out == shown.out


def test_rounds_without_a_target_are_not_told(run: Run) -> None:
    told = run("chat", "--model", TARGET.parent.parent / "llada-tiny", "--explain")
    assert (told.code, told.out) == (2, "")
    assert "--explain is set, and the method is 'diffusion'" in told.err


# commands


def test_reset_forgets(talk: Talk, llm: LLM) -> None:
    told = talk(["hello", "/reset", "more"])
    assert told.out == f"{said(llm, 'hello')}\n{said(llm, 'more')}\n"
    assert "forgotten" in told.err


def test_exit_ends_the_chat(talk: Talk, llm: LLM) -> None:
    told = talk(["hello", "/exit", "more"])
    assert (told.code, told.out) == (0, f"{said(llm, 'hello')}\n")


@pytest.mark.parametrize(("line", "complaints"), [("/help", 0), ("/helpme", 1), ("/reset now", 1), ("/", 1)])
def test_commands_are_explained_and_not_sent(talk: Talk, line: str, complaints: int) -> None:
    told = talk([line])
    assert (told.code, told.out) == (0, "")
    assert told.err.count("is no command") == complaints
    for command in ("/reset: ", "/exit: ", "/help: "):
        assert command in told.err


def test_a_blank_makes_a_message_of_a_command(talk: Talk, llm: LLM) -> None:
    assert talk([" /exit"]).out == f"{said(llm, '/exit')}\n"


# ^C and ^D


@pytest.mark.parametrize("options", [(), ("--show-blocks",), ("--explain",)])
def test_an_interrupt_stops_the_answer_and_keeps_what_was_said(
    talk: Talk, llm: LLM, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    chunks = list(llm.stream(conversation("hello"), SETTINGS))[:2]
    half = "".join(chunk.text for chunk in chunks)
    tokens = sum(len(chunk.token_ids) for chunk in chunks)
    assert 0 < len(half) < len(said(llm, "hello"))
    second = said(llm, "hello", half, "more")
    monkeypatch.setattr(LLM, "stream", stopping(after=2, calls=2))  # the first call is the check at the start
    told = talk(["hello", "more"], *options)
    assert told.code == 0
    assert told.out.count("⟦") == told.out.count("⟧")
    assert told.out.replace("⟦", "").replace("⟧", "") == f"{half}\n{second}\n"
    figures = [line for line in told.err.splitlines() if " tokens/s, " in line]
    assert figures[0].startswith(f"{tokens} tokens, ")
    assert figures[0].endswith("stopped")


def test_an_interrupt_before_the_first_word_takes_the_message_back(
    talk: Talk, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = said(llm, "more")
    monkeypatch.setattr(LLM, "stream", stopping(after=0, calls=2))
    told = talk(["hello", "more"])
    assert (told.code, told.out) == (0, f"\n{expected}\n")
    assert "the message is forgotten" in told.err


@pytest.mark.parametrize(("place", "options"), [("blocks.write", ()), ("explain.say_lines", ("--explain",))])
def test_an_interrupt_while_something_is_written_stops_the_answer(
    talk: Talk, llm: LLM, monkeypatch: pytest.MonkeyPatch, place: str, options: tuple[str, ...]
) -> None:
    """While a round is told, what was said until then is shown nevertheless."""
    from paceline.cli import output

    honest = getattr(output, place.split(".")[1])

    def interrupted(text: str) -> None:
        monkeypatch.setattr(f"paceline.cli.{place}", honest)
        raise KeyboardInterrupt

    half = next(llm.stream(conversation("hello"), SETTINGS)).text
    assert half
    monkeypatch.setattr(f"paceline.cli.{place}", interrupted)
    shown = half if options else ""
    assert talk(["hello", "more"], *options).out == f"{shown}\n{said(llm, 'hello', half, 'more')}\n"


@pytest.mark.parametrize("interrupted", [True, False])
def test_interrupt_or_end_at_the_prompt_end_the_chat(
    run: Run, pair: tuple[Path, Path], llm: LLM, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard("hello", interrupted=interrupted))
    told = run("chat", "--model", pair[0], "--drafter", pair[1], *FLAGS)
    assert (told.code, told.out) == (0, f"{said(llm, 'hello')}\n")
    assert told.err.startswith("/help lists the commands")


# what cannot be served


def test_a_conversation_that_outgrows_the_context_says_so_and_goes_on(talk: Talk, llm: LLM) -> None:
    first, long = said(llm, "hello"), "x" * CONTEXT
    tokens = len(llm.encode(conversation("hello", first, long)))
    told = talk(["hello", long, "more", "/reset", "hello"])
    assert (told.code, told.out) == (0, f"{first}\n{said(llm, 'hello', first, 'more')}\n{first}\n")
    assert f"has {tokens} tokens, and the model's context is {CONTEXT} tokens" in told.err
    assert "/reset forgets the conversation" in told.err
    assert "Traceback" not in told.err


def test_an_answer_that_fills_the_context_says_so(talk: Talk) -> None:
    told = talk(["hello"], "--max-tokens", 5 * CONTEXT, "--temperature", 2, "--seed", 1)
    assert told.code == 0
    assert told.err.splitlines()[-1].endswith("the context is full, /reset empties it")


def test_a_line_that_is_no_text_is_refused_alone(
    run: Run, pair: tuple[Path, Path], llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\nhello\n"), encoding="utf-8"))
    told = run("chat", "--model", pair[0], "--drafter", pair[1], *FLAGS)
    assert (told.code, told.out) == (0, f"{said(llm, 'hello')}\n")
    assert "not valid Unicode" in told.err


def test_a_system_message_that_cannot_be_served_is_refused_at_the_start(talk: Talk) -> None:
    told = talk(["hello"], "--system", "x" * CONTEXT)
    assert (told.code, told.out) == (2, "")
    assert f"the model's context is {CONTEXT} tokens" in told.err


def test_a_model_that_cannot_chat_is_refused(run: Run, tmp_path: Path) -> None:
    target, draft = talking_pair(tmp_path)
    (target / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    for model, drafter, file in ((TARGET, DRAFT, "tokenizer.json"), (target, draft, "chat_template.jinja")):
        told = run("chat", "--model", model, "--drafter", drafter)
        assert (told.code, told.out) == (2, "")
        assert told.err.startswith("Error: This model has no t")
        assert f"Add {file}" in told.err
        assert told.err.count("\n") == 1


def test_options_are_checked(talk: Talk) -> None:
    assert "top_p is 3" in talk(["hello"], "--top-p", 3).err
