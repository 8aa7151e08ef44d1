"""Masked-diffusion decoding at its edges; tests/oracle and tests/golden say that its answers are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from diffusing import Request, Uncovered, uncover
from tiny import tiny_spec, tiny_transformer
from torch import Tensor

from paceline.decode.canvas import Canvas
from paceline.decode.denoiser import Denoiser
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.remasking import Remasking
from paceline.errors import BadRequest, ContextOverflow
from paceline.models.diffusion_spec import Diffusion as DiffusionSpec
from paceline.request import Sampling

MASK, END = 63, 7
PROMPT = (5, 11, 2)


def decoder(remasking: Remasking | None = None, usable: int = 64, **changes: Any) -> MaskedDiffusion:
    diffusion = DiffusionSpec(MASK, 1)
    spec = tiny_spec("qwen2", **{"diffusion": diffusion, "eos_token_ids": (END,), "context_tokens": 20, **changes})
    return MaskedDiffusion(Denoiser(tiny_transformer(spec), usable), remasking or Remasking())


def answer(
    remasking: Remasking | None = None, prompt: tuple[int, ...] = PROMPT, seed: int = 3, **sampling: Any
) -> Uncovered:
    """One answer of at most 7 tokens, which no end token cuts unless asked for."""
    asked = Sampling(**{"max_tokens": 7, "logit_bias": {END: -100}, **sampling})
    return uncover(decoder(remasking), [Request(prompt, asked, seed)])[0]


@pytest.mark.parametrize(
    ("settings", "fixed"),
    [
        (Remasking(), [1] * 7),
        (Remasking(steps=3), [3, 2, 2]),
        (Remasking(steps=100), [1] * 7),
        (Remasking(steps=4, block_length=4), [2, 2, 2, 1]),
        (Remasking(steps=3, block_length=4), [2, 2, 3]),
        (Remasking(steps=1, block_length=3), [3, 3, 1]),
        (Remasking(tokens_per_step=4, block_length=5), [4, 1, 2]),
        (Remasking(tokens_per_step=100), [7]),
        (Remasking(steps=7, step_schedule="linear"), [0, 1, 1, 1, 1, 1, 2]),
        (Remasking(steps=2, step_schedule="linear", eps=0), [3, 4]),
        (Remasking(block_length=100, steps=2), [4, 3]),
        (Remasking(threshold=1.0), [1] * 7),
        (Remasking(factor=1e9), [7]),
    ],
    ids=str,
)
@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_tokens_fixed_in_each_pass(settings: Remasking, fixed: list[int], cache: Any) -> None:
    values = {name: getattr(settings, name) for name in Remasking.__slots__}
    assert answer(Remasking(**{**values, "cache": cache})).unmasked_per_step == fixed


@pytest.mark.parametrize("changes", [{}, {"steps": 5}, {"steps": 1, "step_schedule": "linear"}], ids=str)
@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_one_token(changes: dict[str, Any], cache: Any) -> None:
    one = answer(Remasking(**changes, cache=cache), prompt=(9,), max_tokens=1)
    assert (len(one.tokens), one.forward_passes, one.finish_reason) == (1, 1, "length")


def test_passes_without_a_token_are_run_where_dreams_schedule_has_them() -> None:
    one = answer(Remasking(steps=4, step_schedule="linear"), max_tokens=1)
    assert one.unmasked_per_step == [0, 0, 0, 1]


@pytest.mark.parametrize("strategy", ["low_confidence", "margin", "entropy", "random", "left_to_right"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_apd_01_the_mask_is_never_the_answer(temperature: float, strategy: Any) -> None:
    """Were it not banned, its bias would make it every token."""
    for settings in (Remasking(strategy), Remasking(strategy, block_length=3, cache="prefix")):
        text = answer(settings, logit_bias={MASK: 100, END: -100}, temperature=temperature)
        assert len(text.tokens) == 7
        assert MASK not in text.tokens
        assert text == answer(settings, temperature=temperature)


def test_apd_01_a_parallel_pass_rules_the_mask_out_before_its_confidences() -> None:
    text = answer(Remasking(threshold=0.2), logit_bias={MASK: 100, END: -100})
    assert text == answer(Remasking(threshold=0.2))


def test_apd_02_a_pass_in_which_no_token_reaches_the_threshold_fixes_the_best() -> None:
    """Other rows of the batch may be complete: they are out of it."""
    it = decoder(Remasking(threshold=1.0, block_length=4))
    requests = [Request(PROMPT, Sampling(max_tokens=n, logit_bias={END: -100}), n) for n in (4, 1, 12)]
    assert [text.unmasked_per_step for text in uncover(it, requests, 3)] == [[1] * 4, [1], [1] * 12]


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("prompt_tokens", [1, 5, 8, 13])
@pytest.mark.parametrize("max_tokens", [1, 3, 8, 13, 20])
def test_apd_05_lengths_that_are_no_multiples_of_the_block(prompt_tokens: int, max_tokens: int, cache: Any) -> None:
    settings = Remasking(block_length=8, tokens_per_step=3, cache=cache)
    asked = Sampling(max_tokens=max_tokens, logit_bias={END: -100})
    (text,) = uncover(decoder(settings, context_tokens=40), [Request((3,) * prompt_tokens, asked, 1)])
    assert (len(text.tokens), text.finish_reason) == (max_tokens, "length")
    assert MASK not in text.tokens


@pytest.mark.parametrize(
    ("settings", "reused"),
    [
        (Remasking(block_length=3), [0] * 7),
        (Remasking(block_length=3, cache="prefix"), [0, 2, 2, 0, 5, 5, 0]),
        (Remasking(block_length=3, cache="dual"), [0, 2, 2, 0, 5, 5, 0]),
        (Remasking("left_to_right", kv_window=2), [0, 2, 3, 4, 5, 6, 7]),
    ],
    ids=str,
)
def test_a_pass_says_which_part_of_the_prefix_it_took_over(settings: Remasking, reused: list[int]) -> None:
    """Prompt 0-2, hole 3-9; row i - 1 predicts position i, so that a block's pass computes one row before it."""
    it = decoder(settings)
    canvas, rounds = it.open(PROMPT, Sampling(max_tokens=7, logit_bias={END: -100}), 3), []
    while canvas.masked:
        settled = canvas.settled
        rounds += it.step([canvas])
        assert rounds[-1].prefix_tokens == settled
    assert [round.reused_tokens for round in rounds] == reused


