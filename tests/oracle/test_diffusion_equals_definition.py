"""Masked-diffusion decoding against its definitions, written down once more without the code under test.

The oracle keeps keys and values by position, attends without a fused kernel, and decodes one answer at a time; ours
decodes ragged batches. float64 and `==`: tokens, the passes, and what each of them fixed. All draws are seeded, so a
failure is a difference, not chance.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from diffusing import Request, uncover
from rows import Rows
from tiny import tiny_spec, tiny_transformer
from torch import Tensor

from paceline.decode.denoiser import Denoiser
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.noise import gumbel
from paceline.decode.remasking import Remasking
from paceline.models.diffusion_spec import Diffusion as DiffusionSpec
from paceline.models.transformer import Transformer
from paceline.request import Sampling

MASK, USABLE, END = 63, 61, 7
PROMPTS = [tuple((7 * n + 3 * i) % 60 for i in range(length)) for n, length in enumerate((5, 1, 12, 3))]
LENGTHS = (9, 6, 1, 12)

SETTINGS = [
    Remasking(),
    Remasking(strategy="margin", steps=4),
    Remasking(strategy="entropy", steps=5, step_schedule="linear"),
    Remasking(strategy="random", steps=14, step_schedule="linear", eps=0.2),
    Remasking(strategy="random", tokens_per_step=3, block_length=5),
    Remasking(steps=7, block_length=4),
    Remasking(steps=2, block_length=3),
    Remasking(steps=100, block_length=7),
    Remasking(threshold=0.2, block_length=6),
    Remasking(factor=1.2, block_length=6),
    Remasking(threshold=0.2, block_length=6, cache="prefix"),
    Remasking(steps=9, block_length=5, cache="prefix"),
    Remasking(factor=1.2, block_length=6, cache="dual"),
    Remasking(steps=9, block_length=5, cache="dual"),
    Remasking(tokens_per_step=2, cache="dual"),
    Remasking(end_last=True),
    Remasking(strategy="margin", steps=4, end_last=True),
    Remasking(strategy="entropy", tokens_per_step=2, block_length=5, end_last=True),
    Remasking(strategy="random", end_last=True),
    Remasking(threshold=0.2, end_last=True),
    Remasking(factor=1.2, block_length=6, cache="dual", end_last=True),
    Remasking(strategy="left_to_right", tokens_per_step=2),
    Remasking(strategy="left_to_right", tokens_per_step=3, window=4),
    Remasking(strategy="left_to_right", tokens_per_step=3, window=3, kv_window=1),
    Remasking(strategy="left_to_right", tokens_per_step=2, kv_window=3),
]


def defined(model: Transformer, settings: Remasking, request: Request) -> tuple[list[int], list[int]]:
    """The answer, and how many of its tokens each pass fixed; passes after its end fix none."""
    prompt, sampling, _, suffix = request
    assert model.spec.diffusion is not None
    shift, end = model.spec.diffusion.logit_shift, len(prompt) + sampling.max_tokens
    tokens, length = [*prompt, *[MASK] * sampling.max_tokens, *suffix], end + len(suffix)
    rows, size = Rows(model, length), settings.block_length or sampling.max_tokens
    starts = list(range(len(prompt), end, size))
    passes: list[list[int]] = []
    before = len(prompt)  # the first mask of the last pass
    for block, start in enumerate(starts):
        stop = min(start + size, end)
        steps = max(1, len(np.array_split(np.arange(settings.steps or 1), len(starts))[block]))
        left, done = list(range(start, stop)), 0
        while left:
            computed, seen = [*range(length)], [*range(length)]
            if settings.cache != "none" and done:
                computed = [*range(start - shift, stop if settings.cache == "dual" else length)]
            if settings.window is not None:
                computed = seen = [*range(min(end, left[0] + settings.window)), *range(end, length)]
            if settings.kv_window is not None and done:
                computed = [position for position in seen if position > before - settings.kv_window]
            before = left[0]
            scores = rows.logits(tokens, computed, seen)
            open_now = [position for position in left if position in computed]
            drawn = {p: propose(scores[computed.index(p - shift)], p, settings, request) for p in open_now}
            order = sorted(open_now, key=lambda p: (-drawn[p][1], p))
            count = how_many(settings, [drawn[p][1] for p in order], done, steps, stop - start)
            for position in order[:count]:
                tokens[position] = drawn[position][0]
            left = [position for position in left if position not in order[:count]]
            passes.append(order[:count])
            done += 1
    ends = [position for position in range(len(prompt), end) if tokens[position] == END]
    stop = ends[0] + 1 if ends else end
    return tokens[len(prompt) : stop], [sum(position < stop for position in fixed) for fixed in passes]


def propose(logits: Tensor, position: int, settings: Remasking, request: Request) -> tuple[int, float]:
    """The token drawn at a position, and what it is worth."""
    scores = logits.clone()
    scores[[*range(USABLE, 64)]] = -torch.inf
    for biased, bias in request.sampling.logit_bias.items():
        scores[biased] += bias
    noise = gumbel(request.seed, "token", torch.tensor([position]), torch.arange(64)[None])[0]
    token = int((scores + request.sampling.temperature * noise.double()).argmax())
    law = scores.softmax(-1).numpy()
    if settings.end_last and token == END:
        return token, -math.inf
    if settings.strategy == "margin":
        return token, float(np.sort(law)[-1] - np.sort(law)[-2])
    if settings.strategy == "entropy":
        return token, float((law[law > 0] * np.log(law[law > 0])).sum())
    if settings.strategy == "random":
        return token, float(gumbel(request.seed, "remask", torch.tensor([position]), torch.tensor([[0]])))
    return token, float(law[token]) if settings.strategy == "low_confidence" else float(-position)


def how_many(settings: Remasking, ranked: list[float], done: int, steps: int, block_tokens: int) -> int:
    if settings.threshold is not None:
        return max(1, len([worth for worth in ranked if worth >= settings.threshold]))
    if settings.factor is not None:
        reached = [worth >= 1 - settings.factor / (n + 1) for n, worth in enumerate(ranked, start=1)]
        return max(1, len(list(itertools.takewhile(bool, reached))))
    if settings.steps is None:
        return min(len(ranked), settings.tokens_per_step or 1)
    if settings.step_schedule == "even":
        return len(np.array_split(np.arange(block_tokens), steps)[done])
    times = np.linspace(1, settings.eps, steps + 1)
    return len(ranked) if done == steps - 1 else int(len(ranked) * (1 - times[done + 1] / times[done]))


def model_with(shift: int, **changes: Any) -> Transformer:
    spec = tiny_spec("qwen2", diffusion=DiffusionSpec(MASK, shift), eos_token_ids=(END,), **changes)
    return tiny_transformer(spec)


@pytest.mark.parametrize(
    ("temperature", "suffix", "end_bias"),
    [(0.0, (), 0.0), (0.9, (), 0.0), (0.9, (9, 31, END, 4), 0.0), (0.0, (), 3.0), (0.9, (9, 4), 2.0)],
)
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_ragged_batch_is_what_the_definition_says(
    settings: Remasking, shift: int, temperature: float, suffix: tuple[int, ...], end_bias: float
) -> None:
    """Some of them are flooded by end tokens."""
    model = model_with(shift)
    decoder = MaskedDiffusion(Denoiser(model, USABLE), settings, frozenset({END}))
    requests = [
        Request(
            prompt,
            Sampling(max_tokens=length, temperature=temperature, logit_bias={END: end_bias}),
            seed,
            suffix[seed:],
        )
        for seed, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True))
    ]
    batched = uncover(decoder, requests, max_batch=3)
    for request, answer in zip(requests, batched, strict=True):
        tokens, fixed = defined(model, settings, request)
        assert answer.tokens == tokens
        passes = answer.forward_passes
        assert answer.unmasked_per_step == fixed[:passes]
        assert sum(fixed[passes:]) == 0
        assert (answer.finish_reason == "stop") == (tokens[-1] == END)
        assert uncover(decoder, [request]) == [answer]


def test_the_settings_tried_use_every_field() -> None:
    for field in dataclasses.fields(Remasking):
        assert len({getattr(settings, field.name) for settings in SETTINGS}) > 1, field.name
