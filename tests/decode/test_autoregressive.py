"""Plain decoding: the oracle has no oracle but the model itself, read from the start for every token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scripted import answer_all, plain
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer

from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts, process
from paceline.decode.sampling import choose
from paceline.engine.loop import Job
from paceline.models.transformer import Transformer
from paceline.request import Sampling

VOCAB = 64


def from_the_start(model: Transformer, job: Job) -> list[int]:
    """Every token from a pass over all before it, without caches, with noise and counts made anew."""
    tokens = list(job.prompt)
    for _ in range(job.sampling.max_tokens):
        logits = model.head(run_flat(model, [tokens], [tiny_cache(model)]).hidden[-1:])
        counts = TokenCounts.of_prompt(job.prompt, VOCAB)
        counts.commit(tokens[len(job.prompt) :])
        scores = process(logits, job.sampling, counts)
        tokens += choose(scores, job.sampling, NoiseCache(job.seed, VOCAB), [len(tokens)]).tolist()
    return tokens[len(job.prompt) :]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.7, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
        {"logit_bias": {3: 4.0}, "presence_penalty": 1.0},
    ],
)
@pytest.mark.parametrize("family", ["qwen3", "mistral"])
def test_tokens_equal_those_of_passes_from_the_start(family: str, settings: dict[str, Any]) -> None:
    model = tiny_transformer(tiny_spec(family, windows=(5, None)))
    jobs = [Job(tuple(range(1, n)), Sampling(max_tokens=12, **settings), seed=n) for n in (2, 9)]
    answers = answer_all(plain(model), jobs, batch=2)
    assert [answer.token_ids for answer in answers] == [from_the_start(model, job) for job in jobs]


def test_a_round_holds_one_token_and_nothing_drafted() -> None:
    model = tiny_transformer(tiny_spec())
    (answer,) = answer_all(plain(model), [Job((1, 2), Sampling(max_tokens=4), 0)])
    assert len(answer.rounds) == 3
    for round, token in zip(answer.rounds, answer.token_ids[1:], strict=True):
        assert (round.proposed, round.reference, round.committed, round.accepted) == ((), (token,), (token,), 0)
        assert round.draft_seconds == 0.0


def test_the_cache_covers_all_but_the_newest_token() -> None:
    decoder = plain(tiny_transformer(tiny_spec()))
    sequences = [decoder.open(prompt, Sampling(max_tokens=5), 0) for prompt in ([1], [1, 2, 3])]
    decoder.prefill(sequences)
    for _ in range(3):
        decoder.step(sequences)
        assert [sequence.cache.length for sequence in sequences] == [len(s.tokens) - 1 for s in sequences]
    assert all(sequence.draft_cache is None for sequence in sequences)


def test_no_gradient_is_kept() -> None:
    model = tiny_transformer(tiny_spec()).requires_grad_(True)
    decoder = plain(model)
    sequence = decoder.open([1, 2], Sampling(), 0)
    decoder.prefill([sequence])
    decoder.step([sequence])
    assert not any(view.requires_grad for view in sequence.cache.view(0))
    assert torch.is_grad_enabled()
