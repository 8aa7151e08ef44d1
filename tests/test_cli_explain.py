"""What `--explain` tells of a round, on rounds written down beforehand and on a scripted run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from scripted import answer_all, chain, scripted
from talking import DRAFT, TARGET, Run, byte_tokenizer, run, talking_pair

from paceline.cli.explain import explained, round_told
from paceline.completion import Chunk, Round
from paceline.decode.tree import Proposal
from paceline.engine.loop import Job
from paceline.plan import Plan
from paceline.request import Sampling
from paceline.text import Tokenizer

__all__ = ["run"]  # a fixture

MUTE = ("--model", TARGET, "--drafter", DRAFT, "--prompt-ids", "1,2,3", "--max-tokens", 12)


def timed(round: Round) -> Round:
    return replace(round, draft_seconds=0.0021, verify_seconds=0.004)


def test_a_scripted_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The target answers 2 3 4 5 6; the first tree holds 3 4 and two wrong tokens, the second draft is wrong."""
    trees = [
        Proposal((3, 9, 4, 7), (-1, -1, 0, 0), tuple(map(math.log, (0.5, 0.25, 0.4, 0.05)))),
        Proposal((8,), (-1,), (math.log(0.12),)),
    ]
    decoder = scripted(chain({}), 4, lambda *_: trees.pop(0))
    (answer,) = answer_all(decoder, [Job((1,), Sampling(max_tokens=5), 0)])
    chunks = [Chunk("", (2,), None), *(Chunk("", each.committed, timed(each)) for each in answer.rounds)]
    assert explained(iter(chunks), None) == chunks
    assert capsys.readouterr().err.splitlines() == [
        "prompt pass: 2",
        "round 1: block 4, 1 pass: fixed by the settings",
        "  4 drafts in 2.1 ms; read in 4.0 ms",
        "  + 3 0.50",
        "    + 4 0.80",
        "    - 7 0.10",
        "  - 9 0.25",
        "  = 5, the target's own",
        "round 2: block 4, 1 pass: fixed by the settings",
        "  1 draft in 2.1 ms; read in 4.0 ms",
        "  - 8 0.12",
        "  = 6, the target's own",
        "  the answer ends",
    ]


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (None, "plain decoding"),
        (Plan(1), "plain decoding: fixed by the settings"),
        (Plan(16, 4), "block 16, at most 4 passes: fixed by the settings"),
        (Plan(8, 1, "first"), "block 8, 1 pass: the first guess"),
        (Plan(8, 1, "best", 411.6, 198.2), "block 8, 1 pass: 412 tokens/s expected, 198 of plain decoding"),
        (Plan(16, 1, "look around"), "block 16, 1 pass: the longest block, to see what shorter ones miss"),
        (
            Plan(4, 1, "trial", 90.0, 198.2),
            "block 4, 1 pass: tried again after a rest, 90 tokens/s expected, 198 of plain decoding",
        ),
        (
            Plan(1, 1, "rest", 90.0, 198.2, 3),
            "plain decoding: 198 tokens/s expected, 90 of the best block; 3 more rounds without drafts, "
            "then drafts again",
        ),
        (Plan(1, 1, "rest", resting=1), "plain decoding: 1 more round without drafts, then drafts again"),
    ],
)
def test_why_a_round_has_its_budget(plan: Plan | None, told: str) -> None:
    round = timed(Round((), (5,), (5,), 0, 0.0, 0.0, plan=plan))
    assert round_told(7, round, 1, None) == f"round 7: {told}\n  read in 4.0 ms\n  = 5, the target's own"


def test_tokens_that_are_no_text_and_drafts_without_probabilities() -> None:
    tokenizer = Tokenizer(byte_tokenizer(), {"eos_token": "<|im_end|>"}, None)
    line, broken, end = tokenizer.encode("\n")[0], tokenizer.encode("é")[0], 255
    round = timed(Round((line, broken), (line, end, 0), (line, end), 1, 0.0, 0.0, plan=Plan(8), dropped=2))
    assert round_told(1, round.cut(2), None, tokenizer).splitlines()[1:] == [
        "  2 drafts in 2.1 ms, 2 more not worth reading; read in 4.0 ms",
        '  + "\\n"',
        '    - "\ufffd"',
        "  = <255>, the target's own",
        "  the answer ends",
    ]


