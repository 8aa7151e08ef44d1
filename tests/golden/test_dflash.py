"""DFlash v1 against the values of the reference implementation (tests/data/golden/README.md), float32, within 1e-4."""

from __future__ import annotations

import json
import warnings
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from scripted import answer_all
from tiny import GOLDEN, run_flat, tiny_cache
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.dflash import DFlash
from paceline.decode.target import Target
from paceline.engine.loop import Job
from paceline.models.attention import Segment
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import default_target_layer_ids
from paceline.models.load import load_drafter, load_transformer
from paceline.models.transformer import Transformer
from paceline.request import Sampling

CASES = sorted(path.name for path in GOLDEN.glob("dflash-v1-*"))
STEPS = [(case, prompt) for case in CASES for prompt in (0, 1)]
TOLERANCE = {"atol": 1e-4, "rtol": 0.0}


@cache
def expected(case: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return json.loads((GOLDEN / case / "cases.json").read_text()), load_file(GOLDEN / case / "expected.safetensors")


@cache
def pair(case: str) -> tuple[Transformer, Drafter]:
    target = load_transformer(GOLDEN / case / "target", torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some name no taps: see tests/models/test_load.py
        return target, load_drafter(GOLDEN / case / "draft", target, torch.float32)


def test_all_five_cases_are_here() -> None:
    assert len(CASES) == 5


@pytest.mark.parametrize("case", CASES)
def test_taps_block_and_mask(case: str) -> None:
    cases, _ = expected(case)
    spec = pair(case)[1].spec
    assert list(spec.target_layer_ids) == cases["target_layer_ids"]
    assert spec.block_size == cases["block_size"]
    assert spec.mask_token_id == cases["mask_token_id"]
    for sizes, taps in cases["default_target_layer_ids"].items():
        assert list(default_target_layer_ids(*map(int, sizes.split(",")))) == taps


@pytest.mark.parametrize(("case", "prompt"), STEPS)
def test_features_context_block_and_logits(case: str, prompt: int) -> None:
    """Both steps: the prompt's context, then what the first round committed; block rows leave no trace."""
    cases, tensors = expected(case)
    target, drafter = pair(case)
    generation = cases["cases"][prompt]
    produced = generation["produced_per_step"][0]
    fed = [generation["prompt"], generation["output_ids"][:produced]]
    target_cache, draft_cache = tiny_cache(target), empty(drafter)
    for step, tokens in enumerate(fed):
        name = f"prompt{prompt}.step{step}."
        start = target_cache.length
        features = run_flat(target, [tokens], [target_cache], drafter.spec.target_layer_ids).features
        assert features is not None
        close(features, tensors[name + "target_features"])
        close(drafter.hidden_norm(drafter.fc(features)), tensors[name + "fused_context"])
        remember(drafter, draft_cache, features, start)
        record = generation[f"step{step}"]
        block = record["block_token_ids"]
        positions = torch.arange(draft_cache.length, draft_cache.length + len(block))
        assert record["position_ids"] == [*range(start, draft_cache.length), *positions.tolist()]
        attend = drafter.attention([Segment(len(block), draft_cache)])
        hidden = drafter(torch.tensor(block), positions, attend)
        close(hidden, tensors[name + "block_hidden"])
        close(drafter.logits(hidden[1:]), tensors[name + "draft_logits"])


GENERATIONS = [(case, index) for case in CASES for index in range(len(expected(case)[0]["cases"]))]


@pytest.mark.parametrize(("case", "index"), GENERATIONS)
def test_generations(case: str, index: int) -> None:
    cases, _ = expected(case)
    generation = cases["cases"][index]
    prompt = generation.get("prompt") or cases["cases"][generation["prompt_index"]]["prompt"]
    target, drafter = pair(case)
    decoder = DFlash(Target(target, 256, drafter.spec.target_layer_ids), drafter, generation["block_size"])
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
    torch.testing.assert_close(value, reference, **TOLERANCE)


def empty(drafter: Drafter) -> SequenceCache:
    block = drafter.spec.block
    return SequenceCache(block.num_layers, block.num_kv_heads, block.head_dim, 8, torch.float32, torch.device("cpu"))


def remember(drafter: Drafter, cache: SequenceCache, features: Tensor, start: int) -> None:
    keys, values = drafter.context(features, torch.arange(start, start + len(features)))
    for layer, (k, v) in enumerate(zip(keys, values, strict=True)):
        cache.append(layer, k, v)
    cache.advance(len(features))
