"""Lookup, alone and beside a drafter: the tokens of plain decoding, `==` in float64, whatever is looked up."""

from __future__ import annotations

import random
from typing import Any

import pytest
from asked import ENDS, FAMILIES, OPTIONS, TOKENIZER, USABLE, jobs_for, models, outcome
from scripted import answer_all, drafter_of, plain

from paceline.decode.dflash import DFlash
from paceline.decode.lookup import PromptLookup
from paceline.decode.speculation import Lookup, Speculation
from paceline.decode.suffix_index import SuffixIndex
from paceline.decode.target import Target
from paceline.engine.loop import Decoder


def known(answers: list[Any], usable: int, rng: random.Random) -> SuffixIndex | None:
    """Twice what plain decoding says, with some tokens changed; or nothing but the request's own text."""
    if rng.random() < 0.2:
        return None
    said = [token for answer in answers for token in (*answer.job.prompt, *answer.token_ids)] * 2
    return SuffixIndex([token if rng.random() < 0.92 else rng.randrange(usable) for token in said], 4)


def lookup(model: Any, usable: int, answers: list[Any], rng: random.Random) -> PromptLookup:
    settings = Lookup(
        prompt_lookup_num_tokens=rng.choice((2, 10, 10, 40)),
        prompt_lookup_min=rng.choice((1, 1, 2)),
        prompt_lookup_max=rng.choice((2, 8)),
        lookup_factor=rng.choice((1.0, 9.0, 9.0)),
        candidate_num=rng.choice((1, 9, 9, 9)),
        max_nodes=rng.choice((2, 9, 32, 32)),
    )
    return PromptLookup(Target(model, usable), settings, known(answers, usable, rng))


def beside_drafter(model: Any, usable: int, answers: list[Any], rng: random.Random) -> DFlash:
    settings = Speculation(
        block_size=rng.choice((1, 2, 5, 9)),
        lookup=rng.choice((1, 5, 12)),
        prompt_lookup_min=1,
        prompt_lookup_max=rng.choice((2, 8)),
        lookup_factor=rng.choice((1.0, 9.0, 9.0)),
        candidate_num=rng.choice((1, 1, 3)),
        diffusion_steps=rng.choice((1, 1, 2)),
        overlap=rng.choice((0, 2)),
    )
    drafter = drafter_of(model)
    target = Target(model, usable, drafter.spec.target_layer_ids)
    return DFlash(target, drafter, settings, known=known(answers, usable, rng))


@pytest.mark.parametrize("make", [lookup, beside_drafter])
@pytest.mark.parametrize("family", FAMILIES)
def test_any_settings_give_the_tokens_of_plain_decoding(family: str, make: Any) -> None:
    rng = random.Random(f"{family} {make.__name__}")
    whole: dict[str, Any] = {"tokenizer": TOKENIZER, "ends": ENDS}
    model, usable = models(family), USABLE[family]
    copied = branched = 0
    for index, first in enumerate(range(0, len(OPTIONS), 4)):
        jobs = jobs_for(family, 500 + index, OPTIONS[first : first + 4])
        oracle = [answer for job in jobs for answer in answer_all(plain(model, usable), [job], **whole)]
        decoder: Decoder[Any] = make(model, usable, oracle, rng)
        answers = answer_all(decoder, jobs, batch=index % 4 + 1, **whole)
        assert list(map(outcome, answers)) == list(map(outcome, oracle)), decoder
        for round in [round for answer in answers for round in answer.rounds]:
            copied, branched = copied + round.accepted, branched + bool(round.parents)
            assert round.accepted <= round.checked <= len(round.committed)
            assert len(round.committed) - round.accepted in (0, 1)
            assert all(token < usable for token in round.proposed)
    assert copied > 100, "a test of copies needs some"
    assert branched > 10, "a test of trees needs some"
