"""`paceline generate` and `paceline chat` with a diffusion language model, run as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from talking import DRAFT, TARGET, Run, run, talking
from tiny import GOLDEN

from paceline import LLM, Infill, Sampling
from paceline.cli.blocks import Blocks, Part
from paceline.completion import Chunk, Round
from paceline.decode.settings import MethodSettings

__all__ = ["run"]  # a fixture

LLADA = GOLDEN / "llada-tiny"
FEW = ("--max-tokens", 12, "--stop", "never")
FLAGS = ("--strategy", "low_confidence", "--threshold", 0.2, "--block-length", 5, "--cache", "dual")
SETTINGS: MethodSettings = {"threshold": 0.2, "block_length": 5, "cache": "dual"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talking(LLADA, tmp_path_factory.mktemp("dllm") / "llada")


@pytest.fixture(scope="module")
def expected(folder: Path) -> Any:
    return LLM(folder, **SETTINGS).generate("hello", Sampling(max_tokens=12))[0]


@pytest.mark.parametrize("method", [(), ("--method", "diffusion")])
def test_flags_are_the_settings(run: Run, folder: Path, expected: Any, method: Any) -> None:
    told = run("generate", "hello", "--model", folder, *method, *FEW, *FLAGS, "--json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert (found["token_ids"], found["text"]) == (expected.token_ids, expected.text)
    assert found["stats"]["forward_passes"] == len(found["rounds"]) == expected.stats.rounds
    assert found["stats"]["tokens_per_forward"] == 12 / expected.stats.rounds
    assert [round["positions"] for round in found["rounds"]] == [list(each.positions) for each in expected.rounds]


def test_the_words_of_a_file_are_the_same(run: Run, folder: Path, expected: Any, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        f"model: {folder}\nstrategy: low_confidence\nthreshold: 0.9\nblock_length: 5\ncache: dual\nmax_tokens: 12\n"
    )
    told = run("generate", "hello", "--config", tmp_path / "run.yaml", "--threshold", 0.2)
    assert (told.code, told.out) == (0, f"{expected.text}\n")


def test_end_tokens_last(run: Run, folder: Path, tmp_path: Path) -> None:
    settings: MethodSettings = {"end_last": True, "tokens_per_step": 2}
    (found,) = LLM(folder, **settings).generate("hello", Sampling(max_tokens=12))
    (tmp_path / "run.yaml").write_text("end_last: true\n")
    for asked in (("--end-last",), ("--config", tmp_path / "run.yaml")):
        told = run("generate", "hello", "--model", folder, *FEW, "--tokens-per-step", 2, *asked)
        assert (told.code, told.out) == (0, f"{found.text}\n"), told.err
    told = run("generate", "hello", "--model", folder, *FEW, "--end-last", "--strategy", "left_to_right")
    assert (told.code, "end_last is True, and strategy is 'left_to_right'" in told.err) == (2, True)
    told = run("generate", "hello", "--model", TARGET, "--end-last", *FEW)
    assert "end_last is set, and the method is" in told.err


def test_stats_speak_of_passes(run: Run, folder: Path, expected: Any) -> None:
    told = run("generate", "hello", "--model", folder, *FEW, *FLAGS, "--stats")
    assert told.out == f"{expected.text}\n"
    for words in ("diffusion: 12 tokens", "tokens per forward over", f"{expected.stats.rounds} passes | passes "):
        assert words in told.err
    assert "acceptance" not in told.err


def test_ids_without_a_tokenizer(run: Run, expected: Any) -> None:
    ids = ",".join(map(str, LLM(LLADA.parent / "llada-tiny").generate([1, 2], Sampling(max_tokens=6))[0].token_ids))
    told = run("generate", "--prompt-ids", "1,2", "--model", LLADA, "--max-tokens", 6)
    assert told.out.split() == ids.split(",")


def test_a_hole_between_prefix_and_suffix(run: Run, folder: Path) -> None:
    (found,) = LLM(folder).generate(Infill("def f(", "return a"), Sampling(max_tokens=9))
    told = run("generate", "--model", folder, "--prefix", "def f(", "--suffix", "return a", "--max-tokens", 9)
    assert (told.code, told.out) == (0, f"{found.text}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prefix", "a", "--suffix", "b", "text"), "more than one prompt"),
        (("--suffix", "b", "--prompt-ids", "1"), "more than one prompt"),
        (("--prefix", "a", "--suffix", "b", "--chat"), "--chat needs a message"),
        (("--prefix", "a", "--suffix", "b", "--model", TARGET), "no tokenizer"),
        (("--prefix", "a", "--suffix", "b", "--max-tokens", 4), "Dream or LLaDA"),
        (("text", "--threshold", 0.9), "threshold is set, and the method is 'dflash': it is a setting of diffusion"),
        (("text", "--model", TARGET, "--method", "diffusion"), "the model is autoregressive"),
        (("text", "--model", LLADA, "--method", "ar"), "the model is a diffusion language model"),
        (("text", "--model", LLADA, "--drafter", DRAFT), "needs none"),
        (("text", "--model", LLADA, "--strategy", "best"), "strategy is 'best'"),
        (("text", "--model", LLADA, "--alpha", 0.5), "alpha is set, and the method is 'diffusion': it is"),
        (("text", "--model", LLADA, "--window", 4), "strategy must be left_to_right"),
        (("text", "--model", LLADA, "--threshold", 0.5, "--steps", 3), "give at most one of steps, threshold"),
    ],
)
def test_what_does_not_go_together_is_one_line(run: Run, arguments: Any, message: str) -> None:
    told = run("generate", *arguments)
    assert (told.code, told.out) == (2, "")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_bench_and_demo_want_a_target(run: Run) -> None:
    assert "diffusion language model" in run("bench", "decode", "--model", LLADA, "--quick").err
    assert "diffusion language model" in run("demo", "--model", LLADA, "--prompt", "x").err


def test_blocks_show_which_pass_fixed_a_token(run: Run, folder: Path, expected: Any) -> None:
    told = run("generate", "hello", "--model", folder, *FEW, *FLAGS, "--show-blocks")
    assert told.out.replace("⟦", "").replace("⟧", "") == f"{expected.text}\n"
    assert told.out.count("⟦") == told.out.count("⟧") > 1


def test_a_token_belongs_to_its_pass_whenever_it_settles() -> None:
    def passed(places: tuple[int, ...], committed: tuple[int, ...]) -> Chunk:
        return Chunk("", committed, Round((0,) * len(places), (), committed, 0, 0.0, 0.0, places))

    blocks = Blocks(None)
    assert blocks.split(passed((1, 3), ())) == []
    assert blocks.split(passed((0,), (7, 8))) == [Part("7 ", 2, True), Part("8 ", 1, True)]
    assert blocks.split(passed((2,), (9, 6))) == [Part("9 ", 3, True), Part("6 ", 1, True)]


def test_a_chat_with_a_diffusion_model(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", iter_lines(["hello\n"]))
    told = run("chat", "--model", folder, "--max-tokens", 8, "--tokens-per-step", 2)
    assert told.code == 0, told.err
    assert "8 tokens" in told.err
    assert "2.00 tokens per forward" in told.err


class iter_lines(list[str]):  # noqa: N801
    """What a pipe gives."""

    def isatty(self) -> bool:
        return False
