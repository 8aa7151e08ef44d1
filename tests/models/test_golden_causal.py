"""Every family against the reference implementation: hidden states, logits and greedy text of tiny checkpoints."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import GOLDEN, run_flat, tiny_cache
from torch import Tensor

from paceline.models.load import load_transformer
from paceline.models.transformer import Transformer

CASES = ["llama-tiny", "llama3-rope-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "qwen3-tied-tiny"]
TOLERANCE = 1e-4

pytestmark = [
    pytest.mark.parametrize("case", CASES),
    pytest.mark.parametrize("trainable", [False, True], ids=["prepared", "plain"]),
]


@cache
def model_of(case: str, trainable: bool) -> Transformer:
    return load_transformer(GOLDEN / case, torch.float32, trainable=trainable).requires_grad_(False)


@cache
def expected(case: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / case / "expected.safetensors")


@cache
def case_file(case: str) -> Any:
    return json.loads((GOLDEN / case / "cases.json").read_text())


def close(actual: Tensor, reference: Tensor) -> bool:
    return actual.shape == reference.shape and float((actual - reference).abs().max()) < TOLERANCE


def test_ragged_batch_gives_reference_logits_and_hidden_states(case: str, trainable: bool) -> None:
    model, values, prompts = model_of(case, trainable), expected(case), case_file(case)["prompts"]
    layers = range(model.spec.num_layers)
    output = run_flat(model, prompts, [tiny_cache(model) for _ in prompts], layers)
    assert close(model.head(output.hidden), torch.cat([values["logits_prompt0"], values["logits_prompt1"]]))
    assert close(model.embed(torch.tensor(prompts[0])), values["hidden_states_prompt0.0"])
    assert output.features is not None
    for layer, states in zip(layers, output.features[: len(prompts[0])].chunk(len(layers), -1), strict=True):
        assert close(states, values[f"hidden_states_prompt0.{layer + 1}"])


@pytest.mark.parametrize("cut", [1, 20, 36])
def test_prefill_in_two_pieces_gives_reference_logits(case: str, trainable: bool, cut: int) -> None:
    model, values, prompt = model_of(case, trainable), expected(case), case_file(case)["prompts"][0]
    rows = tiny_cache(model)
    pieces = [run_flat(model, [piece], [rows]).hidden for piece in (prompt[:cut], prompt[cut:])]
    assert close(model.head(torch.cat(pieces)), values["logits_prompt0"])


def test_continuation_logits(case: str, trainable: bool) -> None:
    model, values, content = model_of(case, trainable), expected(case), case_file(case)
    prompt, text = content["prompts"][0], content["greedy_continuations"][0]
    output = run_flat(model, [prompt + text[:-1]], [tiny_cache(model)])
    assert close(model.head(output.hidden[-len(text) :]), values["logits_prompt0_plus_continuation"])


def test_greedy_continuation_of_a_batch(case: str, trainable: bool) -> None:
    model, content = model_of(case, trainable), case_file(case)
    pieces, caches = content["prompts"], [tiny_cache(model) for _ in content["prompts"]]
    texts: list[list[int]] = [[] for _ in pieces]
    for _ in range(content["max_new_tokens"]):
        hidden = run_flat(model, pieces, caches).hidden
        last = torch.tensor([len(piece) for piece in pieces]).cumsum(0) - 1
        pieces = [[int(token)] for token in model.head(hidden[last]).argmax(-1)]
        for text, piece in zip(texts, pieces, strict=True):
            text.extend(piece)
    assert texts == content["greedy_continuations"]
