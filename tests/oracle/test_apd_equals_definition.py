"""APD against its definition (arXiv 2506.00413), written down once more without the code under test.

The oracle decodes one answer at a time, keeps the dLLM's keys and values by position and reads the verifier without a
cache; ours decodes ragged batches with two caches. What stands behind a hole is seen by the dLLM, in its place, and by
nobody else. float64 and `==`: tokens, and what each step committed. All draws are seeded, so a failure is a difference,
not chance. A table of n-grams is a plain dictionary here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from diffusing import Request, uncover
from rows import Rows
from tiny import tiny_spec, tiny_transformer
from torch import Tensor

from paceline.decode.adaptive import Adaptive
from paceline.decode.apd import APD
from paceline.decode.denoiser import Denoiser
from paceline.decode.ngram_table import NgramTable, Owner
from paceline.decode.noise import gumbel
from paceline.decode.target import Target
from paceline.models.diffusion_spec import Diffusion as DiffusionSpec
from paceline.models.transformer import Transformer
from paceline.request import Sampling

MASK, USABLE, END = 63, 61, 7
N = 2
"""Tokens of a context of n-grams."""
PROMPTS = [tuple((7 * n + 3 * i) % 60 for i in range(length)) for n, length in enumerate((5, 1, 12, 3))]
LENGTHS = (19, 6, 1, 24)

SETTINGS = [
    Adaptive(),
    Adaptive(alpha=0.7, schedule="adaptive"),
    Adaptive(alpha=0.5, window=None, kv_window=None, schedule="adaptive"),
    Adaptive(alpha=0.9, tau=0.9, window=7, kv_window=None, schedule="adaptive"),
    Adaptive(alpha=0.4, schedule="fixed", window=5, kv_window=1),
    Adaptive(alpha=0.6, tau=0.1, window=9, kv_window=3, schedule="adaptive"),
    Adaptive(alpha=0.8, schedule="fixed", window=None, kv_window=2),
    Adaptive(alpha=0.0, window=3, kv_window=4, schedule="adaptive"),
    Adaptive(alpha=1.0, window=6, kv_window=1, schedule="adaptive"),
    Adaptive(tau=1.0, window=6, kv_window=1, schedule="adaptive"),
    Adaptive(tau=0.0, window=1, kv_window=5, schedule="adaptive"),
]


def defined(
    dllm: Transformer,
    verifier: Transformer,
    settings: Adaptive,
    request: Request,
    table: Mapping[tuple[int, ...], Tensor] | None = None,
) -> tuple[list[int], list[int], list[int]]:
    """The answer, how many of its tokens each step committed, and the steps in which the verifier is not asked."""
    assert dllm.spec.diffusion is not None
    prompt, sampling, seed, suffix = request
    shift, length, start = dllm.spec.diffusion.logit_shift, len(prompt) + sampling.max_tokens, len(prompt)
    tokens, behind = [*prompt, *[MASK] * sampling.max_tokens, *suffix], range(length, length + len(suffix))
    rows, steps, skipped = Rows(dllm, len(tokens)), list[int](), list[int]()
    seen, before, ended = min(length, start + (settings.window or length)), 0, False
    while start < length and not ended:
        first = 0 if settings.kv_window is None or not steps else max(0, before - settings.kv_window + 1)
        told = rows.logits(tokens, [*range(first, seen), *behind], [*range(seen), *behind])
        logits = told[start - shift - first : seen - shift - first]
        proposed = drawn(logits, start, sampling, seed)
        if END in proposed:
            proposed = proposed[: proposed.index(END) + 1]
        text, count, sure, known = [*tokens[:start], *proposed], 0, 0.0, list[Tensor]()
        for end in range(start, len(text)):
            if table is None or tuple(text[max(0, end - N) : end]) not in table:
                break
            known.append(table[tuple(text[max(0, end - N) : end])])
        if known:
            told = torch.stack(known)
            count, sure = followed(settings, logits, told, proposed[: len(known)], start, sampling, seed)
        if count < len(known) or len(known) == len(proposed):
            skipped.append(len(steps))
        else:
            told = Rows(verifier, length).logits_of_prefixes(text)[start - 1 : -1]
            count, sure = followed(settings, logits, told, proposed, start, sampling, seed)
        tokens[start : start + count] = proposed[:count]
        ended = END in proposed[:count]
        before, start = start, start + count
        seen = start + visible(settings, length - start, sure)
        steps.append(count)
    return tokens[len(prompt) : start], steps, skipped


def followed(
    settings: Adaptive, logits: Tensor, told: Tensor, proposed: list[int], start: int, sampling: Sampling, seed: int
) -> tuple[int, float]:
    """How many of the proposed tokens are kept, and how likely they are in the verifier's eyes."""
    sure = float(ruled(told).softmax(-1)[range(len(proposed)), proposed].mean())
    weight = share(settings, sure)
    own, other = ruled(logits[: len(proposed)]), ruled(told)
    mixed = own if weight == 1 else other if weight == 0 else weight * own + (1 - weight) * other
    agreed = [a == b for a, b in zip(proposed, drawn(mixed, start, sampling, seed), strict=True)]
    return 1 + len(list(itertools.takewhile(bool, agreed[1:]))), sure


