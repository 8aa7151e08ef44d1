"""The Python API with a diffusion language model: the tiny LLaDA and Dream, with and without a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from talking import DRAFT, END, talking
from tiny import GOLDEN, edit_config

from paceline import LLM, Completion, Infill, Sampling
from paceline.completion import Chunk
from paceline.decode.settings import MethodSettings
from paceline.errors import BadRequest, ConfigError, ContextOverflow, UnsupportedModel

LLADA, DREAM = GOLDEN / "llada-tiny", GOLDEN / "dream-tiny"
IDS = [58, 83, 11, 40]
HOT = {"temperature": 1.0, "seed": 7}
ENDLESS = {END: -100.0}
SETTINGS: list[MethodSettings] = [
    {},
    {"steps": 8, "block_length": 7, "cache": "prefix"},
    {"threshold": 0.2, "block_length": 7},
    {"strategy": "random", "tokens_per_step": 3},
    {"strategy": "left_to_right", "tokens_per_step": 3, "kv_window": 2},
    {"strategy": "left_to_right", "window": 4, "kv_window": 2},
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("dllm")
    return talking(LLADA, place / "llada"), talking(DREAM, place / "dream")


@pytest.fixture(scope="module")
def llada(folders: tuple[Path, Path]) -> LLM:
    return LLM(folders[0], tokens_per_step=3, block_length=7)


@pytest.fixture(scope="module")
def dream(folders: tuple[Path, Path]) -> LLM:
    return LLM(folders[1], method="diffusion")


def answer(llm: LLM, prompt: Any = None, **settings: Any) -> Completion:
    (found,) = llm.generate(IDS if prompt is None else prompt, Sampling(**{"logit_bias": ENDLESS, **settings}))
    return found


def joined(chunks: Iterator[Chunk]) -> tuple[str, list[int]]:
    taken = list(chunks)
    assert [chunk.finish_reason is None for chunk in taken] == [True] * (len(taken) - 1) + [False]
    return "".join(chunk.text for chunk in taken), [token for chunk in taken for token in chunk.token_ids]


# methods


def test_a_diffusion_checkpoint_decodes_by_diffusion(llada: LLM, dream: LLM) -> None:
    assert (llada.method, dream.method, LLM(LLADA).method) == ("diffusion",) * 3
    with pytest.raises(UnsupportedModel, match="diffusion language model"):
        _ = llada.target


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"method": "ar"}, "'ar'"), ({"method": "dflash"}, "'dflash'"), ({"drafter": DRAFT}, "drafter"),
     ({"block_size": 4}, "block_size is set"), ({"steps": 0}, "steps is 0"),
     ({"alpha": 0.7}, "alpha is set, and the method is 'diffusion'"),
     ({"method": "diffusion", "verifier": "x"}, "verifier is 'x'"), ({"remasking": 3}, "remasking is 3")],
)  # fmt: skip
def test_settings_of_other_methods_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        LLM(DREAM, **settings)


# answers


def test_a_completion_accounts_for_its_passes(llada: LLM) -> None:
    """23 tokens: blocks of 7, 7, 7 and 2, three tokens a pass."""
    found = answer(llada, max_tokens=23)
    assert (len(found.token_ids), found.finish_reason) == (23, "length")
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (len(IDS), 23)
    stats = found.stats
    assert [len(round.proposed) for round in found.rounds] == [3, 3, 1] * 3 + [2]
    assert (stats.method, stats.rounds, stats.forward_passes, stats.tokens_per_forward) == ("diffusion", 10, 10, 2.3)
    assert sum(stats.accepted_per_round) == stats.completion_tokens == 23
    assert (stats.drafted_tokens, stats.checked_tokens, stats.accepted_tokens) == (0, 0, 0)
    assert 0 < stats.draft_seconds < stats.total_seconds
    assert stats.verify_seconds == 0
    committed = [token for round in found.rounds for token in round.committed]
    fixed = {at: token for round in found.rounds for at, token in zip(round.positions, round.proposed, strict=True)}
    assert committed == [fixed[place] for place in range(23)] == found.token_ids


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_batch_02_many_are_as_one_by_one(folders: tuple[Path, Path], settings: MethodSettings) -> None:
    """Prompts, lengths, seeds and choices of their own, nothing padded. float32: no near-tie is among these answers."""
    llm = LLM(folders[0], max_batch=3, **settings)
    prompts: list[Any] = ["hello", IDS, [{"role": "user", "content": "hi"}], [9] * 20]
    samplings = [Sampling(max_tokens=n, **HOT, n=1 + n % 2) for n in (1, 8, 13, 22)]
    together = llm.generate(prompts, samplings)
    alone = [each for prompt, one in zip(prompts, samplings, strict=True) for each in llm.generate([prompt], one)]
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert [each.text for each in together] == [each.text for each in alone]
    assert [(each.prompt_index, each.choice_index) for each in together] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (2, 0),
        (2, 1),
        (3, 0),
    ]
    assert together[0].token_ids != together[1].token_ids or together[3].token_ids != together[4].token_ids


@pytest.mark.parametrize("settings", [{}, HOT, {"max_tokens": 1}, {"max_tokens": 3, **HOT}])
def test_the_stream_joins_to_what_generate_gives(llada: LLM, dream: LLM, settings: dict[str, Any]) -> None:
    sampling = Sampling(**{"max_tokens": 20, **settings})
    for llm in (llada, dream):
        (whole,) = llm.generate("hello", sampling)
        assert joined(llm.stream("hello", sampling)) == (whole.text, whole.token_ids)


def test_a_pass_that_settles_nothing_streams_nothing_and_goes_on(dream: LLM) -> None:
    chunks = list(dream.stream(IDS, Sampling(max_tokens=12, logit_bias=ENDLESS)))
    assert len(chunks) == 12
    silent = [chunk for chunk in chunks if not chunk.token_ids]
    assert silent
    assert all(chunk.text == "" and chunk.finish_reason is None for chunk in silent)
    assert all(chunk.round is not None and len(chunk.round.proposed) == 1 for chunk in chunks)


def test_seeds_decide(llada: LLM) -> None:
    first, second = (answer(llada, max_tokens=20, temperature=1.0, seed=seed).token_ids for seed in (1, 2))
    assert first == answer(llada, max_tokens=20, temperature=1.0, seed=1).token_ids
    assert first != second
    drawn = answer(llada, max_tokens=20, temperature=1.0)
    assert answer(llada, max_tokens=20, temperature=1.0, seed=drawn.seed).token_ids == drawn.token_ids


# ends


def test_a_stop_string_ends_wherever_it_falls_in_a_block(llada: LLM) -> None:
    whole = answer(llada, max_tokens=40, **HOT)
    for start in range(1, len(whole.text) - 3, 4):
        stop = whole.text[start : start + 2]
        found = answer(llada, max_tokens=40, stop=[stop], **HOT)
        assert (found.finish_reason, found.text) == ("stop", whole.text[: whole.text.index(stop)])
        assert found.token_ids == whole.token_ids[: len(found.token_ids)]
        assert found.stats.rounds <= whole.stats.rounds


def test_apd_04_an_end_or_stop_token_ends_and_nothing_behind_it_counts(llada: LLM) -> None:
    whole = answer(llada, max_tokens=40, **HOT)
    for place in (0, 1, 6, 7, 20):
        first = whole.token_ids.index(whole.token_ids[place])
        found = answer(llada, max_tokens=40, stop_token_ids=[whole.token_ids[place]], **HOT)
        assert found.token_ids == whole.token_ids[: first + 1]
        assert (found.finish_reason, found.usage.completion_tokens) == ("stop", first + 1)
        assert sum(found.stats.accepted_per_round) == found.stats.completion_tokens == first + 1
    flooded = answer(llada, max_tokens=40, logit_bias={END: 100.0})
    assert (flooded.token_ids, flooded.text, flooded.finish_reason) == ([END], "", "stop")


def test_apd_04_end_tokens_are_committed_last_if_asked_for(folders: tuple[Path, Path]) -> None:
    """With one token a pass, the end token is the last that is fixed, and the text before it is there."""
    asked: dict[str, Any] = {"max_tokens": 20, "logit_bias": {END: 10.0}, **HOT}
    first, last = (answer(LLM(folders[0], end_last=end_last), **asked) for end_last in (False, True))
    assert (first.finish_reason, first.token_ids) == ("stop", [END])
    assert (last.finish_reason, len(last.token_ids), last.token_ids[-1]) == ("stop", 3, END)
    assert [END in round.proposed for round in last.rounds] == [False] * (len(last.rounds) - 1) + [True]


def test_end_tokens_of_tokenizer_and_generation_config_end_it_too(tmp_path: Path) -> None:
    folder = talking(LLADA, tmp_path / "other")
    edit_config(folder, eos_token_id=9)
    (folder / "generation_config.json").write_text('{"eos_token_id": [10]}')
    llm = LLM(folder)
    assert llm.end_token_ids == {9, 10, END}
    for end in (9, 10, END):
        assert answer(llm, max_tokens=5, logit_bias={end: 100.0}).token_ids == [end]


@pytest.mark.parametrize("max_tokens", [1, 2, 6, 7, 8, 15])
def test_exactly_max_tokens_whatever_the_block(llada: LLM, max_tokens: int) -> None:
    found = answer(llada, max_tokens=max_tokens)
    assert (len(found.token_ids), found.finish_reason) == (max_tokens, "length")


def test_close_to_the_context(tmp_path: Path) -> None:
    llm = LLM(talking(LLADA, tmp_path / "short", max_sequence_length=32))
    with pytest.raises(ContextOverflow, match="32 tokens, the model's context is 32"):
        answer(llm, [5] * 32)
    found = answer(llm, [5] * 28, max_tokens=16)
    assert (len(found.token_ids), found.finish_reason) == (4, "length")
    hole = Infill([5] * 10, [6] * 10)
    assert len(answer(llm, hole, max_tokens=12).token_ids) == 12
    with pytest.raises(ContextOverflow, match="Prefix, hole and suffix have 33 tokens"):
        answer(llm, hole, max_tokens=13)


# holes


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_hole_is_filled_to_its_end(folders: tuple[Path, Path], settings: MethodSettings) -> None:
    """With what, tests/oracle says: the golden models hardly look around."""
    prompt = Infill("def add(", "return a")
    for folder in folders:
        llm = LLM(folder, **settings)
        found = answer(llm, prompt, max_tokens=15, seed=7)
        assert (len(found.token_ids), found.finish_reason, found.usage.prompt_tokens) == (15, "length", 16)
        ids = Infill(llm.encode("def add("), llm.encode("return a"))
        assert answer(llm, ids, max_tokens=15, seed=7).token_ids == found.token_ids
        sampling = Sampling(max_tokens=15, seed=7, logit_bias=ENDLESS)
        assert joined(llm.stream(prompt, sampling)) == (found.text, found.token_ids)
        assert llm.generate([IDS, prompt, Infill("a", "b")], sampling)[1].token_ids == found.token_ids


def test_an_end_token_in_the_hole_ends_the_answer(llada: LLM) -> None:
    whole = answer(llada, Infill("ab", "cd"), max_tokens=12)
    found = answer(llada, Infill("ab", "cd"), max_tokens=12, stop_token_ids=[whole.token_ids[4]])
    assert found.token_ids == whole.token_ids[: whole.token_ids.index(whole.token_ids[4]) + 1]
    assert found.finish_reason == "stop"


def test_holes_that_cannot_be_filled(llada: LLM, dream: LLM) -> None:
    with pytest.raises(BadRequest, match="mask token, id 254"):
        answer(llada, Infill("a", [254]), max_tokens=3)
    with pytest.raises(BadRequest, match="token id 256"):
        answer(llada, Infill("a", [256]), max_tokens=3)
    with pytest.raises(BadRequest, match=r"Nothing stands before the hole.*prefix"):
        answer(dream, Infill("", "b"), max_tokens=3)
    assert len(answer(llada, Infill("", "b"), max_tokens=3).token_ids) == 3
    with pytest.raises(BadRequest, match="empty"):
        answer(llada, Infill("", ""), max_tokens=3)
    with pytest.raises(BadRequest, match="no tokenizer"):
        answer(LLM(LLADA), Infill([5], "b"), max_tokens=3)
