"""The Python API, line by line. Cases named area-NN are reports of faults in other engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from talking import DRAFT, END, TARGET, talking_pair

from paceline import LLM, Completion, Infill, Sampling, Stats, Usage
from paceline.completion import Chunk
from paceline.errors import BadRequest, CheckpointError, ConfigError, ContextOverflow

IDS = [58, 83, 11, 40, 118, 45, 109, 90]
HOT = {"temperature": 1.0, "seed": 7}
CHAT = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def mute() -> LLM:
    """Without a tokenizer."""
    return LLM(TARGET, drafter=DRAFT)


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM(TARGET, method="ar")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return talking_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def llm(pair: tuple[Path, Path]) -> LLM:
    return LLM(pair[0], drafter=pair[1])


@pytest.fixture(scope="module")
def blocks() -> dict[int, LLM]:
    return {size: LLM(TARGET, drafter=DRAFT, block_size=size) for size in (1, 8, 16, 64)}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """A context of 64 tokens, two end tokens."""
    target, draft = talking_pair(
        tmp_path_factory.mktemp("short"), max_position_embeddings=64, eos_token_id=[END, IDS[0]]
    )
    return LLM(target, drafter=draft, block_size=16)


def answer(llm: LLM, prompt: Any = None, **settings: Any) -> Completion:
    found = llm.generate(IDS if prompt is None else prompt, Sampling(**settings))
    assert len(found) == 1
    return found[0]


def joined(chunks: Iterator[Chunk]) -> tuple[str, list[int]]:
    taken = list(chunks)
    assert [chunk.finish_reason is None for chunk in taken] == [True] * (len(taken) - 1) + [False]
    return "".join(chunk.text for chunk in taken), [token for chunk in taken for token in chunk.token_ids]


# prompts


def test_one_prompt_of_each_kind_gives_a_list_of_one(llm: LLM) -> None:
    for prompt in ("hello", [5, 6, 7], (5, 6, 7), CHAT, tuple(CHAT)):
        (completion,) = llm.generate(prompt, Sampling(max_tokens=3))
        assert isinstance(completion, Completion)
        assert (completion.prompt_index, completion.choice_index) == (0, 0)
        assert completion.usage.prompt_tokens == len(llm.encode(prompt))


def test_a_list_of_prompts_may_mix_kinds_and_keeps_its_order(llm: LLM) -> None:
    prompts = ["hello", [5, 6, 7], CHAT, "bye"]
    together = llm.generate(prompts, Sampling(max_tokens=12))
    assert [completion.prompt_index for completion in together] == [0, 1, 2, 3]
    for prompt, completion in zip(prompts, together, strict=True):
        assert completion.token_ids == answer(llm, prompt, max_tokens=12).token_ids


def test_text_and_its_ids_are_the_same_prompt(llm: LLM) -> None:
    assert answer(llm, "hello", max_tokens=9).token_ids == answer(llm, llm.encode("hello"), max_tokens=9).token_ids


def test_chat_messages_go_through_the_template(llm: LLM) -> None:
    assert llm.encode(CHAT) == llm.encode("user\nhi<|im_end|>\nassistant\n")
    hostile = llm.encode([{"role": "user", "content": "<|im_end|>"}])
    assert hostile.count(END) == 1


def test_one_sampling_for_each_prompt(llm: LLM) -> None:
    first, second = llm.generate(["a", "b"], [Sampling(max_tokens=2), Sampling(max_tokens=5)])
    assert (len(first.token_ids), len(second.token_ids)) == (2, 5)
    with pytest.raises(BadRequest, match="2 prompts and 1 samplings"):
        llm.generate(["a", "b"], [Sampling()])


def test_without_settings_the_answer_is_greedy(llm: LLM) -> None:
    assert llm.generate("hello")[0].token_ids == answer(llm, "hello", max_tokens=256).token_ids


def test_more_prompts_than_places_in_the_batch(pair: tuple[Path, Path], llm: LLM) -> None:
    prompts = [[token, 5, 6] for token in range(7)]
    narrow = LLM(pair[0], drafter=pair[1], max_batch=2)
    expected = [completion.token_ids for completion in llm.generate(prompts, Sampling(max_tokens=10))]
    assert [completion.token_ids for completion in narrow.generate(prompts, Sampling(max_tokens=10))] == expected


# completions


def test_a_completion_accounts_for_its_tokens(pair: tuple[Path, Path]) -> None:
    llm = LLM(pair[0], drafter=pair[1], block_size=8)  # with auto, a busy machine may choose not to draft
    found = answer(llm, max_tokens=40)
    assert found.finish_reason == "length"
    assert found.usage == Usage(prompt_tokens=len(IDS), completion_tokens=40)
    assert found.usage.total_tokens == len(IDS) + 40
    stats = found.stats
    assert isinstance(stats, Stats)
    assert stats.method == llm.method == "dflash"
    assert stats.rounds == len(stats.accepted_per_round) == len(found.rounds) < 39
    assert sum(stats.accepted_per_round) == len(found.token_ids) - 1
    assert stats.acceptance_length == pytest.approx(39 / stats.rounds)
    assert stats.accepted_tokens + stats.rounds >= 39
    assert stats.accepted_tokens <= stats.checked_tokens <= stats.drafted_tokens
    assert 0 < stats.draft_seconds + stats.verify_seconds < stats.total_seconds
    assert stats.tokens_per_second == pytest.approx(40 / stats.total_seconds)


@pytest.mark.parametrize("settings", [{}, {"block_size": 8}])
def test_rounds_tell_how_the_tokens_came(pair: tuple[Path, Path], settings: dict[str, Any]) -> None:
    found = answer(LLM(pair[0], drafter=pair[1], **settings), max_tokens=40)
    assert [token for round in found.rounds for token in round.committed] == found.token_ids[1:]
    for round in found.rounds:
        path = round.agreed[: round.accepted]
        last = path[-1] if path else -1
        assert round.committed[: round.accepted] == tuple(round.proposed[node] for node in path)
        assert round.committed[round.accepted :] in ((), (round.reference[last + 1],))
        assert len(round.reference) == len(round.proposed) + 1


def test_plain_decoding_has_a_round_for_each_token(plain: LLM) -> None:
    stats = answer(plain, max_tokens=9).stats
    assert (stats.method, stats.rounds, stats.accepted_per_round) == ("ar", 8, (1,) * 8)
    assert (stats.drafted_tokens, stats.checked_tokens, stats.accepted_tokens, stats.draft_seconds) == (0, 0, 0, 0.0)


def test_the_stop_token_is_in_the_ids_and_not_in_the_text(llm: LLM) -> None:
    whole = answer(llm, max_tokens=40)
    for place in (0, 1, 7, 20):
        token = whole.token_ids[place]
        first = whole.token_ids.index(token)
        found = answer(llm, max_tokens=40, stop_token_ids=[token])
        assert found.token_ids == whole.token_ids[: first + 1]
        assert found.finish_reason == "stop"
        assert found.usage.completion_tokens == first + 1
        assert llm.tokenizer is not None
        assert found.text == llm.tokenizer.decode(found.token_ids[:-1])
        assert sum(found.stats.accepted_per_round) == first


def test_every_end_token_of_the_model_ends_the_answer(short: LLM) -> None:
    assert short.end_token_ids == {END, IDS[0]}
    ending = answer(short, "x", max_tokens=50, logit_bias={IDS[0]: 100.0})
    assert (ending.token_ids, ending.text, ending.finish_reason) == ([IDS[0]], "", "stop")


def test_a_stop_string_is_cut_out_wherever_it_falls(llm: LLM) -> None:
    whole = answer(llm, max_tokens=60, **HOT)
    for start in range(1, 14, 4):
        stop = whole.text[start : start + 3]
        found = answer(llm, max_tokens=60, stop=[stop, "never"], **HOT)
        assert found.finish_reason == "stop"
        assert found.text == whole.text[: whole.text.index(stop)]
        assert found.token_ids == whole.token_ids[: len(found.token_ids)]
        assert joined(llm.stream(IDS, Sampling(max_tokens=60, stop=stop, **HOT))) == (found.text, found.token_ids)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 15, 16, 17, 40])
def test_stop_04_exactly_max_tokens_whatever_the_block(blocks: dict[int, LLM], max_tokens: int) -> None:
    whole = answer(blocks[1], max_tokens=40).token_ids
    for block_size, llm in blocks.items():
        found = answer(llm, max_tokens=max_tokens)
        assert found.token_ids == whole[:max_tokens]
        assert found.finish_reason == "length"
        assert found.usage.completion_tokens == max_tokens
        assert found.stats.accepted_tokens <= found.stats.drafted_tokens
        assert sum(found.stats.accepted_per_round) == max_tokens - 1
        assert all(len(round.proposed) < block_size for round in found.rounds)


def test_server_03_close_to_the_context(short: LLM) -> None:
    for length in (64, 70):
        with pytest.raises(ContextOverflow, match=f"{length} tokens.*64 tokens"):
            answer(short, [5] * length, max_tokens=1)
    for max_tokens in (4, 16):  # room for 4: the answer ends as "length", the prompt is never cut
        found = answer(short, [5] * 60, max_tokens=max_tokens)
        assert (len(found.token_ids), found.finish_reason) == (4, "length")
        assert found.usage.total_tokens == 64
    assert len(answer(short, [5] * 63, max_tokens=9).token_ids) == 1


# equality


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.3, "seed": 1},
        {"temperature": 1.0, "seed": 2, "top_k": 5},
        {"temperature": 2.0, "seed": 3, "top_p": 0.8, "min_p": 0.01},
        {"temperature": 1.0, "seed": 4, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5},
        {"temperature": 0.0, "frequency_penalty": 1.0, "logit_bias": {3: 5.0, 4: -100.0}},
    ],
)
def test_dflash_says_what_plain_decoding_says(mute: LLM, plain: LLM, settings: dict[str, Any]) -> None:
    sampling = Sampling(max_tokens=32, **settings)
    prompts = [IDS, [7], [9, 8] * 20]
    expected = [completion.token_ids for completion in plain.generate(prompts, sampling)]
    assert [completion.token_ids for completion in mute.generate(prompts, sampling)] == expected
    assert [answer_.token_ids for prompt in prompts for answer_ in mute.generate([prompt], sampling)] == expected


def test_half_precision_decodes() -> None:
    found = answer(LLM(TARGET, drafter=DRAFT, precision="half"), max_tokens=20)
    assert len(found.token_ids) == 20


# streaming


@pytest.mark.parametrize("settings", [{}, HOT, {"max_tokens": 1}, {"max_tokens": 3, **HOT}])
def test_the_stream_joins_to_what_generate_gives(llm: LLM, settings: dict[str, Any]) -> None:
    sampling = Sampling(**{"max_tokens": 40, **settings})
    for prompt in ("hello", IDS, CHAT):
        whole = llm.generate([prompt], sampling)[0]
        assert joined(llm.stream(prompt, sampling)) == (whole.text, whole.token_ids)


def test_a_stream_has_the_prompt_pass_first_and_then_its_rounds(llm: LLM) -> None:
    first, *others = llm.stream("hello", Sampling(max_tokens=30))
    assert first.round is None
    assert len(first.token_ids) == 1
    assert all(chunk.round is not None and chunk.round.committed == chunk.token_ids for chunk in others)


def test_a_stream_refuses_at_once(llm: LLM) -> None:
    with pytest.raises(BadRequest, match="one answer"):
        llm.stream("hello", Sampling(n=2))
    with pytest.raises(BadRequest):
        llm.stream([], Sampling())


def test_an_abandoned_stream_leaves_nothing_behind(llm: LLM) -> None:
    expected = answer(llm, "hello", max_tokens=20).token_ids
    next(iter(llm.stream("other", Sampling(max_tokens=100))))
    assert answer(llm, "hello", max_tokens=20).token_ids == expected


# seeds and choices


def test_sampling_04_seeds_do_not_depend_on_neighbours(llm: LLM) -> None:
    a = Sampling(max_tokens=24, seed=7, temperature=1.0)
    c = Sampling(max_tokens=24, temperature=1.0, n=4)
    d = Sampling(max_tokens=24)
    alone, greedy = answer(llm, max_tokens=24, **HOT).token_ids, answer(llm, max_tokens=24).token_ids
    first, second = llm.generate([IDS, IDS], [a, a])
    assert first.token_ids == second.token_ids == alone
    mixed = llm.generate([IDS, IDS, IDS], [a, c, d])
    assert mixed[0].token_ids == alone
    assert mixed[-1].token_ids == greedy
    runs = [[choice.token_ids for choice in llm.generate([IDS], c)] for _ in range(2)]
    # Each choice has over 20 bits of entropy here: equal by chance in less than one of 100,000 runs.
    assert runs[0] != runs[1]
    assert len({tuple(tokens) for tokens in runs[0]}) > 1


def test_choices_come_in_order_and_can_be_had_alone(llm: LLM) -> None:
    together = llm.generate([IDS, "b"], Sampling(max_tokens=16, n=3, **HOT))
    places = [(completion.prompt_index, completion.choice_index) for completion in together]
    assert places == [(prompt, choice) for prompt in range(2) for choice in range(3)]
    assert len({tuple(completion.token_ids) for completion in together[:3]}) == 3
    assert together[0].seed == 7
    for completion in together[:3]:
        alone = answer(llm, max_tokens=16, temperature=1.0, seed=completion.seed)
        assert alone.token_ids == completion.token_ids


def test_a_missing_seed_is_drawn_and_reported(llm: LLM) -> None:
    found = answer(llm, max_tokens=16, temperature=1.0)
    assert answer(llm, max_tokens=16, temperature=1.0, seed=found.seed).token_ids == found.token_ids


# without a tokenizer


def test_a_folder_without_a_tokenizer_works_with_ids(mute: LLM, llm: LLM) -> None:
    found = answer(mute, max_tokens=30)
    assert mute.tokenizer is None
    assert found.text == ""
    assert found.token_ids == answer(llm, max_tokens=30).token_ids
    assert joined(mute.stream(IDS, Sampling(max_tokens=30))) == ("", found.token_ids)


@pytest.mark.parametrize(("prompt", "settings"), [("hello", {}), (CHAT, {}), (IDS, {"stop": "a"})])
def test_without_a_tokenizer_text_is_refused(mute: LLM, prompt: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="no tokenizer") as caught:
        answer(mute, prompt, **settings)
    assert caught.value.remedy


# errors


def test_a_hole_is_refused(llm: LLM) -> None:
    with pytest.raises(BadRequest, match=r"has a suffix.*Dream or LLaDA"):
        llm.generate(Infill("a", "b"))
    assert answer(llm, Infill("hello", ""), max_tokens=5).token_ids == answer(llm, "hello", max_tokens=5).token_ids


@pytest.mark.parametrize("prompt", [[], "", [256], [-1], [5, 10**9], 5, None, 1.5, {"role": "user"}, [True], object()])
def test_prompts_that_cannot_be_served(llm: LLM, prompt: Any) -> None:
    with pytest.raises(BadRequest):
        llm.generate(prompt)


def test_nothing_is_decoded_where_one_of_many_prompts_is_bad(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.llm.run", lambda *_: pytest.fail("decoded"))
    with pytest.raises(BadRequest, match="token id 256"):
        llm.generate([IDS, [256]])
    with pytest.raises(BadRequest, match="logit_bias"):
        llm.generate(IDS, Sampling(logit_bias={256: 1.0}))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"method": "magic"}, "magic"), ({"method": "dflash"}, "no drafter"), ({"precision": "int3"}, "int3"),
        ({"device": "warp"}, "warp"), ({"verifier": "x"}, "verifier"), ({"candidate_num": 0}, "candidate_num"),
        ({"method": "lookup", "drafter": DRAFT}, "uses none"), ({"lookup": 3}, "lookup is set"),
        ({"max_batch": 0}, "max_batch"), ({"drafter": DRAFT, "block_size": 0}, "block_size"),
        ({"drafter": DRAFT, "block_size": 65}, "block_size"), ({"profile": "phone"}, "profile is 'phone'"),
        ({"explain": "yes"}, "explain is 'yes'"), ({"explain": 1}, "explain is 1"),
        ({"dflash_params": {"overlap": 99}}, "dflash_params.overlap is 99"), ({"apd_params": 3}, "apd_params is 3"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        LLM(TARGET, **settings)
    assert caught.value.remedy


def test_models_that_are_not_there_or_do_not_fit(tmp_path: Path) -> None:
    for model in ("no-such-model", tmp_path):
        with pytest.raises(ConfigError, match=f"model is '{model}'"):
            LLM(model)
    with pytest.raises(ConfigError, match=r"drafter is .*\. A drafter must be one of: DFlashDraftModel"):
        LLM(TARGET, drafter=TARGET)
    with pytest.raises(CheckpointError, match="is a DFlash drafter"):
        LLM(DRAFT)


def test_method_in_effect(plain: LLM, mute: LLM) -> None:
    assert (plain.method, mute.method, LLM(TARGET).method) == ("ar", "dflash", "ar")
    assert LLM(TARGET, method="lookup").method == "lookup"


def test_a_profile_is_beneath_the_keywords() -> None:
    def facts(**settings: Any) -> tuple[object, ...]:
        llm = LLM(TARGET, drafter=DRAFT, **settings)
        own: Any = llm.decoder
        return llm.model.embed.weight.dtype, llm.max_batch, own.settings.block_size, own.settings.diffusion_steps

    assert facts(profile="edge") == (torch.bfloat16, 1, 8, 4)
    assert facts(profile="cloud") == (torch.bfloat16, 8, 16, 6)
    assert facts(profile="edge", precision="exact", max_batch=3, block_size=5) == (torch.float32, 3, 5, 4)
    assert facts(profile="edge", dflash_params={"diffusion_steps": 2}, block_size=5) == (torch.bfloat16, 1, 5, 2)
    assert LLM(TARGET, profile="cloud").method == "ar"  # what a profile says of blocks does not count there


def test_a_section_counts_for_its_method_alone() -> None:
    sections: Any = {"dflash_params": {"block_size": 12, "overlap": 3}, "apd_params": {"alpha": 0.6, "window_size": 8}}
    own: Any = LLM(TARGET, drafter=DRAFT, **sections).decoder
    assert (own.settings.block_size, own.settings.overlap) == (12, 3)
    assert LLM(TARGET, method="ar", **sections).method == "ar"
    with pytest.raises(ConfigError, match=r"dflash_params.block_size is 12 and block_size is 4\."):
        LLM(TARGET, drafter=DRAFT, block_size=4, **sections)


def test_what_plain_decoding_does_not_use_is_refused_where_it_was_asked_for() -> None:
    assert LLM(method="ar").drafter is None  # that of the bundled target is not asked for
    for other in ({"drafter": DRAFT}, {"block_size": 4}):
        with pytest.raises(ConfigError, match=f"{next(iter(other))} is .*, and the method is 'ar'"):
            LLM(TARGET, method="ar", **other)


def test_lookup_gives_plain_decodings_text_and_follows_a_file(pair: tuple[Path, Path], tmp_path: Path) -> None:
    plain = LLM(pair[0], method="ar")
    letters = Sampling(max_tokens=40, logit_bias=dict.fromkeys(plain.encode("abcdefghijklmnopqrstuvwxyz"), 60.0))
    wanted = plain.generate("hello", letters)[0]
    (tmp_path / "known.txt").write_text(f"hello{wanted.text}", encoding="utf-8")
    ways: list[dict[str, Any]] = [{"method": "lookup"}, {"drafter": pair[1], "block_size": 8, "lookup": 8}]
    for way in ways:
        alone = LLM(pair[0], **way).generate("hello", letters)[0]
        helped = LLM(pair[0], lookup_file=tmp_path / "known.txt", **way).generate("hello", letters)[0]
        assert alone.token_ids == helped.token_ids == wanted.token_ids
        assert alone.stats.method == way.get("method", "dflash")
        assert helped.stats.acceptance_length > max(5.0, alone.stats.acceptance_length)


def test_a_known_text_needs_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "known.txt").write_text("text")
    with pytest.raises(ConfigError, match="the checkpoint has no tokenizer"):
        LLM(TARGET, method="lookup", lookup_file=tmp_path / "known.txt")


def test_a_device_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigError, match="device 'meta' computes nothing"):
        LLM(device="meta")


def test_integers_of_other_libraries_are_integers_everywhere(pair: tuple[Path, Path]) -> None:
    four, ids = np.int64(4), [np.int32(token) for token in IDS]
    found = LLM(pair[0], drafter=pair[1], max_batch=four, block_size=four, dflash_params={"overlap": np.uint8(2)})
    assert type(found.max_batch) is int
    want = answer(found, IDS, max_tokens=4, seed=3)
    assert answer(found, ids, max_tokens=four, seed=np.int64(3)).token_ids == want.token_ids
    assert found.generate([ids, ids], Sampling(max_tokens=four))[1].token_ids == want.token_ids
    for switch in (True, np.bool_(True)):
        with pytest.raises(ConfigError, match=r"block_size is .*True"):
            LLM(pair[0], drafter=pair[1], block_size=switch)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"dflash_params": {"block_size": 4, "overlap": 9}},
            "dflash_params.overlap is 9, and dflash_params.block_size is 4: the largest that has an effect is 2.",
        ),
        ({"block_size": 2, "overlap": 1}, "overlap is 1, and block_size is 2: it has no effect."),
        (
            {"profile": "edge", "overlap": 7},
            "overlap is 7, and dflash_params.block_size is 8 in profile edge: the larg",
        ),
        (
            {"dflash_params": {"lookup": 4, "prompt_lookup_max": 2}, "prompt_lookup_min": 3},
            "prompt_lookup_min is 3, and dflash_params.prompt_lookup_max is 2. The first must not be greater.",
        ),
    ],
)
def test_settings_at_odds_are_told_with_their_section(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LLM(TARGET, drafter=DRAFT, **settings)
    assert str(caught.value).startswith(message)
    assert LLM(TARGET, drafter=DRAFT, profile="cloud", block_size=2).method == "dflash"
