"""The DFlash 2 drafter against the values of the reference implementation (tests/data/golden/README.md), float32.

The drafter alone, fed with what the reference fed it: tensors within 1e-4, tokens exactly.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from scripted import answer_all
from tiny import GOLDEN, run_flat, same_weights, tiny_cache
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.dflash import DFlash
from paceline.decode.target import Target
from paceline.engine.loop import Job
from paceline.models.attention import Segment
from paceline.models.drafter import Drafter
from paceline.models.load import load_drafter, load_transformer
from paceline.models.save import save_drafter
from paceline.models.selector import CandidateSelector
from paceline.models.transformer import Transformer
from paceline.request import Sampling

CASE = GOLDEN / "dflash-v2"
CASES: dict[str, Any] = json.loads((CASE / "cases.json").read_text())
EXPECTED = load_file(CASE / "expected.safetensors")
PROMPTS = (0, 1)
BLOCK_SIZE = CASES["block_size"]


@cache
def pair(plain: bool = False) -> tuple[Transformer, Drafter]:
    target = load_transformer(CASE / "target", torch.float32)
    return target, load_drafter(CASE / "draft", target, torch.float32, trainable=plain)


def test_the_specification() -> None:
    spec = pair()[1].spec
    assert (spec.block_size, spec.mask_token_id) == (CASES["block_size"], CASES["mask_token_id"])
    assert list(spec.target_layer_ids) == CASES["target_layer_ids"]
    assert spec.v2 is not None
    assert (spec.v2.kernel_size, spec.v2.group_size, spec.v2.selector_rank, spec.v2.selector_top_k) == (2, 16, 8, 8)


@torch.no_grad()
@pytest.mark.parametrize("plain", [False, True], ids=["prepared", "plain"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_context_block_logits_and_selector(prompt: int, plain: bool) -> None:
    """Both steps: the prompt's context, then what the first round committed."""
    target, drafter = pair(plain)
    generation = CASES["cases"][prompt]
    fed = [generation["prompt"], generation["output_ids"][: generation["produced_per_step"][0]]]
    target_cache, draft_cache = tiny_cache(target), empty(drafter)
    for step, tokens in enumerate(fed):
        name = f"prompt{prompt}.step{step}."
        features = features_of(target, drafter, tokens, target_cache)
        close(features, EXPECTED[name + "target_features"])
        close(drafter.hidden_norm(drafter.fc(features)), EXPECTED[name + "fused_context"])
        remember(drafter, draft_cache, features)
        record = generation[f"step{step}"]
        hidden = fill(drafter, draft_cache, record["block_token_ids"])
        close(hidden, EXPECTED[name + "block_hidden"])
        logits = drafter.logits(hidden[1:])
        close(logits, EXPECTED[name + "draft_logits"])
        compare_selector(selector_of(drafter), name, hidden[1:], logits, record)


def compare_selector(
    selector: CandidateSelector, name: str, hidden: Tensor, logits: Tensor, record: dict[str, Any]
) -> None:
    candidates = logits.topk(selector.top_k).indices.sort(-1).values
    assert torch.equal(candidates, EXPECTED[name + "selector_candidates_sorted"])
    unary = logits.gather(-1, candidates)
    close(unary, EXPECTED[name + "selector_unary"])
    anchor, *chosen = [record["block_token_ids"][0], *record["selector_tokens"]]
    before = torch.tensor([anchor, *chosen[:-1]]).unsqueeze(-1)
    scores = unary + selector.pair_scores(hidden, before, candidates).squeeze(1)
    close(scores, EXPECTED[name + "selector_scores"])
    assert selector.select(hidden, logits, torch.tensor(anchor)).tolist() == chosen


@torch.no_grad()
@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_draft_of_a_generation(prompt: int) -> None:
    """What the target committed is taken from the records, so this is the drafter and the plain walk alone."""
    target, drafter = pair()
    generation = CASES["cases"][prompt]
    text = [*generation["prompt"], *generation["output_ids"]]
    target_cache, draft_cache = tiny_cache(target), empty(drafter)
    start, end = len(generation["prompt"]), len(generation["prompt"]) + generation["max_new_tokens"]
    for produced, drafts in zip(generation["produced_per_step"], generation["draft_tokens_per_step"], strict=True):
        known = draft_cache.length
        remember(drafter, draft_cache, features_of(target, drafter, text[known:start], target_cache))
        block = [text[start], *[CASES["mask_token_id"]] * (min(BLOCK_SIZE, end - start) - 1)]
        hidden = fill(drafter, draft_cache, block)[1:]
        assert selector_of(drafter).select(hidden, drafter.logits(hidden), torch.tensor(text[start])).tolist() == drafts
        agreed = [ours == theirs for ours, theirs in zip(drafts, text[start + 1 :], strict=False)]
        assert min([*agreed, False].index(False) + 1, end - start - 1) == produced
        start += produced


