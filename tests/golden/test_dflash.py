"""Both versions of the DFlash drafter, and the decode loop, against the values of the reference implementation.

In float32 (tests/data/golden/README.md): tensors within 1e-4, tokens exactly. What only version 2 has is in
test_dflash2.
"""

from __future__ import annotations

import json
import warnings
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from scripted import answer_all
from tiny import GOLDEN, fill_block, remember, run_flat, tiny_cache, tiny_context
from torch import Tensor

from paceline.decode.dflash import DFlash
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.engine.loop import Job
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import default_target_layer_ids
from paceline.models.load import load_drafter, load_transformer
from paceline.models.transformer import Transformer
from paceline.request import Sampling

CASES = sorted(path.name for path in GOLDEN.glob("dflash-v*"))


@cache
def expected(case: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return json.loads((GOLDEN / case / "cases.json").read_text()), load_file(GOLDEN / case / "expected.safetensors")


@cache
def pair(case: str, plain: bool = False) -> tuple[Transformer, Drafter]:
    target = load_transformer(GOLDEN / case / "target", torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some name no taps: see tests/models/test_load.py
        return target, load_drafter(GOLDEN / case / "draft", target, torch.float32, trainable=plain)


def test_all_six_cases_are_here() -> None:
    assert len(CASES) == 6


@pytest.mark.parametrize("case", CASES)
def test_taps_block_and_mask(case: str) -> None:
    cases, _ = expected(case)
    spec = pair(case)[1].spec
    assert list(spec.target_layer_ids) == cases["target_layer_ids"]
    assert spec.block_size == cases["block_size"]
    assert spec.mask_token_id == cases["mask_token_id"]
    for sizes, taps in cases["default_target_layer_ids"].items():
        assert list(default_target_layer_ids(*map(int, sizes.split(",")))) == taps


@torch.no_grad()
@pytest.mark.parametrize("plain", [False, True], ids=["prepared", "plain"])
@pytest.mark.parametrize("prompt", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_features_context_block_and_logits(case: str, prompt: int, plain: bool) -> None:
    """Both steps: the prompt's context, then what the first round committed; block rows leave no trace."""
    cases, tensors = expected(case)
    target, drafter = pair(case, plain)
    generation = cases["cases"][prompt]
    fed = [generation["prompt"], generation["output_ids"][: generation["produced_per_step"][0]]]
    target_cache, context = tiny_cache(target), tiny_context(drafter)
    for step, tokens in enumerate(fed):
        name, start = f"prompt{prompt}.step{step}.", context.length
        features = run_flat(target, [tokens], [target_cache], drafter.spec.target_layer_ids).features
        assert features is not None
        close(features, tensors[name + "target_features"])
        close(drafter.hidden_norm(drafter.fc(features)), tensors[name + "fused_context"])
        remember(drafter, context, features)
        block = generation[f"step{step}"]["block_token_ids"]
        assert generation[f"step{step}"]["position_ids"] == list(range(start, context.length + len(block)))
        hidden = fill_block(drafter, context, block)
        close(hidden, tensors[name + "block_hidden"])
        close(drafter.logits(hidden[1:]), tensors[name + "draft_logits"])


GENERATIONS = [(case, index) for case in CASES for index in range(len(expected(case)[0]["cases"]))]


@pytest.mark.parametrize(("case", "index"), GENERATIONS)
def test_generations(case: str, index: int) -> None:
    """The decode loop drafts what the reference drafts, and commits as much of it."""
    cases, _ = expected(case)
    generation = cases["cases"][index]
    prompt = generation.get("prompt") or cases["cases"][generation["prompt_index"]]["prompt"]
    target, drafter = pair(case)
    settings = Speculation(block_size=generation["block_size"])
    decoder = DFlash(Target(target, 256, drafter.spec.target_layer_ids), drafter, settings)
    stops = tuple(generation["stop_token_ids"] or ())
    sampling = Sampling(max_tokens=generation["max_new_tokens"], stop_token_ids=stops)
    (answer,) = answer_all(decoder, [Job(tuple(prompt), sampling, seed=0)])
    assert answer.token_ids == generation["output_ids"]
    assert [len(round.committed) for round in answer.rounds] == generation["produced_per_step"]
    if "draft_tokens_per_step" in generation:
        assert [list(round.proposed) for round in answer.rounds] == generation["draft_tokens_per_step"]
        context = [len(prompt), *(len(round.committed) for round in answer.rounds[:-1])]
        assert context == generation["new_context_per_step"]


def close(value: Tensor, reference: Tensor) -> None:
    torch.testing.assert_close(value, reference, atol=1e-4, rtol=0.0)
