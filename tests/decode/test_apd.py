"""APD at its edges; tests/oracle and tests/golden say that its answers are right."""

from __future__ import annotations

import math
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
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.remasking import Remasking
from paceline.decode.target import Target
from paceline.errors import BadRequest, ContextOverflow
from paceline.models.diffusion_spec import Diffusion as DiffusionSpec
from paceline.request import Sampling

MASK, END = 11, 7
PROMPT = (5, 3, 2)


def decoder(settings: Adaptive | None = None, **verifier: Any) -> APD:
    """Two tiny models over 12 ids, the last of which is the mask."""
    spec = tiny_spec("qwen2", vocab_size=12, diffusion=DiffusionSpec(MASK, 1), eos_token_ids=(END,), context_tokens=40)
    dllm = MaskedDiffusion(tiny_transformer(spec), 12, Remasking())
    small = tiny_transformer(tiny_spec(vocab_size=12, num_layers=1, **verifier), seed=4)
    return APD(dllm, Target(small, 12), settings or Adaptive())


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
    apd = decoder(Adaptive(window=16))
    canvas = opened(apd)
    assert canvas.visible == 16
    apd.step([canvas])
    assert 4 <= canvas.visible < 16


def test_the_mask_is_never_the_answer() -> None:
    text = answer(decoder(), logit_bias={MASK: 100, END: -100})
    assert len(text.tokens) == 20
    assert MASK not in text.tokens


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_the_answer_ends_at_its_end_token_and_nothing_behind_it_counts(alpha: float) -> None:
    text = answer(decoder(Adaptive(alpha=alpha)), logit_bias={END: 100})
    assert (text.tokens, text.finish_reason, text.unmasked_per_step) == ([END], "stop", [1])


def test_end_tokens_of_the_prompt_do_not_matter() -> None:
    text = answer(decoder(), prompt=(END, 4, END))
    assert (len(text.tokens), text.finish_reason) == (20, "length")


def test_the_smaller_context_bounds_the_prompt() -> None:
    with pytest.raises(ContextOverflow, match="the model's context is 16"):
        answer(decoder(context_tokens=16), prompt=(3,) * 16)


def test_prompts_that_cannot_be_decoded() -> None:
    for prompt, message in (((), "empty"), ((12,), "token id 12"), ((MASK,), "mask token")):
        with pytest.raises(BadRequest, match=message):
            answer(decoder(), prompt=prompt)
    with pytest.raises(BadRequest, match="has a suffix"):
        decoder().check(PROMPT, Sampling(), (5,))


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
        (marginal,) = apd.dllm.scores([canvas], [apd.window(canvas)], [canvas.masked])
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
