"""Fidelity by the exact target, against a slow reference: one forward pass without a cache for every token."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer

from paceline.bench.fidelity import Fidelity, fidelity_figures, fidelity_of, log_likelihood_of
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.noise import NoiseCache
from paceline.decode.target import Target
from paceline.engine.loop import Job, run
from paceline.request import Sampling

PROMPT = (3, 14, 15, 9, 26)
USABLE = 60


def target() -> Target:
    return Target(tiny_transformer(tiny_spec(num_layers=3), seed=4), USABLE)


def plain(model: Target, sampling: Sampling, seed: int) -> list[int]:
    *_, (answer, _) = run(Autoregressive(model), [Job(PROMPT, sampling, seed)], None, frozenset(), 1)
    return answer.token_ids


def slowly(model: Target, temperature: float, seed: int, tokens: list[int]) -> tuple[int, float]:
    """How many tokens are the choice, and the sum of the log-probabilities."""
    agreed, total = 0, 0.0
    noise = NoiseCache(seed, 64, device=torch.device("cpu"))
    for index, token in enumerate(tokens):
        text = [*PROMPT, *tokens[:index]]
        hidden = run_flat(model.model, [text], [tiny_cache(model.model)]).hidden[-1:]
        logits = model.model.head(hidden)[0, :USABLE]
        drawn = noise.at(range(len(text), len(text) + 1))[0, :USABLE]
        agreed += int((logits + temperature * drawn).argmax()) == token
        total += math.log(float(logits.softmax(-1)[token]))
    return agreed, total


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("length", [1, 40, 150])  # 150 is more than are scored at a time
def test_figures_are_those_of_a_slow_reference(temperature: float, length: int) -> None:
    model, sampling = target(), Sampling(max_tokens=length, temperature=temperature)
    own = plain(model, sampling, 7)
    other = [(token + 1) % USABLE if index % 5 == 2 else token for index, token in enumerate(own)]
    for tokens in (own, other):
        found = fidelity_of(model, PROMPT, sampling, 7, own=own, other=tokens)
        agreed, total = slowly(model, temperature, 7, tokens)
        assert (found.tokens, found.agreed, found.same) == (length, agreed, tokens == own)
        assert found.log_likelihood == pytest.approx(total, rel=1e-9)
        assert log_likelihood_of(model, PROMPT, sampling, tokens) == found.log_likelihood
    assert fidelity_of(model, PROMPT, sampling, 7, own=own, other=own).agreed == length


def test_the_figures_of_many_answers_are_weighted_by_tokens() -> None:
    figures = fidelity_figures([Fidelity(3, 3, -1.0, True), Fidelity(7, 2, -8.0, False)])
    assert figures == {"same_answers": 0.5, "agreement": 0.5, "log_likelihood": -0.9}
