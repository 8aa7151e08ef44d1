"""What is trained of a DFlash 2 drafter besides what a DFlash drafter learns: convolutions and selector."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scripted import drafter_of
from tiny import tiny_drafter_spec, tiny_spec, tiny_transformer, write_checkpoint
from torch import Tensor

from paceline.errors import ConfigError, TrainingError
from paceline.models.attention import Segment
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import DFlash2
from paceline.models.load import load_drafter
from paceline.models.transformer import Transformer
from paceline.train import drafter as recipe
from paceline.train.blocks import Blocks, open_blocks, predict
from paceline.train.denoise import acceptance_length
from paceline.train.drafter import bundled_drafter_spec, draft_loss, new_drafter, train_drafter
from paceline.train.fit.optimizers import new_optimizers
from paceline.train.fit.recompute import layers_recomputed
from paceline.train.losses import candidate_nats, decay_weights, token_nats, weighted_mean, with_target
from paceline.train.options import DrafterConfig, FitConfig, Objective, VersionConfig
from paceline.train.responses import Responses

V2 = DFlash2(kernel_size=2, group_size=8, selector_rank=4, selector_top_k=3)
WIDTH, BLOCK, ANCHORS = 24, 6, (4, 7, 10)


@pytest.fixture(scope="module")
def target() -> Transformer:
    return tiny_transformer(tiny_spec())


def random_blocks(drafter: Drafter, rows: int = 2, length: int = 14) -> Blocks:
    draw = torch.Generator().manual_seed(5)
    tokens = torch.randint(50, (rows, WIDTH), generator=draw)
    tapped = torch.randn(rows, WIDTH, drafter.fc.weight.shape[1], generator=draw)
    anchors = torch.tensor([ANCHORS] * rows)
    return Blocks(tokens, tapped, anchors, torch.full((rows,), length), torch.arange(BLOCK))


@pytest.mark.parametrize("k", [1, 2, 7])
def test_candidates_and_the_right_token(k: int) -> None:
    """As sets, slot by slot, `==`."""
    draw = torch.Generator().manual_seed(k)
    candidates = torch.stack([torch.randperm(9, generator=draw)[:k] for _ in range(60)]).view(3, 20, k)
    targets = torch.randint(9, (3, 20), generator=draw)
    ids, counted = with_target(candidates, targets)
    assert ids.shape == counted.shape == (3, 20, k + 1)
    for row in range(3):
        for slot in range(20):
            kept = ids[row, slot][counted[row, slot]].tolist()
            assert kept[-1] == int(targets[row, slot])
            assert sorted(kept) == sorted({*candidates[row, slot].tolist(), int(targets[row, slot])})


def slow_nats(drafter: Drafter, blocks: Blocks) -> list[float]:
    """Slot by slot: logits of the likeliest tokens and of the right one, with the pair term behind the true token."""
    opened, selector = open_blocks(drafter, blocks), drafter.selector
    assert selector is not None
    states, logits = opened.states(opened.masked), opened.fill(opened.masked)
    nats = []
    for row, anchors in enumerate(blocks.anchors.tolist()):
        for block, anchor in enumerate(anchors):
            for slot in range(1, BLOCK):
                before, right = (int(blocks.tokens[row, anchor + place]) for place in (slot - 1, slot))
                scores = logits[row, block, slot - 1]
                kept = list(dict.fromkeys([*scores.topk(selector.top_k).indices.tolist(), right]))
                left = selector.predecessor_codebook[before]
                state = selector.hidden_projection.weight @ states[row, block, slot - 1]
                pairs = (left * state) @ selector.successor_codebook[kept].T
                nats.append(float(F.cross_entropy(scores[kept] + pairs, torch.tensor(kept.index(right)))))
    return nats


@pytest.mark.parametrize("top_k", [1, 3, 64])
def test_the_selectors_loss_slot_by_slot(target: Transformer, top_k: int) -> None:
    """float64, the same up to the order of sums; with all tokens as candidates, the marginals' loss plus the pairs."""
    drafter = drafter_of(target, block_size=BLOCK, v2=replace(V2, selector_top_k=top_k))
    blocks = random_blocks(drafter)
    opened = open_blocks(drafter, blocks)
    states, logits = opened.states(opened.masked), opened.fill(opened.masked)
    assert drafter.selector is not None
    ours = recipe._selector_nats(drafter.selector, opened, states, logits)
    assert ours.flatten().tolist() == pytest.approx(slow_nats(drafter, blocks), abs=1e-5)


