"""The certificate of identity: accepts what plain decoding or DFlash gave, near-ties included, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer, write_checkpoint

from paceline.bench.identity import Verdict, certify, compare, ends_rightly, tolerance
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.dflash import DFlash
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.engine.loop import Decoder, Job, run
from paceline.models.load import load_transformer
from paceline.models.transformer import Transformer
from paceline.request import Sampling

PROMPT = (3, 14, 15, 9, 26)
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 1.0},
    "filters": {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    "penalties": {"temperature": 0.7, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "logit_bias": {5: 2.0}},
    "greedy penalties": {"presence_penalty": 1.0},
}


def model(dtype: torch.dtype = torch.float32) -> Transformer:
    return tiny_transformer(tiny_spec(num_layers=3), seed=4, dtype=dtype)


def decoded(decoder: Decoder, sampling: Sampling, prompt: Sequence[int] = PROMPT, seed: int = 7) -> list[int]:
    *_, (answer, _) = run(decoder, [Job(tuple(prompt), sampling, seed)], None, frozenset(), 1)
    return answer.token_ids


def plain(target: Target, sampling: Sampling, **request: Any) -> list[int]:
    return decoded(Autoregressive(target), sampling, **request)


@pytest.mark.parametrize("settings", SAMPLINGS.values(), ids=SAMPLINGS.keys())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_accepts_plain_decoding_and_dflash(settings: dict[str, Any], dtype: torch.dtype) -> None:
    transformer = model(dtype)
    spec = tiny_drafter_spec(transformer.spec)
    target = Target(transformer, 60)
    tapped = Target(transformer, 60, spec.target_layer_ids)
    sampling = Sampling(max_tokens=150, **settings)  # more than are scored at a time
    own = plain(target, sampling)
    other = decoded(DFlash(tapped, tiny_drafter(spec, transformer), Speculation(block_size=4)), sampling)
    assert certify(target, PROMPT, sampling, 7, own).identical
    assert certify(target, PROMPT, sampling, 7, other).identical
    assert compare(target, PROMPT, sampling, 7, own=own, other=other).identical


@pytest.mark.parametrize("settings", SAMPLINGS.values(), ids=SAMPLINGS.keys())
@pytest.mark.parametrize("index", [0, 1, 70, 139])
def test_refuses_one_tampered_token(settings: dict[str, Any], index: int) -> None:
    target, sampling = Target(model(), 64), Sampling(max_tokens=140, **settings)
    tokens = plain(target, sampling)
    for wrong in ((tokens[index] + 1) % 64, (tokens[index] + 31) % 64):
        tampered = [*tokens[:index], wrong, *tokens[index + 1 :]]
        assert certify(target, PROMPT, sampling, 7, tampered) == Verdict(False, 0, index)
        assert compare(target, PROMPT, sampling, 7, own=tokens, other=tampered).first_wrong == index


def test_refuses_another_seed_and_another_prompt() -> None:
    target, sampling = Target(model(), 64), Sampling(max_tokens=20, temperature=1.0)
    tokens = plain(target, sampling)
    assert not certify(target, PROMPT, sampling, 8, tokens).identical
    assert not certify(target, PROMPT[1:], sampling, 7, tokens).identical


def test_refuses_ids_outside_the_vocabulary() -> None:
    target, sampling = Target(model(), 60), Sampling(max_tokens=8)
    tokens = plain(target, sampling)
    for wrong in (-1, 60, 63, 64, 10**9):
        tampered = [*tokens[:3], wrong, *tokens[4:]]
        assert certify(target, PROMPT, sampling, 7, tampered) == Verdict(False, 0, 3)


def test_refuses_an_answer_that_breaks_off_or_goes_on() -> None:
    target, sampling = Target(model(), 64), Sampling(max_tokens=8)
    tokens = plain(target, sampling)
    assert compare(target, PROMPT, sampling, 7, own=tokens, other=tokens[:5]) == Verdict(False, 0, 5)
    assert compare(target, PROMPT, sampling, 7, own=tokens[:5], other=tokens) == Verdict(False, 0, 5)
    assert compare(target, PROMPT, sampling, 7, own=tokens, other=[]) == Verdict(False, 0, 0)


TWINS = (5, 9)
"""Ids whose scores differ by about 1e-6: wherever one is chosen, the other is a near-tie."""


def twin_target(gap: float = 1e-7) -> Target:
    transformer = model()
    with torch.no_grad():
        transformer.head.weight[TWINS[1]] = transformer.head.weight[TWINS[0]] * (1 + gap)
    return Target(transformer, 64)


def with_swapped_twin(target: Target, sampling: Sampling) -> tuple[list[int], list[int], int]:
    """An answer; the same with a twin swapped, and what plain decoding says after that; where."""
    own = plain(target, sampling)
    index = next(index for index, token in enumerate(own) if token in TWINS and index > 1)
    before = [*own[:index], sum(TWINS) - own[index]]
    rest = replace(sampling, max_tokens=sampling.max_tokens - len(before))
    return own, [*before, *plain(target, rest, prompt=[*PROMPT, *before])], index


def test_near_tie_is_certified_and_counted_and_what_follows_is_checked() -> None:
    target = twin_target()
    sampling = Sampling(max_tokens=40, logit_bias=dict.fromkeys(TWINS, 2.0))
    own, other, index = with_swapped_twin(target, sampling)
    assert own != other
    verdict = compare(target, PROMPT, sampling, 7, own=own, other=other)
    assert verdict.identical
    assert verdict.near_ties >= 1
    for later in (index + 1, len(other) - 1):
        tampered = [*other[:later], (other[later] + 31) % 64, *other[later + 1 :]]
        assert certify(target, PROMPT, sampling, 7, tampered).first_wrong == later
    third = next(token for token in range(64) if token not in TWINS)
    assert certify(target, PROMPT, sampling, 7, [*own[:index], third, *own[index + 1 :]]).first_wrong == index


def test_a_gap_beyond_the_tolerance_is_no_tie() -> None:
    target = twin_target(gap=1e-3)
    sampling = Sampling(max_tokens=40, logit_bias=dict.fromkeys(TWINS, 2.0))
    own, other, index = with_swapped_twin(target, sampling)
    assert compare(target, PROMPT, sampling, 7, own=own, other=other).first_wrong == index


def test_equal_scores_apart_by_their_noise_are_no_tie() -> None:
    target = twin_target()
    sampling = Sampling(max_tokens=40, temperature=1.0, logit_bias=dict.fromkeys(TWINS, 3.0))
    own, other, index = with_swapped_twin(target, sampling)
    assert compare(target, PROMPT, sampling, 7, own=own, other=other).first_wrong == index


@pytest.mark.parametrize(
    ("narrow", "wide", "far"),
    [
        ({"top_p": 0.5 - 1e-5}, {"top_p": 0.5 + 1e-5}, {"top_p": 0.45}),
        ({"min_p": 0.6 + 1e-5}, {"min_p": 0.6 - 1e-5}, {"min_p": 0.7}),
        ({"top_k": 1}, {"top_k": 2}, {"top_k": 1}),
    ],
)
def test_edge_of_a_probability_filter(narrow: dict[str, Any], wide: dict[str, Any], far: dict[str, Any]) -> None:
    """Law (0.5, 0.3, 0.2): `wide` keeps the first two ids, `narrow` and `far` only the first."""
    target, scores = edge_target(), {0: math.log(0.5), 1: math.log(0.3), 2: math.log(0.2)}
    below, above, off = (
        Sampling(max_tokens=1, temperature=1.0, logit_bias=scores, **each) for each in (narrow, wide, far)
    )
    expected = Verdict(False, 0, 0) if "top_k" in narrow else Verdict(True, 1)
    seeds = [seed for seed in range(40) if plain(target, below, seed=seed) != plain(target, above, seed=seed)]
    assert len(seeds) > 5
    for seed in seeds:
        assert certify(target, PROMPT, below, seed, plain(target, above, seed=seed)) == expected
        assert certify(target, PROMPT, above, seed, plain(target, below, seed=seed)) == expected
        assert not certify(target, PROMPT, off, seed, plain(target, above, seed=seed)).identical


def edge_target() -> Target:
    """Three ids, every score 0: the bias is the law."""
    transformer = model()
    transformer.head.weight.data.zero_()
    return Target(transformer, 3)


@pytest.mark.parametrize("attention", [torch.bfloat16, torch.float32], ids=["half", "mixed"])
def test_half_precision_allows_its_rounding_and_no_more(attention: torch.dtype, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, model(torch.bfloat16))
    target = Target(load_transformer(folder, torch.bfloat16, attention_dtype=attention), 64)
    sampling = Sampling(max_tokens=60)
    tokens = plain(target, sampling)
    assert certify(target, PROMPT, sampling, 7, tokens).identical
    for index in (0, 30, 59):
        far = next(
            token for token in range(64) if not certify(target, PROMPT, sampling, 7, [*tokens[:index], token]).identical
        )
        assert certify(target, PROMPT, sampling, 7, [*tokens[:index], far, *tokens[index + 1 :]]).first_wrong == index


@pytest.mark.parametrize("attention", [torch.bfloat16, torch.float32], ids=["half", "mixed"])
def test_half_precision_takes_what_its_products_cannot_tell_apart_for_a_tie(
    attention: torch.dtype, tmp_path: Path
) -> None:
    transformer = model(torch.bfloat16)
    transformer.head.weight.data.zero_()
    folder = write_checkpoint(tmp_path, transformer)
    target = Target(load_transformer(folder, torch.bfloat16, attention_dtype=attention), 64)
    close = Sampling(max_tokens=1, logit_bias={0: 8.0, 1: 7.8, 2: 7.7})
    assert certify(target, PROMPT, close, 7, [1]) == Verdict(True, near_ties=1)
    assert not certify(target, PROMPT, close, 7, [2]).identical, "a quarter is allowed"


def test_tolerances() -> None:
    assert tolerance(torch.float32, 8.0) == 1e-4
    assert tolerance(torch.bfloat16, 8.0) == 0.25
    assert tolerance(torch.float16, 8.0) == 0.03125


def test_ends_rightly() -> None:
    ends = frozenset({7, 8})
    assert ends_rightly([1, 2, 7], ends, 5)
    assert ends_rightly([1, 2, 3], ends, 3)
    assert ends_rightly([1, 2, 7], ends, 3)
    assert not ends_rightly([1, 2], ends, 3)
    assert not ends_rightly([1, 7, 2], ends, 3)
    assert not ends_rightly([1, 2, 3, 4], ends, 3)
    assert not ends_rightly([], ends, 3)
