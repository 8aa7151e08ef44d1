"""What target, drafter and tokenizer have to agree on before anything is decoded, and what ends an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from talking import DRAFT, TARGET, byte_tokenizer, talking_pair
from tiny import edit_config
from tiny_tokenizers import save

from paceline import LLM, Sampling
from paceline.errors import VocabularyMismatch
from paceline.zoo.catalog import BUNDLED_DRAFTER, bundled_names


def test_a_drafter_with_a_tokenizer_of_its_own_must_have_the_same_tokens(tmp_path: Path) -> None:
    """tokenizer-03, second pair: refused at start, with the first differing token."""
    target, draft = talking_pair(tmp_path)
    save(draft, byte_tokenizer(), {})
    assert LLM(target, drafter=draft).method == "dflash"
    other = byte_tokenizer()
    other.add_special_tokens(["<|more|>"])
    save(draft, other, {})
    with pytest.raises(VocabularyMismatch, match=r"256 and 257 .* id 256: None and '<\|more\|>'"):
        LLM(target, drafter=draft)


def test_without_a_tokenizer_the_drafters_own_size_changes_nothing(tmp_path: Path) -> None:
    _, draft = talking_pair(tmp_path)
    edit_config(draft, vocab_size=255)
    fast, plain = LLM(TARGET, drafter=draft), LLM(TARGET)
    assert fast.target.usable_tokens == plain.target.usable_tokens == 256


def test_generation_config_may_name_more_end_tokens(tmp_path: Path) -> None:
    """Chat models often declare the token that ends a turn there only."""
    target, _ = talking_pair(tmp_path)
    prompt = list(range(20))
    answer = LLM(target).generate(prompt, Sampling(max_tokens=8))[0].token_ids
    (target / "generation_config.json").write_text(json.dumps({"eos_token_id": [answer[3], 255]}))
    cut = LLM(target, drafter=DRAFT).generate(prompt, Sampling(max_tokens=8))[0]
    assert cut.token_ids == answer[: answer.index(answer[3]) + 1]
    assert cut.finish_reason == "stop"


def test_the_bundled_pair_decodes_like_its_target_alone() -> None:
    """The main job, on the real weights: greedy and sampled, the same ids, and more than one token per round."""
    assert BUNDLED_DRAFTER in bundled_names()
    chosen, fixed, plain = LLM(), LLM(block_size=16), LLM(method="ar")
    prompt = [{"role": "user", "content": "Write a short mail: ask for two days of leave."}]
    for sampling in (Sampling(max_tokens=48), Sampling(max_tokens=48, temperature=0.7, seed=3)):
        ours, chain, own = (each.generate([prompt], sampling)[0] for each in (chosen, fixed, plain))
        assert ours.token_ids == chain.token_ids == own.token_ids
        assert chain.stats.acceptance_length > 1.5
