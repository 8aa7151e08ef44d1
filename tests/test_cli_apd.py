"""`paceline generate` and `paceline chat` with APD, run as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from talking import TARGET, Run, run, talking
from tiny import GOLDEN

from paceline import LLM, Sampling
from paceline.decode.settings import MethodSettings

__all__ = ["run"]  # a fixture

DREAM, SMALL = GOLDEN / "apd-tiny" / "dream", GOLDEN / "apd-tiny" / "qwen2"
FLAGS = ("--alpha", 0.6, "--schedule", "fixed", "--window", 6, "--kv-window", 3)
SETTINGS: MethodSettings = {"alpha": 0.6, "schedule": "fixed", "window": 6, "kv_window": 3}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    place = tmp_path_factory.mktemp("apd")
    return ("--model", talking(DREAM, place / "dream"), "--verifier", talking(SMALL, place / "small"))


def expected(models: tuple[Any, ...], settings: MethodSettings = SETTINGS) -> Any:
    return LLM(models[1], verifier=models[3], **settings).generate("hello", Sampling(max_tokens=24))[0]


@pytest.mark.parametrize("method", [(), ("--method", "apd")])
def test_flags_are_the_settings(run: Run, models: Any, method: Any) -> None:
    told = run("generate", "hello", *models, *method, *FLAGS, "--max-tokens", 24, "--json")
    assert told.code == 0, told.err
    found, ours = json.loads(told.out), expected(models)
    assert (found["token_ids"], found["text"]) == (ours.token_ids, ours.text)
    stats = {name: found["stats"][name] for name in ("method", "rounds", "checked_tokens", "accepted_tokens")}
    assert stats == {name: getattr(ours.stats, name) for name in stats}
    assert found["stats"]["prefix_hit_rate"] == ours.stats.prefix_hit_rate
    assert [round["reused_tokens"] for round in found["rounds"]] == [round.reused_tokens for round in ours.rounds]


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        (("--window", "all", "--kv-window", "all"), {"window": None, "kv_window": None}),
        ((), {"window": 32, "kv_window": 16}),
    ],
)
def test_all_is_none_and_what_is_left_out_is_the_methods_default(
    run: Run, models: Any, flags: Any, settings: MethodSettings
) -> None:
    told = run("generate", "hello", *models, *flags, "--max-tokens", 24, "--json")
    found, ours = json.loads(told.out), expected(models, settings)
    assert [len(round["proposed"]) for round in found["rounds"]] == [len(round.proposed) for round in ours.rounds]
    assert [round["reused_tokens"] for round in found["rounds"]] == [round.reused_tokens for round in ours.rounds]


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("alpha: 0.6\nschedule: fixed\nwindow: 9\nkv_window: 3\nmethod: apd", SETTINGS),
        ("alpha: 0.6\nschedule: fixed\nwindow_size: 9\nkv_window: 3", SETTINGS),
        ("window_size: all\nkv_window: null", {"window": 6, "kv_window": None}),
    ],
)
def test_the_words_of_a_file_are_the_same(
    run: Run, models: Any, words: str, settings: MethodSettings, tmp_path: Path
) -> None:
    (tmp_path / "run.yaml").write_text(f"model: {models[1]}\nverifier: {models[3]}\n{words}\nmax_tokens: 24\n")
    told = run("generate", "hello", "--config", tmp_path / "run.yaml", "--window", 6, "--json")
    assert told.code == 0, told.err
    found, ours = json.loads(told.out), expected(models, settings)
    assert [len(round["proposed"]) for round in found["rounds"]] == [len(round.proposed) for round in ours.rounds]
    assert found["token_ids"] == ours.token_ids


def test_stats_speak_of_passes_and_of_what_the_verifier_let_pass(run: Run, models: Any) -> None:
    told, ours = run("generate", "hello", *models, *FLAGS, "--max-tokens", 24, "--stats"), expected(models)
    assert told.out == f"{ours.text}\n"
    stats = ours.stats
    for words in (
        "apd: 24 tokens",
        f"{stats.tokens_per_forward:.2f} tokens per forward over {stats.rounds} passes",
        f"accepted {stats.accepted_tokens} of {stats.checked_tokens} checked",
        f"{100 * stats.prefix_hit_rate:.0f}% of the prefix reused | draft ",
        "verify ",
    ):
        assert words in told.err


def test_blocks_show_what_the_verifier_let_pass(run: Run, models: Any) -> None:
    """Where R is 1, every token of a step but the first."""
    told = run("generate", "hello", *models, "--alpha", 1, "--window", 4, "--schedule", "fixed", "--max-tokens", 8,
               "--stop", "never", "--show-blocks")  # fmt: skip
    assert told.out.count("⟦") == told.out.count("⟧") == 2
    assert not told.out.startswith("⟦")


def test_a_chat_with_apd(run: Run, models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Lines(["hello\n"]))
    told = run("chat", *models, "--max-tokens", 8, "--alpha", 1, "--window", 4, "--schedule", "fixed")
    assert told.code == 0, told.err
    assert "8 tokens" in told.err
    assert "4.00 tokens per forward" in told.err


class Lines(list[str]):
    """What a pipe gives."""

    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", DREAM, "--method", "apd"), "there is no verifier"),
        (("--model", DREAM, "--verifier", SMALL, "--steps", 4), "steps is set, and the method is 'apd': it is a"),
        (("--model", DREAM, "--verifier", SMALL, "--window", 0), "window is 0. It must be an integer of at least"),
        (("--model", DREAM, "--verifier", SMALL, "--window", "every"), "window is 'every'"),
        (("--model", DREAM, "--verifier", SMALL, "--schedule", "even"), "schedule is 'even'. It must be 'fixed' or"),
        (("--model", DREAM, "--verifier", DREAM), "a diffusion language model"),
        (("--model", TARGET, "--verifier", SMALL), "and the model is autoregressive"),
        (("--alpha", 0.5), "alpha is set, and the method is 'dflash': it is a setting of apd"),
    ],
)
def test_what_does_not_go_together_is_one_line(run: Run, arguments: Any, message: str) -> None:
    told = run("generate", "text", *arguments)
    assert (told.code, told.out) == (2, "")
    assert message in told.err
    assert told.err.count("\n") == 1