def test_padding_of_the_vocabulary_is_never_the_answer() -> None:
    request = Request(PROMPT, Sampling(max_tokens=7, temperature=50.0), 1)
    assert max(uncover(decoder(usable=64), [request])[0].tokens) >= 12
    prompt = (1, 2)
    short = uncover(decoder(usable=12), [request._replace(prompt=prompt)])[0]
    assert max(short.tokens) < 12


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_apd_04_a_flood_of_end_tokens_is_cut_behind_the_first_and_not_counted(cache: Any) -> None:
    flooded = answer(Remasking(tokens_per_step=4, cache=cache), logit_bias={END: 100})
    assert (flooded.tokens, flooded.finish_reason) == ([END], "stop")
    assert sum(flooded.unmasked_per_step) == 1
    assert all(place == 0 for places in flooded.fixed for place in places)


class Flooding(Denoiser):
    """Gives what apd-04 has: the first four tokens of the answer a probability of 0.5, end tokens behind them 0.99."""

    def scores(self, canvases: Sequence[Canvas], rows: Any, masks: Sequence[list[int]]) -> list[Tensor]:
        return [
            self.flooded([place - canvas.hole.start for place in own])
            for canvas, own in zip(canvases, masks, strict=True)
        ]

    def flooded(self, places: list[int]) -> Tensor:
        law = torch.full((len(places), 64), 1e-9, dtype=torch.float64)
        for row, place in enumerate(places):
            law[row, 10:30] = 0.025 if place < 4 else 0.0005
            law[row, 40 + place if place < 4 else END] = 0.5 if place < 4 else 0.99
        return law.log()


