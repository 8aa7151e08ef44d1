"""DFlash gives the tokens of plain decoding, `==` in float64: all options, block sizes, batches, agreed lengths."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from asked import BIAS, ENDS, FAMILIES, OPTIONS, TEMPERATURES, TOKENIZER, USABLE, VOCAB, jobs_for, models, outcome
from scripted import Watched, accepting, answer_all, copying, drafter_of, plain, scripted
from tiny import tiny_spec

from paceline.decode.dflash import DFlash
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.engine.loop import Answer, Decoder, Job
from paceline.request import Sampling

DRAFTERS: dict[str, float | dict[str, Any]] = {
    "copies 0": 0.0,
    "copies .5": 0.5,
    "copies .9": 0.9,
    "copies all": 1.0,
    "real": {},
}


@dataclass
class Seen:
    """What a sweep has visited."""

    options: set[Any] = field(default_factory=set)
    block_sizes: set[int] = field(default_factory=set)
    widths: set[int] = field(default_factory=set)
    accepted: Counter[int] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)


def decoder_for(family: str, drafter: str, block_size: int, oracle: list[Answer]) -> Decoder:
    model, usable, how = models(family), USABLE[family], DRAFTERS[drafter]
    if isinstance(how, dict):
        real = drafter_of(model, causal=(block_size % 2 == 0,))
        return DFlash(Target(model, usable, real.spec.target_layer_ids), real, Speculation(block_size=block_size))
    truths = {(answer.job.prompt, answer.job.seed): answer.token_ids for answer in oracle}
    return scripted(model, block_size, copying(truths, how, VOCAB, salt=drafter), usable)


def shapes() -> Iterator[tuple[int, int]]:
    """Block sizes and batch widths: every other block is the longest, so that every length of agreement occurs."""
    for index in itertools.count():
        yield (16 if index % 2 else (index // 2) % 16 + 1), index % 4 + 1


def sweep(family: str, salt: int, options: list[Any], shape: Iterator[tuple[int, int]], seen: Seen) -> None:
    jobs = jobs_for(family, salt, options)
    whole = {"tokenizer": TOKENIZER, "ends": ENDS}
    ar = plain(models(family), USABLE[family])
    oracle = [answer for job in jobs for answer in answer_all(ar, [job], **whole)]
    assert list(map(outcome, answer_all(ar, jobs, batch=3, **whole))) == list(map(outcome, oracle))
    seen.ends.update(map(how_it_ended, oracle))
    for drafter in DRAFTERS:
        half = (len(jobs) + 1) // 2
        for part in (slice(half), slice(half, None)):
            block_size, batch = next(shape)
            decoder = Watched(decoder_for(family, drafter, block_size, oracle))
            answers = answer_all(decoder, jobs[part], batch=batch, **whole)
            assert list(map(outcome, answers)) == list(map(outcome, oracle[part])), (family, drafter, block_size, batch)
            seen.options.update((drafter, *option) for option in options[part])
            seen.block_sizes.add(block_size)
            seen.widths.update(map(len, decoder.steps))
            if block_size == 16:
                seen.accepted.update(round.accepted for answer in answers for round in answer.rounds)
            check_rounds(answers, block_size, 1.0 if drafter == "copies all" else None)


def how_it_ended(answer: Answer) -> str:
    last, sampling = answer.token_ids[-1], answer.job.sampling
    if answer.finish_reason == "length":
        whole = len(answer.token_ids) == sampling.max_tokens
        return "max_tokens" if whole else "context"
    return "end token" if last in ENDS else "stop token" if last in sampling.stop_token_ids else "stop string"


def check_rounds(answers: list[Answer], block_size: int, copied: float | None) -> None:
    for answer in answers:
        for round in answer.rounds:
            assert len(round.proposed) <= block_size - 1
            assert len(round.reference) == len(round.proposed) + 1
            assert round.committed == round.reference[: len(round.committed)]
            assert round.committed[: round.accepted] == round.proposed[: round.accepted]
            assert len(round.committed) - round.accepted in (0, 1)
        if copied and block_size > 1:
            assert all(round.accepted == len(round.proposed) for round in answer.rounds[:-1])


def test_every_option_gives_the_tokens_of_plain_decoding() -> None:
    seen, shape = Seen(), shapes()
    for place, family in enumerate(FAMILIES):
        sweep(family, 0, OPTIONS[place :: len(FAMILIES)], shape, seen)
    assert len(seen.options) == len(DRAFTERS) * len(OPTIONS)
    assert seen.block_sizes == set(range(1, 17))
    assert seen.widths == {1, 2, 3, 4}
    assert len(seen.accepted) >= 12, "most lengths of agreement occur by chance; the next test makes all occur"
    assert seen.ends.keys() == {"max_tokens", "context", "end token", "stop token", "stop string"}


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_every_length_of_agreement_occurs(temperature: float) -> None:
    """0 … 15 of 15 drafts agree, each once, for two neighbours in other orders."""
    model = models("qwen2, one sliding layer")
    settings = Sampling(max_tokens=137, temperature=temperature, top_p=0.9, frequency_penalty=0.2)
    jobs = [Job((1, 2, 3), settings, seed=8), Job((4,) * 20, settings, seed=9)]
    orders = {job.prompt: random.Random(job.seed).sample(range(16), 16) for job in jobs}
    oracle = answer_all(plain(model), jobs)
    truths = {(answer.job.prompt, answer.job.seed): answer.token_ids for answer in oracle}
    answers = answer_all(scripted(model, 16, accepting(truths, orders, VOCAB)), jobs, batch=2)
    assert list(map(outcome, answers)) == list(map(outcome, oracle))
    for answer in answers:
        assert [round.accepted for round in answer.rounds[:14]] == orders[answer.job.prompt][:14]
    assert {round.accepted for answer in answers for round in answer.rounds} == set(range(16))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_option_on_every_family(family: str) -> None:
    seen, shape = Seen(), shapes()
    for salt in (1, 2):
        sweep(family, salt, OPTIONS, shape, seen)
    assert len(seen.options) == len(DRAFTERS) * len(OPTIONS)
    assert {0, 1, 2, 14, 15} <= seen.accepted.keys()


def test_deeper_drafters_with_sliding_layers_and_all_switches() -> None:
    """Two layers, one of them sliding, with scale, multiplier and cap; taps in falling order and of one layer only."""
    model = models("qwen3")
    jobs = [
        Job(tuple(range(1, 1 + length)), Sampling(max_tokens=20, temperature=heat), seed=length)
        for length, heat in ((2, 0.0), (9, 0.7), (21, 1.5))
    ]
    oracle = list(map(outcome, answer_all(plain(model), jobs)))
    block = tiny_spec(num_layers=2, tied_head=True, windows=(5, None))
    switches = {"input_embedding_scale": 2.0, "output_multiplier": 0.5, "final_logit_softcapping": 8.0}
    for taps, causal in (((1, 0), (True, False)), ((0,), (False, False))):
        drafter = drafter_of(model, block=block, target_layer_ids=taps, causal=causal, **switches)
        for block_size in (3, 8):
            decoder = DFlash(Target(model, VOCAB, taps), drafter, Speculation(block_size=block_size))
            assert list(map(outcome, answer_all(decoder, jobs, batch=3))) == oracle


def test_the_answer_does_not_depend_on_the_settings_of_its_neighbours() -> None:
    """sampling-04, batch-01: greedy, seeded, penalised and biased requests side by side, in any order of admission."""
    model = models("llama3, one key head, biases")
    settings = [
        Sampling(max_tokens=9),
        Sampling(max_tokens=14, temperature=1.0),
        Sampling(max_tokens=6, temperature=2.0, frequency_penalty=1.0),
        Sampling(max_tokens=11, temperature=0.3, logit_bias=BIAS, top_k=3),
    ]
    jobs = [Job((9, 8, place), sampling, seed=4) for place, sampling in enumerate(settings)]
    alone = {job.prompt: outcome(answer_all(plain(model), [job])[0]) for job in jobs}
    truths = {(prompt, 4): tokens for prompt, (tokens, _, _) in alone.items()}
    for order in itertools.permutations(jobs):
        decoder = scripted(model, 5, copying(truths, 0.6, VOCAB, salt=order[0].prompt))
        for answer in answer_all(decoder, order, batch=2):
            assert outcome(answer) == alone[answer.job.prompt]


def test_the_same_request_twice_in_a_batch_gets_the_same_answer() -> None:
    model = models("qwen3")
    job = Job((1, 2, 3), Sampling(max_tokens=12, temperature=1.0), seed=7)
    decoder = scripted(model, 4, lambda sequence, slots: [0] * slots)
    first, second = answer_all(decoder, [job, replace(job)], batch=2)
    assert first.token_ids == second.token_ids
