"""APD at its edges; tests/oracle and tests/golden say that its answers are right."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusing import Request, Uncovered, uncover
from tiny import tiny_spec, tiny_transformer

from paceline.bench.coupling import agreement
from paceline.decode.adaptive import Adaptive
from paceline.decode.agree import product
from paceline.decode.apd import APD
from paceline.decode.canvas import Canvas
from paceline.decode.denoiser import Denoiser
from paceline.decode.target import Target
from paceline.errors import BadRequest, ContextOverflow
from paceline.models.diffusion_spec import Diffusion as DiffusionSpec
from paceline.request import Sampling

MASK, END = 11, 7
PROMPT = (5, 3, 2)


def decoder(settings: Adaptive | None = None, shift: int = 1, **verifier: Any) -> APD:
    """Two tiny models over 12 ids, the last of which is the mask."""
    diffusion = DiffusionSpec(MASK, shift)
    spec = tiny_spec("qwen2", vocab_size=12, diffusion=diffusion, eos_token_ids=(END,), context_tokens=40)
    dllm = Denoiser(tiny_transformer(spec), 12)
    small = tiny_transformer(tiny_spec(vocab_size=12, num_layers=1, **verifier), seed=4)
    return APD(dllm, Target(small, 12), settings or Adaptive(), frozenset({END}))


def opened(apd: APD, prompt: tuple[int, ...] = PROMPT, seed: int = 3, **sampling: Any) -> Canvas:
    return apd.open(prompt, asked(**sampling), seed)


def answer(apd: APD, prompt: tuple[int, ...] = PROMPT, seed: int = 3, **sampling: Any) -> Uncovered:
    return uncover(apd, [Request(prompt, asked(**sampling), seed)])[0]


def asked(**sampling: Any) -> Sampling:
    """20 tokens that no end token cuts unless asked for."""
    return Sampling(**{"max_tokens": 20, "logit_bias": {END: -100}, **sampling})


@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("penalty", [1.0, 1.7])
@pytest.mark.parametrize("window", [1, 6, None])
def test_alpha_of_one_commits_every_visible_token(window: int | None, penalty: float, temperature: float) -> None:
    apd = decoder(Adaptive(alpha=1.0, schedule="fixed", window=window))
    text = answer(apd, temperature=temperature, repetition_penalty=penalty)
    size = window or 20
    assert text.unmasked_per_step == [size] * (20 // size) + [20 % size] * (20 % size > 0)


def test_a_sure_verifier_lets_the_next_step_see_more() -> None:
    apd = decoder(Adaptive(window=16, schedule="adaptive"))
    canvas = opened(apd)
    assert canvas.visible == 16
    apd.step([canvas])
    assert 4 <= canvas.visible < 16


def test_a_round_says_what_was_judged_and_what_was_reused() -> None:
    """The first token of a step is judged by nobody; only the last step's tokens and one more are computed anew."""
    apd = decoder(Adaptive(alpha=0.6, schedule="fixed", window=6, kv_window=2))
    canvas, before = opened(apd, temperature=1.0), 0
    while canvas.masked:
        settled = canvas.settled
        (round,) = apd.step([canvas])
        kept = len(round.committed)
        assert round.committed == round.proposed[:kept]
        assert (round.unjudged, round.drafted, round.accepted) == (1, len(round.proposed) - 1, kept - 1)
        assert len(round.reference) == round.drafted
        assert round.checked == min(kept, round.drafted)
        assert round.reference[: kept - 1] == round.committed[1:]
        assert round.drafted < kept or round.reference[kept - 1] != round.proposed[kept]
        assert (round.prefix_tokens, round.reused_tokens) == (settled, max(0, before - 1))
        before = settled


@pytest.mark.parametrize(("kv_window", "reused"), [(None, 0), (1, 3), (16, 0)])
def test_nothing_is_reused_without_a_window_or_where_it_is_wider_than_the_text(
    kv_window: int | None, reused: int
) -> None:
    apd = decoder(Adaptive(window=4, kv_window=kv_window))
    canvas = opened(apd)
    assert apd.step([canvas])[0].reused_tokens == 0
    assert apd.step([canvas])[0].reused_tokens == reused


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kv_window", [None, 2])
def test_apd_01_the_mask_is_never_the_answer(kv_window: int | None, temperature: float) -> None:
    """Were it not ruled out before the draws and before the confidence, its bias would make it every token."""
    settings = Adaptive(kv_window=kv_window)
    text = answer(decoder(settings), logit_bias={MASK: 100, END: -100}, temperature=temperature)
    assert text == answer(decoder(settings), temperature=temperature)
    assert len(text.tokens) == 20
    assert MASK not in text.tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_apd_02_every_step_commits_at_least_one_token(temperature: float) -> None:
    """A verifier that agrees with nothing: its own favourite is far from the dLLM's, and R is 0."""
    apd = decoder(Adaptive(alpha=0.0, window=4))
    texts = uncover(apd, [Request(PROMPT, asked(max_tokens=n, temperature=temperature), n) for n in (1, 20, 3)], 3)
    for text, length in zip(texts, (1, 20, 3), strict=True):
        assert len(text.tokens) == length
        assert min(text.unmasked_per_step) >= 1
        assert text.forward_passes <= length


