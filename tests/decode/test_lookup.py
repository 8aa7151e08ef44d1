"""Lookup: text that repeats itself is accepted in long runs, other text costs rounds of plain decoding."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import answer_all, chain, drafter_of

from paceline.decode.dflash import DFlash
from paceline.decode.lookup import PromptLookup
from paceline.decode.speculation import Lookup, Speculation
from paceline.decode.suffix_index import SuffixIndex
from paceline.decode.target import Target
from paceline.engine.loop import Answer, Job
from paceline.request import Sampling


def lookup(model: Any, known: list[int] | None = None, **settings: Any) -> PromptLookup:
    own = Lookup(**{"prompt_lookup_num_tokens": 10, "prompt_lookup_min": 2, "lookup_factor": 9.0, **settings})
    index = None if known is None else SuffixIndex(known, own.prompt_lookup_max)
    return PromptLookup(Target(model, 64), own, index)


def length(answer: Answer[Any]) -> float:
    return answer.completion().stats.acceptance_length


@pytest.mark.parametrize("period", [1, 2, 3, 17])
def test_a_model_that_repeats_itself_is_followed_in_long_runs(period: int) -> None:
    job = Job((1,), Sampling(max_tokens=120), 0)
    answer = answer_all(PromptLookup(Target(chain({period: 1}), 64)), [job])[0]
    assert answer.token_ids == [1 + place % period for place in range(1, 121)]
    assert length(answer) > 3


def test_what_the_prompt_says_already_takes_rounds_of_a_whole_candidate() -> None:
    answer = answer_all(lookup(chain({}), candidate_num=1), [Job((*range(60), 5, 6), Sampling(max_tokens=45), 0)])[0]
    assert answer.token_ids == list(range(7, 52))
    assert [len(round.committed) for round in answer.rounds] == [11, 11, 11, 11]
    assert [round.accepted for round in answer.rounds] == [10, 10, 10, 10]
    assert answer.rounds[0].proposed == tuple(range(8, 18))
    assert answer.completion().stats.method == "lookup"


def test_where_nothing_repeats_a_round_is_one_of_plain_decoding() -> None:
    answer = answer_all(lookup(chain({})), [Job((1,), Sampling(max_tokens=9), 0)])[0]
    assert {(round.proposed, round.accepted, round.checked) for round in answer.rounds} == {((), 0, 0)}
    assert length(answer) == 1.0


def test_the_last_candidate_is_no_deeper_than_tokens_may_be_committed() -> None:
    answer = answer_all(lookup(chain({})), [Job((*range(60), 5, 6), Sampling(max_tokens=14), 0)])[0]
    assert [len(round.proposed) for round in answer.rounds] == [10, 2]
    assert [len(round.committed) for round in answer.rounds] == [11, 2]


def test_a_known_text_is_followed_from_the_first_token_on() -> None:
    job = Job((5, 6), Sampling(max_tokens=30), 0)
    alone = answer_all(lookup(chain({})), [job])[0]
    helped = answer_all(lookup(chain({}), list(range(60))), [job])[0]
    assert alone.token_ids == helped.token_ids == list(range(7, 37))
    assert (length(alone), length(helped) > 9) == (1.0, True)


def test_dflash_reads_what_followed_earlier_beside_its_drafts() -> None:
    model = chain({})
    drafter = drafter_of(model)
    target = Target(model, 64, drafter.spec.target_layer_ids)
    job = Job((*range(60), 5, 6), Sampling(max_tokens=45), 0)
    alone = answer_all(DFlash(target, drafter, Speculation(block_size=4)), [job])[0]
    settings = Speculation(block_size=4, lookup=10, lookup_factor=9.0)
    joined = answer_all(DFlash(target, drafter, settings), [job])[0]
    known = DFlash(target, drafter, settings, known=SuffixIndex(range(60), 8))
    helped = answer_all(known, [Job((5, 6), job.sampling, 0)])[0]
    assert alone.token_ids == joined.token_ids == helped.token_ids == list(range(7, 52))
    assert length(alone) < 3
    assert min(length(joined), length(helped)) > 10
    for round in joined.rounds[:3]:
        assert len(round.proposed) == 13
        assert round.proposed[:3] == alone.rounds[0].proposed[:3] or round.parents
