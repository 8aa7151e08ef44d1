"""Decoding Dream and LLaDA as the reference implementations do: tokens, passes and what each of them fixed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from diffusing import Request, uncover
from safetensors.torch import load_file
from tiny import GOLDEN

from paceline.decode.denoiser import Denoiser
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.remasking import Remasking
from paceline.decode.windows import freeze
from paceline.models.load import load_transformer
from paceline.models.transformer import Transformer
from paceline.request import Sampling

TOLERANCE = 1e-4
STRATEGIES = {"maskgit_plus": "low_confidence", "topk_margin": "margin", "entropy": "entropy", "origin": "random"}
FILES = {case: json.loads((GOLDEN / case / "cases.json").read_text()) for case in ("dream-tiny", "llada-tiny")}
DECODES = [(case, index) for case, file in FILES.items() for index in range(len(file["decodes"]))]
WINDOWS = json.loads((GOLDEN / "apd-tiny" / "cases.json").read_text())
WINDOW_CASES = [i for i, case in enumerate(WINDOWS["cases"]) if case.get("R") == 1.0 and case["must_match"]]


@cache
def model_of(case: str) -> Transformer:
    return load_transformer(GOLDEN / case, torch.float32)


def settings_of(decode: dict[str, Any]) -> Remasking:
    """The settings under which a published strategy goes here."""
    strategy = decode["strategy"]
    if strategy == "leftright":
        names = {"tokens_per_step": "tokens_per_step", "window": "max_lookahead", "kv_window": "kv_window"}
        return Remasking("left_to_right", **{name: decode.get(theirs) for name, theirs in names.items()})
    if strategy == "low_confidence":
        names = ("block_length", "steps", "threshold", "factor", "cache")
        return Remasking("low_confidence", **{name: decode[name] for name in names})
    return Remasking(STRATEGIES[strategy], steps=decode["steps"], step_schedule="linear", eps=decode["eps"])


@pytest.mark.parametrize(("case", "index"), DECODES)
def test_an_answer_is_the_references(case: str, index: int) -> None:
    decode = FILES[case]["decodes"][index]
    prompt = decode["prompt"] if "prompt" in decode else FILES[case]["prompts"][decode["prompt_index"]]
    expected = decode if decode["must_match"] else decode["plain_definition"]
    decoder = MaskedDiffusion(Denoiser(model_of(case), 256), settings_of(decode))
    request = Request(tuple(prompt), Sampling(max_tokens=decode["max_new_tokens"]), 0)
    (answer,) = uncover(decoder, [request])
    assert answer.tokens == expected["output_ids"]
    assert answer.forward_passes == expected["forward_passes"]
    assert answer.finish_reason == "length"
    if "unmasked_per_step" in expected:
        assert answer.unmasked_per_step == expected["unmasked_per_step"]


@pytest.mark.parametrize("index", WINDOW_CASES)
def test_windows_go_as_apd_does_where_it_accepts_all(index: int) -> None:
    """With R = 1 the verifier has no say: APD fixes all the masks it sees."""
    case = WINDOWS["cases"][index]
    seen, limit = case["max_lookahead"], case["max_new_tokens"]
    settings = Remasking("left_to_right", tokens_per_step=seen or limit, window=seen, kv_window=case["kv_window"])
    request = Request(tuple(WINDOWS["prompts"][case["prompt_index"]]), Sampling(max_tokens=limit), 0)
    (answer,) = uncover(MaskedDiffusion(Denoiser(model_of("apd-tiny/dream"), 256), settings), [request])
    assert answer.tokens == case["output_ids"]
    assert answer.unmasked_per_step == case["accepted_per_step"]
    assert answer.forward_passes == case["dllm_forward_passes"]


def test_windows_are_among_the_cases() -> None:
    windows = {(case["max_lookahead"], case["kv_window"]) for case in map(WINDOWS["cases"].__getitem__, WINDOW_CASES)}
    assert {(4, 1), (4, 8), (16, 1)} <= windows


@pytest.mark.parametrize("index", range(4))
def test_a_pass_over_frozen_keys_and_values_gives_the_references_logits(index: int) -> None:
    case, model = FILES["llada-tiny"]["cached_passes"][index], model_of("llada-tiny")
    expected = load_file(GOLDEN / "llada-tiny" / "expected.safetensors")[case["key"]]
    decoder = MaskedDiffusion(Denoiser(model, 256), Remasking(cache=case["cache"], block_length=case["block_length"]))
    prompt = FILES["llada-tiny"]["prompts"][case["prompt_index"]]
    canvas = decoder.open(prompt, Sampling(max_tokens=24), 0)
    canvas.tokens = list(case["sequence_at_block_start"])
    length, start = len(canvas.tokens), case["first_position"]
    with torch.inference_mode():
        decoder.dllm.read([canvas], [range(length)])
        freeze(canvas.cache, case["cache"], range(case["block_start"], case["block_end"]), length)
        window = range(start, start + len(case["input_ids_of_this_pass"]))
        canvas.tokens[window.start : window.stop] = case["input_ids_of_this_pass"]
        (hidden,) = decoder.dllm.read([canvas], [window])
        logits = model.head(hidden)
    assert logits.shape == expected.shape
    assert float((logits - expected).abs().max()) < TOLERANCE