def test_the_selectors_loss_is_exact_where_sums_are() -> None:
    """`==`: candidates of equal score are equally likely, others impossible, the right token among the first or not."""
    scores = torch.tensor([[0.0, 0.0, -1e9, 0.0], [0.0, -1e9, -1e9, 0.0], [-1e9, -1e9, 5.0, -1e9]]).double()
    counted = torch.tensor([[True, True, True, True], [False, True, True, True], [True, True, True, True]])
    expected = torch.stack([torch.tensor(float(n)).double().log() for n in (3, 1)])
    assert candidate_nats(scores, counted)[:2].tolist() == expected.tolist()
    assert float(candidate_nats(scores, counted)[2]) == 1e9 + 5.0


def test_it_is_added_to_the_usual_loss(target: Transformer) -> None:
    """With the weights of the slots; slots behind the end of an answer count in neither."""
    drafter = drafter_of(target, block_size=BLOCK, v2=V2)
    blocks = random_blocks(drafter)
    said = predict(drafter, blocks)
    nats = torch.tensor(slow_nats(drafter, blocks)).view(said.targets.shape)
    weights = decay_weights(torch.arange(1, BLOCK), 7.0).expand(nats.shape) * said.real
    assert not said.real.all()
    expected = float(weighted_mean(token_nats(said.logits, said.targets) + nats, weights))
    assert float(draft_loss(drafter, Objective(), blocks)) == pytest.approx(expected, rel=1e-5)


def test_acceptance_length_is_that_of_the_selectors_drafts(target: Transformer) -> None:
    drafter = drafter_of(target, block_size=BLOCK, v2=V2)
    blocks = random_blocks(drafter, length=WIDTH)
    opened, selector = open_blocks(drafter, blocks), drafter.selector
    assert selector is not None
    drafts = selector.select(opened.states(opened.masked), opened.fill(opened.masked), opened.masked[..., 0])
    # Answers that say what the selector would, for two slots of each block.
    for row in range(2):
        blocks.tokens[row, ANCHORS[0] + 1 : ANCHORS[0] + 3] = drafts[row, 0, :2]
    found = acceptance_length(drafter, blocks._replace(anchors=blocks.anchors[:, :1]))
    agreed = drafts[:, 0] == blocks.tokens[:, ANCHORS[0] + 1 : ANCHORS[0] + BLOCK]
    assert found == float((agreed.long().cumprod(-1).sum(-1) + 1.0).mean()) >= 3.0


def test_training_sees_what_decoding_sees(target: Transformer) -> None:
    """Each block of a batch by itself, behind its own context, with its own neighbours."""
    drafter = drafter_of(target, block_size=BLOCK, v2=V2)
    blocks = random_blocks(drafter)
    said = predict(drafter, blocks).logits
    for row in range(2):
        for block, anchor in enumerate(ANCHORS):
            cache = Segment(BLOCK, empty_cache(drafter))
            cache.cache.extend(*drafter.context(blocks.tapped[row, :anchor].float(), torch.arange(anchor)))
            tokens = torch.tensor([int(blocks.tokens[row, anchor]), *[drafter.spec.mask_token_id] * (BLOCK - 1)])
            positions = torch.arange(anchor, anchor + BLOCK)
            alone = drafter.logits(drafter(tokens, positions, drafter.attention([cache]), [BLOCK])[1:])
            torch.testing.assert_close(said[row, block], alone, atol=1e-9, rtol=0)


def empty_cache(drafter: Drafter) -> Any:
    from paceline.cache.store import SequenceCache

    block, weight = drafter.spec.block, drafter.fc.weight
    return SequenceCache(block.num_layers, block.num_kv_heads, block.head_dim, 1, weight.dtype, weight.device)


def single(**changes: Any) -> tuple[Transformer, Drafter]:
    """A float32 target and an untrained drafter of version 2."""
    target = tiny_transformer(tiny_spec(), dtype=torch.float32)
    return target, new_drafter(tiny_drafter_spec(target.spec, block_size=BLOCK, v2=V2, **changes), target)


def test_a_new_one_starts_as_version_1_would() -> None:
    target, drafter = single()
    first = Drafter(replace(drafter.spec, v2=None), target)
    first.load_state_dict({name: tensor for name, tensor in drafter.state_dict().items() if name in first.state_dict()})
    blocks = random_blocks(drafter)
    assert torch.equal(predict(drafter, blocks).logits, predict(first, blocks).logits)
    assert acceptance_length(drafter, blocks) == acceptance_length(first, blocks)