def drawn(logits: Tensor, first: int, sampling: Sampling, seed: int) -> list[int]:
    positions = torch.arange(first, first + len(logits))
    noise = gumbel(seed, "token", positions, torch.arange(logits.shape[-1])[None]).double()
    return list((ruled(logits) + sampling.temperature * noise).argmax(-1).tolist())


def ruled(logits: Tensor) -> Tensor:
    return torch.cat([logits[:, :USABLE], torch.full((len(logits), 64 - USABLE), -torch.inf)], -1)


def share(settings: Adaptive, sure: float) -> float:
    if settings.alpha == 0:
        return 0.0
    f = 1.0 if settings.schedule == "fixed" else 2 * (1 - settings.tau) * (1 - sure)
    return 1 / (1 + (1 - settings.alpha) / settings.alpha * f)


def visible(settings: Adaptive, masks: int, sure: float) -> int:
    widest = min(masks, settings.window or masks)
    adapts = settings.schedule == "adaptive" and settings.window is not None and widest > 4
    return 4 + round((widest - 4) * sure) if adapts else widest


@pytest.mark.parametrize(("temperature", "suffix"), [(0.0, ()), (0.9, ()), (0.9, (9, 31, END, 4))])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_ragged_batch_is_what_the_definition_says(
    settings: Adaptive, shift: int, temperature: float, suffix: tuple[int, ...]
) -> None:
    spec = tiny_spec("qwen2", diffusion=DiffusionSpec(MASK, shift), eos_token_ids=(END,))
    dllm = tiny_transformer(spec)
    verifier = tiny_transformer(tiny_spec("qwen3", num_layers=1, vocab_size=62), seed=5)
    apd = APD(Denoiser(dllm, USABLE), Target(verifier, USABLE), settings, frozenset({END}))
    requests = [
        Request(prompt, Sampling(max_tokens=length, temperature=temperature), seed, suffix[seed:])
        for seed, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True))
    ]
    batched = uncover(apd, requests, max_batch=3)
    for request, answer in zip(requests, batched, strict=True):
        tokens, committed, _ = defined(dllm, verifier, settings, request)
        assert answer.tokens == tokens
        assert answer.unmasked_per_step == committed
        assert (answer.finish_reason == "stop") == (tokens[-1] == END)
        assert uncover(apd, [request]) == [answer]


def random_table(share: float, vocab_size: int) -> NgramTable:
    """So large a share of all contexts, each with five scores and one for the rest."""
    generator = torch.Generator().manual_seed(3)
    every = torch.cartesian_prod(torch.arange(64), torch.arange(64))
    contexts = every[torch.rand(len(every), generator=generator) < share]
    ids = torch.rand(len(contexts), vocab_size, generator=generator).argsort(-1)[:, :5]
    scores = 3.0 * torch.randn(len(contexts), 5, generator=generator, dtype=torch.float64)
    rest = torch.randn(len(contexts), generator=generator, dtype=torch.float64) - 2.0
    return NgramTable(Owner(0, vocab_size, 0), contexts, ids, scores, rest)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("known", [0.0, 0.6, 0.95, 1.0])
@pytest.mark.parametrize("settings", [SETTINGS[1], *SETTINGS[4:6], *SETTINGS[7:]], ids=str)
def test_what_a_table_of_ngrams_knows_the_verifier_is_not_asked(
    settings: Adaptive, known: float, temperature: float
) -> None:
    """With all contexts it is asked behind the one prompt that is shorter than a context; with none the table is void.

    What the oracle looks up is every id's score, in a dictionary.
    """
    dllm = tiny_transformer(tiny_spec("qwen2", diffusion=DiffusionSpec(MASK, 1), eos_token_ids=(END,)))
    verifier = tiny_transformer(tiny_spec("qwen3", num_layers=1, vocab_size=62), seed=5)
    ngrams = random_table(known, 62)
    table: dict[tuple[int, ...], Tensor] = {}
    for context, ids, scores, rest in zip(ngrams.contexts, ngrams.ids, ngrams.scores, ngrams.rest, strict=True):
        row = torch.full((62,), float(rest), dtype=torch.float64)
        row[ids] = scores
        table[tuple(context.tolist())] = row
    plain = APD(Denoiser(dllm, USABLE), Target(verifier, USABLE), settings, frozenset({END}))
    apd = replace(plain, ngrams=ngrams)
    requests = [
        Request(prompt, Sampling(max_tokens=length, temperature=temperature), seed)
        for seed, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True))
    ]
    batched = uncover(apd, requests, max_batch=3)
    for request, answer in zip(requests, batched, strict=True):
        tokens, committed, skipped = defined(dllm, verifier, settings, request, table)
        assert (answer.tokens, answer.unmasked_per_step, answer.skipped) == (tokens, committed, skipped)
        assert uncover(apd, [request]) == [answer]
        if known == 0.0:
            assert uncover(plain, [request]) == [answer]
        if known == 1.0:
            first = int(len(request.prompt) < N)
            assert skipped == [*range(first, len(committed))]
