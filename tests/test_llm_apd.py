"""The Python API with APD: a tiny Dream and a tiny Qwen2 as its verifier, with and without tokenizers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from talking import DRAFT, END, MASK, TARGET, byte_tokenizer, talking
from tiny import GOLDEN, edit_config, tiny_spec, tiny_transformer, write_checkpoint
from tiny_tokenizers import save

from paceline import LLM, Completion, Infill, Sampling
from paceline.decode.ngram_table import NgramTable, Owner, save_ngram_table
from paceline.decode.settings import MethodSettings
from paceline.errors import BadRequest, CheckpointError, ConfigError, UnsupportedModel, VocabularyMismatch
from paceline.models.diffusion_spec import Diffusion
from paceline.models.load import load_transformer

PAIR = GOLDEN / "apd-tiny"
DREAM, SMALL = PAIR / "dream", PAIR / "qwen2"
CASES = json.loads((PAIR / "cases.json").read_text())
IDS = [58, 83, 11, 40]
HOT = {"temperature": 1.0, "seed": 7}
ENDLESS = {END: -100.0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("apd")
    return talking(DREAM, place / "dream"), talking(SMALL, place / "small")


@pytest.fixture(scope="module")
def apd(folders: tuple[Path, Path]) -> LLM:
    return LLM(folders[0], verifier=folders[1], window=8, kv_window=4)


def answer(llm: LLM, prompt: Any = None, **settings: Any) -> Completion:
    (found,) = llm.generate(IDS if prompt is None else prompt, Sampling(**{"logit_bias": ENDLESS, **settings}))
    return found


# methods


def test_a_verifier_asks_for_apd() -> None:
    assert LLM(DREAM, verifier=SMALL).method == LLM(DREAM, verifier=SMALL, method="apd").method == "apd"
    with pytest.raises(UnsupportedModel, match="diffusion language model"):
        _ = LLM(DREAM, verifier=SMALL).target


@pytest.mark.parametrize("index", range(0, 210, 40))
def test_the_words_of_the_settings_are_the_papers(index: int) -> None:
    """The authors' answers; their prompts are token ids, greedy, with a fixed R."""
    case = [case for case in CASES["cases"] if case["strategy"] == "apd" and case["must_match"]][index]
    seen, recomputed = case["max_lookahead"], case["kv_window"]
    llm = LLM(DREAM, verifier=SMALL, method="apd", alpha=case["R"], schedule="fixed", window=seen, kv_window=recomputed)
    (found,) = llm.generate([CASES["prompts"][case["prompt_index"]]], Sampling(max_tokens=case["max_new_tokens"]))
    assert found.token_ids == case["output_ids"]
    assert found.stats.rounds == case["dllm_forward_passes"]


def test_the_articles_word_for_the_window() -> None:
    words: list[MethodSettings] = [{"window": 5}, {"window_size": 5}, {"window": 2}]
    answers = [answer(LLM(DREAM, verifier=SMALL, **each), max_tokens=20) for each in words]
    one, other, third = (each.stats.accepted_per_round for each in answers)
    assert one == other != third