@pytest.mark.parametrize("prompt_tokens", [1, 5, 8, 13])
@pytest.mark.parametrize("max_tokens", [1, 3, 8, 13, 20])
def test_apd_05_any_lengths(prompt_tokens: int, max_tokens: int) -> None:
    text = answer(decoder(Adaptive(window=8)), prompt=(3,) * prompt_tokens, max_tokens=max_tokens)
    assert (len(text.tokens), text.finish_reason) == (max_tokens, "length")
    assert MASK not in text.tokens


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_apd_04_the_answer_ends_at_its_end_token_and_nothing_behind_it_counts(alpha: float) -> None:
    text = answer(decoder(Adaptive(alpha=alpha)), logit_bias={END: 100})
    assert (text.tokens, text.finish_reason, text.unmasked_per_step) == ([END], "stop", [1])


def test_drafts_end_at_the_end_tokens_it_was_given_and_at_those_of_the_request() -> None:
    apd = replace(decoder(Adaptive(window=8)), end_token_ids=frozenset({2}))
    for sampling in ({"logit_bias": {2: 100}}, {"logit_bias": {4: 100}, "stop_token_ids": [4]}):
        (round,) = apd.step([opened(apd, **sampling)])
        assert len(round.proposed) == 1
        assert round.reference == ()


def test_end_tokens_of_the_prompt_do_not_matter() -> None:
    text = answer(decoder(), prompt=(END, 4, END))
    assert (len(text.tokens), text.finish_reason) == (20, "length")


def test_the_smaller_context_bounds_the_prompt() -> None:
    with pytest.raises(ContextOverflow, match="the model's context is 16"):
        answer(decoder(context_tokens=16), prompt=(3,) * 16)
    short = answer(decoder(context_tokens=16), prompt=(3,) * 12)
    assert (len(short.tokens), short.finish_reason) == (4, "length")


def test_prompts_that_cannot_be_decoded() -> None:
    for prompt, message in (((), "empty"), ((12,), "token id 12"), ((MASK,), "mask token")):
        with pytest.raises(BadRequest, match=message):
            answer(decoder(), prompt=prompt)


def test_holes_that_cannot_be_filled() -> None:
    hole = asked(max_tokens=5)
    with pytest.raises(BadRequest, match=r"Nothing stands before the hole.*The verifier predicts"):
        decoder(shift=0).check((), hole, (5,))
    with pytest.raises(BadRequest, match=r"Nothing stands before the hole.*beside the one before it"):
        decoder().check((), hole, (5,))
    with pytest.raises(ContextOverflow, match="Prefix and hole have 8 tokens, the model's context is 7"):
        decoder(context_tokens=7).check(PROMPT, hole, (5,))
    with pytest.raises(ContextOverflow, match="Prefix, hole and suffix have 41 tokens, the model's context is 40"):
        decoder().check(PROMPT, hole, (5,) * 33)
    decoder(context_tokens=8).check(PROMPT, hole, (5,))


def test_what_stands_behind_a_hole_matters() -> None:
    """It is in sight of the first pass, though the masks between are not; with these weights it changes a token."""
    apd = decoder(Adaptive(alpha=1.0, window=2))
    one, other = (uncover(apd, [Request(PROMPT, asked(), 3, suffix)])[0].tokens for suffix in ((4,) * 3, (9,) * 3))
    assert len(one) == len(other) == 20
    assert one[:2] != other[:2]


def test_the_seed_decides_and_nothing_else() -> None:
    texts = [answer(decoder(), temperature=1.0, seed=seed).tokens for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.slow
def test_the_second_token_is_kept_as_often_as_the_coupling_law_says() -> None:
    """One step on one context, 100,000 seeds, 5 sigma: false alarm 6e-7.

    The second draft agrees with the product's choice with probability sum over v of 1 / sum_u max(p_u / p_v, q_u / q_v)
    (arXiv:2408.07978), where p is the dLLM's marginal and q the product, which depends on the first draft.
    """
    seeds, batch = 100_000, 1000
    apd = decoder(Adaptive(alpha=0.4, schedule="fixed", window=2, kv_window=None))
    sampling: dict[str, Any] = {"max_tokens": 2, "temperature": 1.0, "logit_bias": {}}
    kept = 0
    for first in range(0, seeds, batch):
        canvases = [opened(apd, seed=seed, **sampling) for seed in range(first, first + batch)]
        kept += sum(len(round.committed) == 2 for round in apd.step(canvases))
    canvas = opened(apd, **sampling)
    with torch.inference_mode():
        (marginal,) = apd.dllm.scores([canvas], [apd.rows(canvas)], [canvas.masked])
    expected = 0.0
    for token, chance in enumerate(marginal[0].softmax(-1).tolist()):
        if token in (END, MASK):  # the answer would end there; the mask is never drawn
            continue
        canvas = opened(apd, **sampling)
        with torch.inference_mode():
            (joint,) = apd.read([canvas], [[token, 0]])
        expected += chance * float(agreement(marginal[1:].softmax(-1), product(marginal, joint, 0.4)[1:].softmax(-1)))
    sigma = math.sqrt(expected * (1 - expected) / seeds)
    assert abs(kept / seeds - expected) < 5 * sigma