@pytest.mark.parametrize("index", range(len(CASES["cases"])))
def test_generations(index: int) -> None:
    """The decode loop drafts what the reference drafts, and commits as much of it."""
    generation = CASES["cases"][index]
    prompt = generation.get("prompt") or CASES["cases"][generation["prompt_index"]]["prompt"]
    target, drafter = pair()
    decoder = DFlash(Target(target, 256, drafter.spec.target_layer_ids), drafter, generation["block_size"])
    stops = tuple(generation["stop_token_ids"] or ())
    sampling = Sampling(max_tokens=generation["max_new_tokens"], stop_token_ids=stops)
    (answer,) = answer_all(decoder, [Job(tuple(prompt), sampling, seed=0)])
    assert answer.token_ids == generation["output_ids"]
    assert [len(round.committed) for round in answer.rounds] == generation["produced_per_step"]
    if "draft_tokens_per_step" in generation:
        assert [list(round.proposed) for round in answer.rounds] == generation["draft_tokens_per_step"]


def test_codebooks_with_and_without_weight_behind_their_names(tmp_path: Path) -> None:
    """Both key styles load; saved is the published one, config included."""
    target, drafter = pair()
    tensors = load_file(CASE / "draft" / "model.safetensors")
    renamed = {f"{name}.weight" if name.endswith("_codebook") else name: tensor for name, tensor in tensors.items()}
    assert len(renamed.keys() - tensors.keys()) == 2
    save_file(renamed, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((CASE / "draft" / "config.json").read_text())
    loaded = load_drafter(tmp_path, target, torch.float32)
    assert same_weights(loaded, drafter)
    save_drafter(loaded, tmp_path / "saved", torch.float32)
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert saved.keys() == tensors.keys()
    assert all(torch.equal(saved[name], tensors[name]) for name in tensors)
    assert load_drafter(tmp_path / "saved", target).spec == drafter.spec


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_published_code_opens_what_is_saved(tmp_path: Path) -> None:
    library = pytest.importorskip("dflash.model")
    target, drafter = pair()
    save_drafter(drafter, tmp_path, torch.float32)
    theirs = library.DFlash2DraftModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    name, record = "prompt0.step0.", CASES["cases"][0]["step0"]
    with torch.no_grad():
        block = torch.tensor([record["block_token_ids"]])
        hidden = theirs(
            target_hidden=EXPECTED[name + "target_features"].unsqueeze(0),
            noise_embedding=target.embed(block),
            position_ids=torch.tensor([record["position_ids"]]),
        )
        tokens, *_ = theirs.propose(hidden[:, 1:], block[:, 0], target.head, 0.0)
    close(hidden[0], EXPECTED[name + "block_hidden"])
    assert tokens[0].tolist() == record["selector_tokens"]


def close(value: Tensor, reference: Tensor) -> None:
    torch.testing.assert_close(value, reference, atol=1e-4, rtol=0.0)


def selector_of(drafter: Drafter) -> CandidateSelector:
    assert drafter.selector is not None
    return drafter.selector


def features_of(target: Transformer, drafter: Drafter, tokens: list[int], cache: SequenceCache) -> Tensor:
    features = run_flat(target, [tokens], [cache], drafter.spec.target_layer_ids).features
    assert features is not None
    return features


def fill(drafter: Drafter, cache: SequenceCache, block: list[int]) -> Tensor:
    positions = torch.arange(cache.length, cache.length + len(block))
    attend = drafter.attention([Segment(len(block), cache)])
    hidden: Tensor = drafter(torch.tensor(block), positions, attend, [len(block)])
    return hidden


def empty(drafter: Drafter) -> SequenceCache:
    block = drafter.spec.block
    return SequenceCache(block.num_layers, block.num_kv_heads, block.head_dim, 8, torch.float32, torch.device("cpu"))


def remember(drafter: Drafter, cache: SequenceCache, features: Tensor) -> None:
    cache.extend(*drafter.context(features, torch.arange(cache.length, cache.length + len(features))))
