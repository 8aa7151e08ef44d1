"""What only the DFlash 2 drafter has, against the values of the reference implementation (tests/data/golden/README.md).

The drafter alone, fed with what the reference fed it, in float32: tensors within 1e-4, tokens exactly. The rest is in
test_dflash.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import GOLDEN, fill_block, remember, run_flat, same_weights, tiny_cache, tiny_context
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.models.attention import Segment
from paceline.models.drafter import Drafter
from paceline.models.load import load_drafter, load_transformer
from paceline.models.save import save_drafter
from paceline.models.selector import CandidateSelector
from paceline.models.transformer import Transformer

CASE = GOLDEN / "dflash-v2"
CASES: dict[str, Any] = json.loads((CASE / "cases.json").read_text())
EXPECTED = load_file(CASE / "expected.safetensors")
PROMPTS = (0, 1)
BLOCK_SIZE = CASES["block_size"]


@cache
def pair() -> tuple[Transformer, Drafter]:
    target = load_transformer(CASE / "target", torch.float32)
    return target, load_drafter(CASE / "draft", target, torch.float32)


def test_the_specification() -> None:
    spec = pair()[1].spec.v2
    assert spec is not None
    assert (spec.kernel_size, spec.group_size, spec.selector_rank, spec.selector_top_k) == (2, 16, 8, 8)


@torch.no_grad()
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_selector(prompt: int, step: int) -> None:
    name, record = f"prompt{prompt}.step{step}.", CASES["cases"][prompt][f"step{step}"]
    selector, hidden, logits = (
        selector_of(pair()[1]),
        EXPECTED[name + "block_hidden"][1:],
        EXPECTED[name + "draft_logits"],
    )
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
def test_states_and_logits_of_one_read(prompt: int) -> None:
    """Native where it can be: all of the pass in one call."""
    name, record = f"prompt{prompt}.step0.", CASES["cases"][prompt]["step0"]
    drafter = pair()[1]
    cache, block = tiny_context(drafter, EXPECTED[name + "target_features"]), record["block_token_ids"]
    asked = torch.tensor(block), torch.tensor(record["position_ids"][-len(block) :])
    rows = [len(block)]
    hidden, logits = drafter.read(*asked, drafter.attention([Segment(*rows, cache)]), rows)
    close(hidden, EXPECTED[name + "block_hidden"][1:])
    close(logits, EXPECTED[name + "draft_logits"])


@torch.no_grad()
@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_draft_of_a_generation(prompt: int) -> None:
    """What the target committed is taken from the records, so this is the drafter and the plain walk alone."""
    target, drafter = pair()
    generation = CASES["cases"][prompt]
    text = [*generation["prompt"], *generation["output_ids"]]
    target_cache, draft_cache = tiny_cache(target), tiny_context(drafter)
    start, end = len(generation["prompt"]), len(generation["prompt"]) + generation["max_new_tokens"]
    for produced, drafts in zip(generation["produced_per_step"], generation["draft_tokens_per_step"], strict=True):
        known = draft_cache.length
        remember(drafter, draft_cache, features_of(target, drafter, text[known:start], target_cache))
        block = [text[start], *[CASES["mask_token_id"]] * (min(BLOCK_SIZE, end - start) - 1)]
        hidden = fill_block(drafter, draft_cache, block)[1:]
        assert selector_of(drafter).select(hidden, drafter.logits(hidden), torch.tensor(text[start])).tolist() == drafts
        agreed = [ours == theirs for ours, theirs in zip(drafts, text[start + 1 :], strict=False)]
        assert min([*agreed, False].index(False) + 1, end - start - 1) == produced
        start += produced


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
