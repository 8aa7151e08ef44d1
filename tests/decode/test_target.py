"""What the target refuses, how it reads prompts, and which ids it never draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiled import needs_native, packed
from scripted import constant, plain
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer

from paceline.decode import target as module
from paceline.decode.commit import read_plainly
from paceline.decode.sequence import Reading, Sequence
from paceline.decode.target import Target
from paceline.decode.tree import EMPTY, chain
from paceline.errors import BadRequest, ContextOverflow
from paceline.models.transformer import Transformer
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


PROMPTS = ([1, 2, 3], [7], [9, 8, 7, 6, 5, 4])
SAMPLINGS = (
    Sampling(max_tokens=30),
    Sampling(max_tokens=30, temperature=1.0),
    Sampling(max_tokens=30, temperature=0.6),
)


def read_on(model: Transformer, passes: int, sequences: list[Sequence], ends: tuple[int, ...] = ()) -> list[Reading]:
    """What one call says of each sequence, taken together."""
    found = Target(model, VOCAB - 4, (0, 1), ends).read_on(sequences, passes)
    wholes = []
    for readings in found:
        features = [reading.features for reading in readings if reading.features is not None]
        assert len(features) == len(readings)
        wholes.append(Reading([token for reading in readings for token in reading.tokens], torch.cat(features)))
    return wholes


def prefilled(model: Transformer) -> list[Sequence]:
    target = Target(model, VOCAB - 4, (0, 1))
    found = [target.open(list(each), own, 3, None) for each, own in zip(PROMPTS, SAMPLINGS, strict=True)]
    target.prefill(found)
    return found


@needs_native
@pytest.mark.parametrize("passes", [2, 3, 8])
def test_passes_that_follow_each_other_in_one_call_equal_single_ones(passes: int) -> None:
    model = packed(tiny_spec())
    sequences, others = prefilled(model), prefilled(model)
    found = read_on(model, passes, sequences)
    single = Target(model, VOCAB - 4, (0, 1))
    for turn in range(passes):
        for own, reading in zip(others, single.read(others, [EMPTY] * 3), strict=True):
            whole = found[others.index(own)]
            assert reading.tokens == whole.tokens[turn : turn + 1]
            assert reading.features is not None
            assert whole.features is not None
            assert torch.equal(reading.features, whole.features[turn : turn + 1])
            own.cache.advance(1)
            own.commit(reading.tokens)
    for own, other in zip(sequences, others, strict=True):
        end = other.cache.length
        assert torch.equal(own.cache.room(0)[..., :end, :], other.cache.room(0)[..., :end, :])


@needs_native
def test_no_pass_follows_where_all_have_ended() -> None:
    model = packed(tiny_spec())
    whole = [each.tokens for each in read_on(model, 8, prefilled(model))]
    second = tuple(tokens[1] for tokens in whole)
    assert not {tokens[0] for tokens in whole} & set(second), "else another seed"
    assert [each.tokens for each in read_on(model, 8, prefilled(model), second)] == [own[:2] for own in whole]
    assert [each.tokens for each in read_on(model, 8, prefilled(model), second[:1])] == whole, "the others go on"


@needs_native
def test_filters_and_torch_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = packed(tiny_spec())
    target = Target(model, VOCAB - 4)
    filtered = target.open([1, 2], Sampling(temperature=1.0, top_k=5), 3, None)
    target.prefill([filtered])
    assert len(target.read_on([filtered], 4)[0]) == 1
    in_torch = Target(tiny_transformer(tiny_spec()), VOCAB - 4)
    (plain_one,) = [in_torch.open([1, 2], Sampling(), 3, None)]
    in_torch.prefill([plain_one])
    assert len(in_torch.read_on([plain_one], 4)[0]) == 1


@needs_native
def test_what_was_read_ahead_is_dropped_where_others_are_written() -> None:
    target = Target(packed(tiny_spec()), VOCAB - 4)
    sequence, other = (target.open([1, 2], Sampling(max_tokens=30), 3, None) for _ in range(2))
    target.prefill([sequence, other])
    read_plainly(target, [sequence])
    assert sequence.ahead
    expected = [reading.tokens[0] for reading in sequence.ahead]
    target.read([sequence], [chain([5, 6])])
    assert not sequence.ahead
    read_plainly(target, [other])
    assert [read_plainly(target, [each])[0][0].tokens[0] for each in (sequence, other)] == [expected[0]] * 2


@needs_native
def test_nothing_is_read_beyond_the_end() -> None:
    target = Target(packed(tiny_spec(context_tokens=CONTEXT)), VOCAB - 4)
    sequences = [target.open([1] * 12, Sampling(max_tokens=count), 3, None) for count in (4, 100)]
    target.prefill(sequences)
    passes = [read_plainly(target, [each for each in sequences if each.remaining_tokens])[1] for _ in range(7)]
    assert passes == [3, 0, 0, 4, 0, 0, 0]
    assert [len(each.tokens) for each in sequences] == [16, CONTEXT]