def test_what_was_looked_up() -> None:
    round = timed(Round((4, 5, 6), (5, 0, 7, 8), (5, 7), 1, 0.0, 0.0, parents=(-1, -1, 1)))
    both = replace(round, scores=(math.log(0.5),), plan=Plan(2))
    assert round_told(1, round, 3, None).splitlines()[0] == "round 1: looked up in the text"
    assert round_told(1, both, 3, None).splitlines()[2:5] == ["  - 4 0.50", "  + 5 looked up", "    - 6 looked up"]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Plan(1), "looked-up tokens alone: fixed by the settings"),
        (Plan(1, 1, "looked up", 90.0, 198.2), "looked-up tokens alone: 198 tokens/s expected, 90 with drafts"),
        (Plan(1, 1, "rest", resting=2), "looked-up tokens alone: 2 more rounds without drafts, then drafts again"),
        (None, "looked up in the text"),
    ],
)
def test_a_round_without_drafts_that_reads_looked_up_tokens_is_not_plain(plan: Plan | None, why: str) -> None:
    round = timed(Round((4, 5), (4, 6, 0), (4, 6), 1, 0.0, 0.0, plan=plan))
    assert round_told(2, round, 3, None).splitlines() == [
        f"round 2: {why}",
        "  2 looked-up tokens in 2.1 ms; read in 4.0 ms",
        "  + 4",
        "    - 5",
        "  = 6, the target's own",
    ]


def test_what_agrees_behind_the_end_of_the_answer_did_not_come_in() -> None:
    round = timed(Round((4, 5), (4, 5, 6), (4, 5, 6), 2, 0.0, 0.0, plan=Plan(3))).cut(1)
    assert round_told(1, round, 3, None).splitlines()[2:] == ["  + 4", "    - 5", "  the answer ends"]


def test_the_answer_comes_behind_its_rounds(run: Run, tmp_path: Any) -> None:
    pair = talking_pair(tmp_path)
    flags = ("generate", "hello", "--model", pair[0], "--drafter", pair[1], "--max-tokens", 12, "--block-size", 8)
    plain, told = run(*flags), run(*flags, "--explain")
    assert told.out == plain.out
    assert told.err.startswith("prompt pass: ")
    assert "round 1: block 8, 1 pass: fixed by the settings\n" in told.err
    assert any(line.startswith("  + ") and line.rsplit(" ", 1)[1][:2] in ("0.", "1.") for line in told.err.splitlines())
    assert run(*flags, "--explain", "--show-blocks").out == run(*flags, "--show-blocks").out


@pytest.mark.parametrize(
    "settings", [(), ("--method", "ar"), ("--candidate-num", 4), ("--block-size", 1), ("--lookup", 4)]
)
def test_every_round_is_told(run: Run, settings: tuple[object, ...]) -> None:
    told = run("generate", *MUTE[: 4 if "ar" not in settings else 2], *MUTE[4:], *settings, "--explain")
    assert told.code == 0, told.err
    rounds = [line for line in told.err.splitlines() if line.startswith("round ")]
    assert [line.split(":")[0] for line in rounds] == [f"round {number + 1}" for number in range(len(rounds))]
    assert sum(line.strip().startswith(("+", "=")) for line in told.err.splitlines()) == 11


def test_what_cannot_be_explained_is_refused(run: Run) -> None:
    told = run("generate", *MUTE, "--explain", "--json")
    assert (told.code, told.out) == (2, "")
    assert "--json and --explain exclude each other" in told.err
    folder = TARGET.parent.parent / "llada-tiny"
    told = run("generate", "--model", folder, "--prompt-ids", "1,2,3", "--max-tokens", 8, "--explain")
    assert (told.code, told.out) == (2, "")
    assert "the method is 'diffusion'" in told.err