def test_every_weight_learns_kept_or_recomputed() -> None:
    """After the first step, whose zeros hold back what is multiplied with them; the same gradients either way, `==`."""
    _, drafter = single()
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    blocks, found = random_blocks(drafter), []
    for recomputed in (False, True):
        drafter.zero_grad()
        with layers_recomputed(drafter, recomputed):
            draft_loss(drafter, Objective(), blocks).backward()
        assert all(each.grad is not None and each.grad.any() for each in drafter.parameters())
        found.append([each.grad.clone() for each in drafter.parameters() if each.grad is not None])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_codebooks_are_no_products() -> None:
    """Rows that are looked up have no common spectrum to level: AdamW, as for embeddings."""
    _, drafter = single()
    muon, adam = new_optimizers(drafter, FitConfig(steps=1))
    products, others = ([p for group in each.param_groups for p in group["params"]] for each in (muon, adam))
    assert drafter.selector is not None
    assert any(p is drafter.selector.hidden_projection.weight for p in products)
    for table in (drafter.selector.predecessor_codebook, drafter.selector.successor_codebook):
        assert any(p is table for p in others)
    assert len(products) + len(others) == len(list(drafter.parameters()))


def either_or(rows: int) -> Responses:
    """Answers of pairs that nothing announces: (1, 11) or (2, 12), at random."""
    draw = torch.Generator().manual_seed(3)
    coin = torch.randint(2, (rows, WIDTH // 2), generator=draw)
    tokens = torch.stack((1 + coin, 11 + coin), -1).flatten(1)
    return Responses(tokens, torch.full((rows,), 4), torch.full((rows,), WIDTH))


def config_of(steps: int, **changes: Any) -> DrafterConfig:
    fit = FitConfig(steps=steps, learning_rate=0.02, warmup_steps=1, save_every=2, evaluate_every=steps)
    return DrafterConfig(fit, rows_per_batch=4, block_rows=18, heldout_rows=8, **changes)


def test_trained_saved_and_loaded(tmp_path: Path) -> None:
    """The loss falls, the selector has learnt which token belongs behind which, and the checkpoint says the same."""
    target, drafter = single()
    train_drafter(drafter, target, either_or(40), config_of(30), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert drafter.selector is not None
    with torch.no_grad():
        hidden = drafter.norm(torch.ones(1, 32))
        assert drafter.selector.pair_scores(hidden, torch.tensor([[1, 2]]), torch.tensor([[11, 12]])).any()
    loaded = load_drafter(write_checkpoint(tmp_path / "saved", drafter), target, trainable=True)
    assert loaded.spec == drafter.spec
    blocks = random_blocks(drafter)
    assert torch.equal(predict(loaded, blocks).logits, predict(drafter, blocks).logits)
    assert acceptance_length(loaded, blocks) == acceptance_length(drafter, blocks)


def test_it_is_resumed_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the fourth step, behind the checkpoint of the second: weights to the last bit."""
    target, _ = single()
    whole, killed, resumed = (single()[1] for _ in range(3))
    config = config_of(5, objective=Objective("pace", reveal_share=0.5))
    train_drafter(whole, target, either_or(12), config, tmp_path / "whole")
    loss, calls = recipe.draft_loss, list[int]()

    def dying(*given: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return loss(*given)

    monkeypatch.setattr(recipe, "draft_loss", dying)
    with pytest.raises(KeyboardInterrupt):
        train_drafter(killed, target, either_or(12), config, tmp_path / "killed")
    train_drafter(resumed, target, either_or(12), config, tmp_path / "killed")
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_a_run_that_is_older_than_the_setting_goes_on_as_version_1(tmp_path: Path) -> None:
    """Nothing is trained twice; as version 2 it is refused."""
    target, second = single()
    first, again = (new_drafter(replace(second.spec, v2=None), target) for _ in range(2))
    train_drafter(first, target, either_or(12), config_of(2), tmp_path)
    path = tmp_path / "checkpoint.pt"
    state = torch.load(path, weights_only=True)
    assert state["settings"].pop("version") == {
        "drafter_version": 1, "conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 64, "selector_top_k": 16,
    }  # fmt: skip
    torch.save(state, path)
    train_drafter(again, target, either_or(12), config_of(2), tmp_path)
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), again.parameters(), strict=True))
    with pytest.raises(TrainingError, match="another kind of model"):
        train_drafter(second, target, either_or(12), config_of(2, version=VersionConfig(2)), tmp_path)


def test_the_specification_of_a_new_one() -> None:
    spec = tiny_spec()
    assert bundled_drafter_spec(spec, 63, 8, VersionConfig()).v2 is None
    asked = VersionConfig(2, conv_kernel_size=3, conv_group_size=8, selector_rank=5, selector_top_k=7)
    assert bundled_drafter_spec(spec, 63, 8, asked).v2 == DFlash2(3, 8, 5, 7)
    for refused, told in (
        (replace(asked, conv_group_size=12), "conv_group_size is 12, the target is 32 wide"),
        (replace(asked, selector_top_k=65), "selector_top_k is 65, of 64 tokens"),
    ):
        with pytest.raises(ConfigError, match=told):
            bundled_drafter_spec(spec, 63, 8, refused)
