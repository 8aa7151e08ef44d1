"""What the target refuses, how it reads prompts, and which ids it never draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scripted import constant, plain
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer

from paceline.decode import target as module
from paceline.decode.sequence import Sequence
from paceline.decode.target import Target
from paceline.decode.tree import chain
from paceline.errors import BadRequest, ContextOverflow
from paceline.request import Sampling

VOCAB, CONTEXT = 64, 20


@pytest.fixture
def target() -> Target:
    return Target(tiny_transformer(tiny_spec(context_tokens=CONTEXT)), VOCAB - 4, taps=(0, 1))


def opened(target: Target, prompt: list[int], **sampling: Any) -> Sequence:
    return target.open(prompt, Sampling(**sampling), 3, None)


@pytest.mark.parametrize(
    ("prompt", "sampling", "named"),
    [
        ([], {}, "prompt"),
        ([1, VOCAB - 4], {}, "60"),
        ([-1], {}, "-1"),
        ([1], {"logit_bias": {VOCAB - 4: 1.0}}, "60"),
    ],
)
def test_refused(target: Target, prompt: list[int], sampling: dict[str, Any], named: str) -> None:
    with pytest.raises(BadRequest, match=named) as error:
        target.check(prompt, Sampling(**sampling))
    assert error.value.http_status == 400


def test_a_prompt_must_leave_room_for_one_token(target: Target) -> None:
    target.check([1] * (CONTEXT - 1), Sampling())
    with pytest.raises(ContextOverflow, match=r"20 tokens.*20 tokens"):
        target.check([1] * CONTEXT, Sampling())


def test_the_limit_is_the_budget_or_the_context(target: Target) -> None:
    assert opened(target, [1, 2], max_tokens=5).limit_tokens == 7
    assert opened(target, [1, 2], max_tokens=500).limit_tokens == CONTEXT
    assert opened(target, [1, 2], max_tokens=500).remaining_tokens == CONTEXT - 2


def test_counts_are_kept_only_for_penalties(target: Target) -> None:
    assert opened(target, [1]).counts is None
    assert opened(target, [1], presence_penalty=0.5).counts is not None


@pytest.mark.parametrize("rows", [1, 3, 5, 12, 100])
def test_a_prompt_read_in_parts_equals_one_pass(target: Target, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = list(range(12))
    cache = tiny_cache(target.model)
    whole = run_flat(target.model, [prompt], [cache], target.taps)
    monkeypatch.setattr(module, "_PREFILL_ROWS", rows)
    sequence = opened(target, prompt)
    (features,) = target.prefill([sequence])
    assert features is not None
    assert whole.features is not None
    torch.testing.assert_close(features, whole.features, atol=1e-12, rtol=0)
    assert sequence.tokens[12:] == target.model.head(whole.hidden[-1:])[:, :60].argmax(-1).tolist()
    for layer in (0, 1):
        for ours, expected in zip(sequence.cache.view(layer), cache.view(layer), strict=True):
            torch.testing.assert_close(ours, expected, atol=1e-12, rtol=0)


def test_reading_gives_the_next_token_behind_every_row_and_keeps_nothing(target: Target) -> None:
    sequences = [opened(target, prompt) for prompt in ([1, 2, 3], [9])]
    target.prefill(sequences)
    drafts = [[4, 5], []]
    readings = target.read(sequences, [chain(draft) for draft in drafts])
    for sequence, draft, reading in zip(sequences, drafts, readings, strict=True):
        assert sequence.cache.length == sequence.prompt_tokens
        rows = [*sequence.tokens, *draft]
        output = run_flat(target.model, [rows], [tiny_cache(target.model)], target.taps)
        behind = slice(sequence.prompt_tokens, None)
        assert reading.tokens == target.model.head(output.hidden[behind])[:, :60].argmax(-1).tolist()
        assert reading.features is not None
        assert output.features is not None
        torch.testing.assert_close(reading.features, output.features[behind], atol=1e-12, rtol=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 100.0])
def test_padding_of_the_vocabulary_is_never_drawn(temperature: float) -> None:
    """Though the model likes it best."""
    decoder = plain(constant([0.0] * 60 + [30.0] * 4), usable=60)
    sequence = decoder.open([1], Sampling(temperature=temperature, max_tokens=100), 3)
    decoder.prefill([sequence])
    while sequence.remaining_tokens > 0:
        decoder.step([sequence])
    assert max(sequence.tokens) < 60


def test_banned_ids(target: Target) -> None:
    whole = Target(target.model, VOCAB)
    assert whole.banned() is None
    banned = target.banned(5)
    assert banned is not None
    assert banned.tolist() == [60, 61, 62, 63, 5]