@pytest.mark.parametrize("strategy", ["low_confidence", "margin", "entropy", "random"])
@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("stops", [True, False])
def test_apd_04_end_tokens_are_committed_last(temperature: float, strategy: Any, stops: bool) -> None:
    """At every temperature, whether it is an end token of the model or of the request. The text is the same here, as
    the scores stay; with the option it is done when the end is reached."""
    model = Flooding(decoder().dllm.model, 64)
    ends, sampling = (frozenset({END}), {}) if stops else (frozenset[int](), {"stop_token_ids": [END]})
    request = Request(PROMPT, Sampling(max_tokens=16, temperature=temperature, **sampling), 3)
    last, first = (
        uncover(MaskedDiffusion(model, Remasking(strategy, end_last=asked), ends), [request], ends=list(ends))[0]
        for asked in (True, False)
    )
    assert last.tokens == first.tokens
    assert len(last.tokens) == 5
    assert last.tokens[-1] == END
    assert last.finish_reason == "stop"
    assert last.fixed[-1] == [4]
    assert sorted(last.fixed[:-1]) == [[0], [1], [2], [3]]
    assert first.forward_passes > 5
    if temperature == 0.0:
        assert last.tokens == [40, 41, 42, 43, END]


def test_apd_04_a_pass_of_many_tokens_takes_end_tokens_after_the_others() -> None:
    model = Flooding(decoder().dllm.model, 64)
    request = Request(PROMPT, Sampling(max_tokens=16), 3)
    for settings, fixed in (
        (Remasking(tokens_per_step=3, end_last=True), [[0, 1, 2], [3, 4]]),
        (Remasking(threshold=0.9, end_last=True), [[0], [1], [2], [3], [4]]),
        (Remasking(threshold=0.4, end_last=True), [[0, 1, 2, 3], [4]]),
        (Remasking(tokens_per_step=3, block_length=2, end_last=True), [[0, 1], [2, 3], [4]]),
    ):
        (found,) = uncover(MaskedDiffusion(model, settings, frozenset({END})), [request])
        assert found.fixed == fixed, settings


def test_an_end_token_saves_the_passes_behind_it() -> None:
    settings = Remasking("left_to_right", tokens_per_step=2)
    assert answer(settings, logit_bias={END: 100}).forward_passes == 1


def test_end_tokens_of_the_prompt_do_not_matter() -> None:
    text = answer(prompt=(END, 4, END))
    assert (len(text.tokens), text.finish_reason) == (7, "length")


def test_stop_tokens_of_the_request_end_it_too() -> None:
    whole = answer().tokens
    cut = answer(stop_token_ids=[whole[3]])
    assert cut.tokens == whole[: whole.index(whole[3]) + 1]
    assert cut.finish_reason == "stop"


def test_the_context_bounds_the_answer() -> None:
    assert len(answer(prompt=(3,) * 15, max_tokens=100).tokens) == 5
    assert len(answer(prompt=(3,) * 19).tokens) == 1
    with pytest.raises(ContextOverflow, match="20 tokens, the model's context is 20"):
        answer(prompt=(3,) * 20)


def test_the_seed_decides_and_nothing_else() -> None:
    texts = [answer(Remasking(steps=3), temperature=1.0, seed=seed).tokens for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_cold_or_filtered_draw_is_greedy() -> None:
    greedy = answer(Remasking(steps=3))
    assert answer(Remasking(steps=3), temperature=1e-6) == greedy
    assert answer(Remasking(steps=3), temperature=1.0, top_k=1) == greedy


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_answers_of_other_settings_share_a_batch(cache: Any) -> None:
    """Penalties, filters, biases and lengths of one answer leave the others alone."""
    samplings = [
        Sampling(max_tokens=9, presence_penalty=1.5, temperature=0.7),
        Sampling(max_tokens=4, temperature=1.3, top_p=0.8),
        Sampling(max_tokens=1),
        Sampling(max_tokens=12, logit_bias={9: 5.0}, repetition_penalty=1.3),
        Sampling(max_tokens=12, frequency_penalty=2.0, temperature=0.2),
    ]
    requests = [Request(PROMPT[: 1 + i % 3], sampling, i) for i, sampling in enumerate(samplings)]
    it = decoder(Remasking(steps=6, block_length=5, cache=cache))
    alone = [uncover(it, [request])[0] for request in requests]
    for max_batch in (1, 2, 5, 9):
        assert uncover(it, requests, max_batch) == alone
    assert uncover(it, requests[::-1], 3) == alone[::-1]


def test_nothing_is_decoded_where_one_request_is_refused() -> None:
    it = decoder()
    with pytest.raises(BadRequest):
        uncover(it, [Request(PROMPT, Sampling(), 0), Request((), Sampling(), 0)])
    assert uncover(it, []) == []