@pytest.mark.parametrize(
    ("model", "settings", "match"),
    [
        (DREAM, {"method": "apd"}, "method is 'apd', but there is no verifier"),
        (DREAM, {"verifier": SMALL, "method": "diffusion"}, "and the method is 'diffusion', which uses none"),
        (DREAM, {"verifier": SMALL, "drafter": DRAFT}, "a diffusion language model needs none"),
        (DREAM, {"verifier": SMALL, "threshold": 0.9}, "threshold is set, and the method is 'apd'"),
        (DREAM, {"verifier": SMALL, "window": 0}, "window is 0"),
        (DREAM, {"alpha": 0.7}, "alpha is set, and the method is 'diffusion'"),
        (DREAM, {"verifier": DREAM}, "verifier is '.*dream', a diffusion language model: it has no next token"),
        (TARGET, {"verifier": SMALL}, "verifier is '.*qwen2', and the model is autoregressive"),
        (TARGET, {"verifier": SMALL, "method": "apd"}, "method is 'apd', and the model is autoregressive"),
        (TARGET, {"alpha": 0.7}, "alpha is set, and the method is 'ar': it is a setting of apd"),
    ],
)
def test_what_does_not_go_together_is_refused(model: Path, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        LLM(model, **settings)


def test_a_diffusion_model_without_a_mask_token_is_refused(tmp_path: Path) -> None:
    folder = talking(DREAM, tmp_path / "maskless")
    edit_config(folder, mask_token_id=...)
    with pytest.raises(CheckpointError, match="mask_token_id"):
        LLM(folder, verifier=SMALL)


@pytest.mark.parametrize("precision", ["mixed", "half"])
def test_the_verifier_is_as_exact_as_the_model(folders: tuple[Path, Path], precision: Any) -> None:
    llm = LLM(folders[0], verifier=folders[1], precision=precision)
    assert llm.verifier is not None
    assert llm.verifier.dtype == llm.model.dtype
    assert llm.verifier.embed.weight.dtype == llm.model.embed.weight.dtype == torch.bfloat16
    assert len(answer(llm, max_tokens=9).token_ids) == 9


# n-grams


def ngrams_of(folder: Path, verifier: Path, contexts: list[list[int]]) -> Path:
    """A table of the verifier, which says 65 behind each of the contexts."""
    model = load_transformer(verifier)
    tables = torch.tensor(contexts), torch.full((len(contexts), 1), 65), torch.full((len(contexts), 1), 9.0)
    save_ngram_table(NgramTable(Owner.of(verifier, model), *tables, torch.zeros(len(contexts))), folder)
    return folder


def test_a_table_that_never_helps_changes_nothing(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """It has one context, which no text holds."""
    never = ngrams_of(tmp_path, folders[1], [[MASK, MASK]])
    plain, helped = (LLM(folders[0], verifier=folders[1], window=8, ngrams=each) for each in (None, str(never)))
    one, other = (answer(llm, max_tokens=40, **HOT) for llm in (plain, helped))
    assert (one.token_ids, one.text) == (other.token_ids, other.text)
    assert (one.stats.contexts_looked_up, one.stats.context_hit_rate, one.stats.verifier_skips) == (0, 0.0, 0)
    assert (other.stats.contexts_found, other.stats.context_hit_rate, other.stats.verifier_skip_rate) == (0, 0.0, 0.0)
    assert other.stats.contexts_looked_up == sum(len(round.proposed) for round in other.rounds)
    assert [replace(each, draft_seconds=0, verify_seconds=0, contexts_looked_up=0) for each in other.rounds] == [
        replace(each, draft_seconds=0, verify_seconds=0) for each in one.rounds
    ]


@pytest.mark.parametrize("contexts", [256, 90])
def test_batch_02_many_are_as_one_by_one_with_ngrams(folders: tuple[Path, Path], contexts: int, tmp_path: Path) -> None:
    """float32: no near-tie is among these answers. Penalties and bias act on what the table says, too."""
    table = ngrams_of(tmp_path, folders[1], [[token] for token in range(contexts)])
    llm = LLM(folders[0], verifier=folders[1], max_batch=3, ngrams=table)
    prompts: list[Any] = ["hel", [9] * 17, [9] * 40, Infill("def f(", "return a")]
    samplings = [Sampling(max_tokens=n, **HOT, repetition_penalty=1.2, logit_bias={65: -50.0}) for n in (9, 8, 23, 22)]
    together = llm.generate(prompts, samplings)
    alone = [each for prompt, one in zip(prompts, samplings, strict=True) for each in llm.generate([prompt], one)]
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert [each.stats.verifier_skips for each in together] == [each.stats.verifier_skips for each in alone]
    skipped, rounds = (sum(getattr(each.stats, name) for each in alone) for name in ("verifier_skips", "rounds"))
    assert skipped == rounds if contexts == 256 else 0 < skipped < rounds
    assert not any(65 in each.token_ids for each in alone)


def test_the_table_decides_where_the_diffusion_model_has_no_say(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """R is 0: a step keeps its first token, and behind it as many as the table would say."""
    table = ngrams_of(tmp_path, folders[1], [[token] for token in range(256)])
    llm = LLM(folders[0], verifier=folders[1], ngrams=table, alpha=0.0)
    found = answer(llm, max_tokens=30)
    assert {token for round in found.rounds for token in round.reference} == {65}
    assert found.stats.verifier_skip_rate == found.stats.context_hit_rate == 1.0


def test_a_table_of_another_verifier_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    table = ngrams_of(tmp_path / "table", SMALL, [[1]])
    told = r"^ngrams is .* is of another verifier: its tokenizer size is 0, here it is 256"
    with pytest.raises(ConfigError, match=told):
        LLM(folders[0], verifier=folders[1], ngrams=table)
    with pytest.raises(ConfigError, match=r"has no ngrams\.npz"):
        LLM(folders[0], verifier=folders[1], ngrams=tmp_path)
    with pytest.raises(ConfigError, match="ngrams is set, and the method is 'diffusion'"):
        LLM(folders[0], ngrams=table)
    with pytest.raises(ConfigError, match=r"ngrams is 3\. It must be text or a path or null"):
        LLM(folders[0], verifier=folders[1], ngrams=3)  # type: ignore[arg-type]


# vocabularies


def verifier_of(folder: Path, vocab_size: int, *more: str) -> Path:
    """A tiny model with so high a table, and the byte tokenizer with `more` tokens."""
    write_checkpoint(folder, tiny_transformer(tiny_spec(vocab_size=vocab_size), dtype=torch.float32))
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(list(more))
    save(folder, tokenizer, {})
    return folder


def wild(llm: LLM) -> list[int]:
    """Tokens that are nearly uniform over all that may be drawn: 120 of them miss 8 ids of 264 once in 40 tries."""
    samplings = [Sampling(max_tokens=40, temperature=100.0, seed=seed) for seed in range(3)]
    return [token for each in llm.generate([IDS] * 3, samplings) for token in each.token_ids]


@pytest.mark.parametrize(("heights"), [(256, 264), (270, 256), (270, 264)])
def test_tokenizer_03_a_table_of_another_height_is_no_mismatch(tmp_path: Path, heights: tuple[int, int]) -> None:
    spec = tiny_spec(vocab_size=heights[0], diffusion=Diffusion(MASK, 1))
    model = write_checkpoint(tmp_path / "dllm", tiny_transformer(spec, dtype=torch.float32))
    save(model, byte_tokenizer(), {})
    llm = LLM(model, verifier=verifier_of(tmp_path / "small", heights[1]))
    assert 200 < max(wild(llm)) < 256


def test_tokenizer_03_tokens_that_only_the_diffusion_model_has_are_never_drawn(tmp_path: Path) -> None:
    """As of Dream and a small Qwen: the same tokens, and behind them some that the verifier knows nothing of."""
    model = talking(DREAM, tmp_path / "dream")
    small = tmp_path / "small"
    write_checkpoint(small, tiny_transformer(tiny_spec(vocab_size=254), dtype=torch.float32))
    whole = json.loads((model / "tokenizer.json").read_text())
    whole["added_tokens"] = []
    save(small, byte_tokenizer().from_str(json.dumps(whole)), {})
    llm = LLM(model, verifier=small)
    assert max(wild(llm)) < 254
    with pytest.raises(BadRequest, match=r"token id 254.*0 … 253"):
        answer(llm, [MASK])


@pytest.mark.parametrize(
    ("vocab_size", "more", "match"),
    [
        (264, ("<|more|>",), r"256 and 257 tokens .* id 256: None and '<\|more\|>'"),
        (200, (), "vocabularies of 256 and 200 ids; the tokenizer has 256"),
    ],
)
def test_tokenizer_03_other_tokens_are_refused_at_start(
    folders: tuple[Path, Path], tmp_path: Path, vocab_size: int, more: tuple[str, ...], match: str
) -> None:
    with pytest.raises(VocabularyMismatch, match=match):
        LLM(folders[0], verifier=verifier_of(tmp_path / "small", vocab_size, *more))


def test_without_tokenizers_the_smaller_table_bounds_the_ids(tmp_path: Path) -> None:
    small = write_checkpoint(tmp_path / "small", tiny_transformer(tiny_spec(vocab_size=100), dtype=torch.float32))
    llm = LLM(DREAM, verifier=small)
    assert max(wild(llm)) < 100
    with pytest.raises(BadRequest, match="token id 100"):
        answer(llm, [100], logit_bias={})


# answers


def test_a_completion_accounts_for_its_steps(apd: LLM) -> None:
    found = answer(apd, max_tokens=40, **HOT)
    stats, rounds = found.stats, found.rounds
    assert (len(found.token_ids), found.finish_reason, stats.method) == (40, "length", "apd")
    assert [token for round in rounds for token in round.committed] == found.token_ids
    assert stats.rounds == stats.forward_passes == len(rounds)
    assert stats.tokens_per_forward == 40 / len(rounds)
    assert stats.accepted_tokens == 40 - len(rounds)
    assert stats.accepted_tokens <= stats.checked_tokens <= stats.drafted_tokens
    assert stats.drafted_tokens == sum(len(round.proposed) - 1 for round in rounds)
    assert 0.3 < stats.prefix_hit_rate < 1
    assert stats.draft_seconds > 0 < stats.verify_seconds


def test_nine_tenths_of_the_prefix_are_reused_in_256_tokens_behind_100(folders: tuple[Path, Path]) -> None:
    """B5, at the defaults: a step computes the last step's tokens and 15 more anew, and the first one the prompt."""
    llm = LLM(folders[0], verifier=folders[1])
    assert answer(llm, [5] * 100, max_tokens=256, **HOT).stats.prefix_hit_rate > 0.9


@pytest.mark.parametrize(
    "settings",
    [{}, {"alpha": 0.5, "window": None, "kv_window": None}, {"schedule": "fixed", "window": 4, "kv_window": 1}],
    ids=str,
)
def test_batch_02_many_are_as_one_by_one(folders: tuple[Path, Path], settings: MethodSettings) -> None:
    """Prompts, lengths, seeds and choices of their own, nothing padded. float32: no near-tie is among these answers."""
    llm = LLM(folders[0], verifier=folders[1], max_batch=3, **settings)
    prompts: list[Any] = ["hel", [9] * 17, [9] * 40, Infill("def f(", "return a"), [{"role": "user", "content": "hi"}]]
    samplings = [Sampling(max_tokens=n, **HOT, n=1 + n % 2) for n in (1, 8, 13, 22, 5)]
    together = llm.generate(prompts, samplings)
    alone = [each for prompt, one in zip(prompts, samplings, strict=True) for each in llm.generate([prompt], one)]
    assert [(each.token_ids, each.text) for each in together] == [(each.token_ids, each.text) for each in alone]


@pytest.mark.parametrize("settings", [{}, HOT, {"max_tokens": 1}, {"stop": ["e"], **HOT}])
@pytest.mark.parametrize("prompt", ["hello", Infill("def f(", "return a")], ids=str)
def test_the_stream_joins_to_what_generate_gives(apd: LLM, prompt: Any, settings: dict[str, Any]) -> None:
    sampling = Sampling(**{"max_tokens": 20, **settings})
    (whole,), chunks = apd.generate([prompt], sampling), list(apd.stream(prompt, sampling))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [token for chunk in chunks for token in chunk.token_ids] == whole.token_ids


def test_apd_04_nothing_is_drafted_behind_any_end_token(tmp_path: Path) -> None:
    """Those of config, tokenizer, generation_config and request alike."""
    folder = talking(DREAM, tmp_path / "dream")
    edit_config(folder, eos_token_id=9)
    (folder / "generation_config.json").write_text('{"eos_token_id": [10]}')
    llm = LLM(folder, verifier=talking(SMALL, tmp_path / "small"))
    for end in (9, 10, END, 30):
        found = answer(llm, max_tokens=20, logit_bias={end: 100.0}, stop_token_ids=[30])
        assert (found.token_ids, found.text, found.finish_reason) == ([end], "", "stop")
        assert [len(round.proposed) for round in found.rounds] == [1]


# holes


def test_a_hole_is_filled_to_its_end(folders: tuple[Path, Path]) -> None:
    """With what, tests/oracle says."""
    llm = LLM(folders[0], verifier=folders[1], window=4, kv_window=2)
    prompt = Infill("def add(", "return a")
    found = answer(llm, prompt, max_tokens=15, seed=7)
    assert (len(found.token_ids), found.finish_reason, found.usage.prompt_tokens) == (15, "length", 16)
    ids = Infill(llm.encode("def add("), llm.encode("return a"))
    assert answer(llm, ids, max_tokens=15).token_ids == found.token_ids
    with pytest.raises(BadRequest, match="Nothing stands before the hole"):
        answer(llm, Infill("", "b"), max_tokens=3)
