"""What a drafter is trained on. training-01 is a report of a fault elsewhere: blocks that saw their own answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scripted import drafter_of
from tiny import run_flat, tiny_cache, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import Tensor

from paceline.decode.dflash import DFlash
from paceline.decode.draft_context import remember
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.errors import TrainingError
from paceline.models.attention import Segment
from paceline.models.drafter import Drafter
from paceline.models.transformer import Transformer
from paceline.request import Sampling
from paceline.train import drafter as recipe
from paceline.train.blocks import Blocks, block_mask, open_blocks, predict
from paceline.train.denoise import denoise, reveal
from paceline.train.drafter import bundled_drafter_spec, draft_loss, train_drafter
from paceline.train.losses import decay_weights, divergence, pace_weights, token_nats, weighted_mean
from paceline.train.options import DrafterConfig, FitConfig, Objective
from paceline.train.responses import Responses
from paceline.train.target import bundled_target_spec
from paceline.train.teacher import Teacher, teach

WIDTH, BLOCK, ANCHORS = 32, 8, (4, 7, 10)  # of the report
TOKENS = torch.arange(WIDTH).unsqueeze(0) % 50
GAMMA = 7.0
DECAY = Objective("decay", GAMMA)


@pytest.fixture(scope="module")
def target() -> Transformer:
    return tiny_transformer(tiny_spec(), dtype=torch.float32)


@pytest.fixture(scope="module")
def drafter(target: Transformer) -> Drafter:
    return drafter_of(target)


def features_of(target: Transformer, tokens: Tensor, taps: tuple[int, ...]) -> Tensor:
    rows = [run_flat(target, [row], [tiny_cache(target)], taps).features for row in tokens.tolist()]
    assert all(row is not None for row in rows)
    return torch.stack(rows)  # type: ignore[arg-type]


def loss_of(
    drafter: Drafter, tapped: Tensor, anchors: tuple[int, ...], tokens: Tensor = TOKENS, **changes: Any
) -> float:
    lengths = changes.get("lengths", torch.tensor([WIDTH] * len(tokens)))
    places = torch.tensor([anchors] * len(tokens))
    slots = torch.arange(changes.get("block", BLOCK))
    blocks = Blocks(tokens, tapped, places, lengths, slots)
    with torch.no_grad():
        return float(draft_loss(drafter, changes.get("objective", DECAY), blocks, changes.get("teacher")))


def test_the_mask() -> None:
    """Every entry by its definition, for blocks that overlap."""
    mask = block_mask(torch.tensor([ANCHORS, (0, 31, 5)]), BLOCK, WIDTH)
    assert mask.shape == (2, 3 * BLOCK, WIDTH + 3 * BLOCK)
    for row, anchors in enumerate((ANCHORS, (0, 31, 5))):
        for query in range(3 * BLOCK):
            seen = {key for key in range(WIDTH + 3 * BLOCK) if mask[row, query, key]}
            block = query // BLOCK
            own = range(WIDTH + block * BLOCK, WIDTH + (block + 1) * BLOCK)
            assert seen == {*range(anchors[block]), *own}


@pytest.mark.parametrize("anchor", ANCHORS)
def test_a_block_sees_features_strictly_before_its_anchor(target: Transformer, drafter: Drafter, anchor: int) -> None:
    """training-01: those at positions >= a move nothing, one before a does."""
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids)
    before = loss_of(drafter, tapped, (anchor,))
    later = tapped.clone()
    later[:, anchor:] = torch.randn_like(later[:, anchor:])
    assert loss_of(drafter, later, (anchor,)) == pytest.approx(before, abs=1e-6)
    for position in range(anchor):
        earlier = tapped.clone()
        earlier[:, position] += 1.0
        assert abs(loss_of(drafter, earlier, (anchor,)) - before) > 1e-5


def test_features_at_and_behind_the_anchors_get_no_gradient(target: Transformer, drafter: Drafter) -> None:
    """training-01, as training itself would use a leak: with all three blocks, only 0 … 9 matter."""
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids).requires_grad_()
    slots, lengths = torch.arange(BLOCK), torch.tensor([WIDTH])
    draft_loss(drafter, DECAY, Blocks(TOKENS, tapped, torch.tensor([ANCHORS]), lengths, slots)).backward()
    assert tapped.grad is not None
    used = tapped.grad[0].abs().amax(-1) > 0
    assert used.tolist() == [position < max(ANCHORS) for position in range(WIDTH)]


def test_the_loss_of_a_block_is_the_same_alone_and_with_others(target: Transformer, drafter: Drafter) -> None:
    """training-01: blocks of equal weight, so the loss of all is the mean of the losses of each."""
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids)
    alone = [loss_of(drafter, tapped, (anchor,)) for anchor in ANCHORS]
    assert len(set(alone)) == 3
    assert loss_of(drafter, tapped, ANCHORS) == pytest.approx(sum(alone) / 3, abs=1e-5)
    assert loss_of(drafter, tapped, ANCHORS[::-1]) == pytest.approx(sum(alone) / 3, abs=1e-5)


def test_answers_of_a_batch_do_not_see_each_other(target: Transformer, drafter: Drafter) -> None:
    tokens = torch.cat((TOKENS, TOKENS.flip(1)))
    tapped = features_of(target, tokens, drafter.spec.target_layer_ids)
    alone = [loss_of(drafter, tapped[row : row + 1], ANCHORS, tokens[row : row + 1]) for row in (0, 1)]
    assert loss_of(drafter, tapped, ANCHORS, tokens) == pytest.approx(sum(alone) / 2, abs=1e-5)


@pytest.mark.parametrize("block", [4, 8])
def test_training_sees_what_decoding_sees(target: Transformer, drafter: Drafter, block: int) -> None:
    """The loss, from the logits of the very block that DFlash would run behind each anchor."""
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids)
    weights = decay_weights(torch.arange(1, block), GAMMA)
    losses = []
    for anchor in ANCHORS:
        decoder = DFlash(Target(target, 64, drafter.spec.target_layer_ids), drafter, Speculation(block_size=block))
        sequence = decoder.open(TOKENS[0, :anchor].tolist(), Sampling(), 0)
        decoder.prefill([sequence])
        remember(drafter, [sequence])
        assert sequence.draft_cache is not None
        tokens = torch.tensor([int(TOKENS[0, anchor]), *[drafter.spec.mask_token_id] * (block - 1)])
        attend = drafter.attention([Segment(block, sequence.draft_cache)])
        logits = drafter.logits(drafter(tokens, torch.arange(anchor, anchor + block), attend)[1:])
        nats = F.cross_entropy(logits, TOKENS[0, anchor + 1 : anchor + block], reduction="none")
        losses.append(float((nats * weights).sum() / weights.sum()))
    assert loss_of(drafter, tapped, ANCHORS, block=block) == pytest.approx(sum(losses) / 3, abs=1e-5)


@pytest.mark.parametrize("weighting", ["decay", "pace"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_objective_slot_by_slot(target: Transformer, drafter: Drafter, weighting: Any, share: float) -> None:
    """Cross-entropy and KL to what the target says behind the same tokens, weighted as the definitions say."""
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids)
    blocks = Blocks(TOKENS, tapped, torch.tensor([ANCHORS]), torch.tensor([WIDTH]), torch.arange(BLOCK))
    said = predict(drafter, blocks).logits[0]
    own = target.head(features_of(target, TOKENS, (target.spec.num_layers - 1,))[0])
    numerator = denominator = 0.0
    for logits, anchor in zip(said, ANCHORS, strict=True):
        right = TOKENS[0, anchor + 1 : anchor + BLOCK]
        nats = -logits.log_softmax(-1)[torch.arange(BLOCK - 1), right]
        teacher = own[anchor : anchor + BLOCK - 1].log_softmax(-1)
        distance = (teacher.exp() * (teacher - logits.log_softmax(-1))).sum(-1)
        weights = pace_weights((-nats).exp()) if weighting == "pace" else decay_weights(torch.arange(1, BLOCK), GAMMA)
        numerator += float((weights * (share * distance + (1 - share) * nats)).sum())
        denominator += float(weights.sum())
    whole = Teacher(torch.arange(64).expand(1, WIDTH, 64), own.log_softmax(-1).unsqueeze(0)) if share else None
    ours = loss_of(drafter, tapped, ANCHORS, objective=Objective(weighting, GAMMA, share), teacher=whole)
    assert ours == pytest.approx(numerator / denominator, rel=1e-4)


@pytest.mark.parametrize("weighting", ["decay", "pace"])
def test_only_masked_slots_count(target: Transformer, drafter: Drafter, weighting: Any) -> None:
    """Revealed slots have no loss; for D-PACE they hold the right token or they do not."""
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids)
    blocks = Blocks(TOKENS, tapped, torch.tensor([ANCHORS]), torch.tensor([14]), torch.arange(BLOCK))
    opened = open_blocks(drafter, blocks)
    torch.manual_seed(3)
    tokens, masked = reveal(opened, 1.0)
    nats = token_nats(opened.fill(tokens), opened.targets)
    right = torch.where(masked, (-nats).exp(), (tokens[..., 1:] == opened.targets).float()) * opened.real
    weights = pace_weights(right) if weighting == "pace" else decay_weights(torch.arange(1, BLOCK), GAMMA)
    torch.manual_seed(3)
    ours = loss_of(
        drafter, tapped, ANCHORS, lengths=torch.tensor([14]), objective=Objective(weighting, GAMMA, reveal_share=1.0)
    )
    assert ours == pytest.approx(float(weighted_mean(nats, weights * masked * opened.real)), rel=1e-5)


def test_step_distillation(target: Transformer, drafter: Drafter) -> None:
    """KL to what the same drafter says in three steps, beside cross-entropy; no gradient goes through the steps."""
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids)
    blocks = Blocks(TOKENS, tapped, torch.tensor([ANCHORS]), torch.tensor([WIDTH]), torch.arange(BLOCK))
    said, later = predict(drafter, blocks), denoise(drafter, blocks, 3)
    losses = 0.6 * token_nats(said.logits, said.targets) + 0.4 * divergence(said.logits, later.logits)
    weights = decay_weights(torch.arange(1, BLOCK), GAMMA).expand(losses.shape)
    objective = Objective("decay", GAMMA, step_distill_share=0.4, teacher_steps=3)
    ours = loss_of(drafter, tapped, ANCHORS, objective=objective)
    assert ours == pytest.approx(float(weighted_mean(losses, weights)), rel=1e-5)
    assert ours != pytest.approx(loss_of(drafter, tapped, ANCHORS), rel=1e-3)


def test_every_weight_learns_in_half_precision(target: Transformer) -> None:
    """A pass without gradients comes first; what autocast keeps of it must not be taken for weights that learn."""
    learning = Drafter(drafter_of(target).spec, target)
    tapped = features_of(target, TOKENS, learning.spec.target_layer_ids)
    blocks = Blocks(TOKENS, tapped, torch.tensor([ANCHORS]), torch.tensor([WIDTH]), torch.arange(BLOCK))
    with torch.autocast("cpu", torch.bfloat16):
        loss = draft_loss(learning, Objective(reveal_share=0.5, step_distill_share=0.3), blocks)
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in learning.parameters())


def test_slots_behind_the_end_of_an_answer_do_not_count(target: Transformer, drafter: Drafter) -> None:
    """An answer of 12 tokens, padded to 32: what the padding holds moves nothing."""
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids)
    other = TOKENS.clone()
    other[:, 12:] = 33
    lengths = torch.tensor([12])
    losses = [loss_of(drafter, tapped, (7, 10), tokens, lengths=lengths) for tokens in (TOKENS, other)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_a_block_may_reach_over_the_width(target: Transformer, drafter: Drafter) -> None:
    tapped = features_of(target, TOKENS, drafter.spec.target_layer_ids)
    assert np.isfinite(loss_of(drafter, tapped, (WIDTH - 2,)))


def counting(rows: int, width: int = 24) -> Responses:
    """Answers that count on from their first token: a language a drafter can learn at once."""
    first = torch.arange(rows).unsqueeze(1) * 7
    tokens = (first + torch.arange(width)) % 50
    return Responses(tokens, torch.full((rows,), 4), torch.full((rows,), width))


def test_the_recipe_learns_and_leaves_the_target_alone(tmp_path: Path) -> None:
    target = tiny_transformer(tiny_spec(), dtype=torch.float32)
    frozen = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    drafter = Drafter(tiny_drafter_spec(target.spec, block_size=6), target)
    fit = FitConfig(steps=120, learning_rate=0.03, warmup_steps=5, evaluate_every=20)
    config = DrafterConfig(fit, rows_per_batch=8, block_rows=24, heldout_rows=8)
    train_drafter(drafter, target, counting(40), config, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < 0.5 * lines[0]["loss"]
    assert 1.0 <= lines[19]["acceptance_length"] <= lines[-1]["acceptance_length"] <= 6.0
    assert lines[-1]["acceptance_length"] > 2.0
    assert all(torch.equal(tensor, frozen[name]) for name, tensor in target.state_dict().items())


def test_the_recipe_is_resumable(tmp_path: Path) -> None:
    """The same settings in the same folder: nothing is trained twice, the weights are those of the first run."""
    target = tiny_transformer(tiny_spec(), dtype=torch.float32)
    config = DrafterConfig(FitConfig(steps=3, warmup_steps=1), rows_per_batch=4, block_rows=16, heldout_rows=4)
    drafters = [Drafter(tiny_drafter_spec(target.spec), target) for _ in range(2)]
    for drafter in drafters:
        train_drafter(drafter, target, counting(12), config, tmp_path)
    for ours, theirs in zip(drafters[0].parameters(), drafters[1].parameters(), strict=True):
        assert torch.equal(ours, theirs)


EVERYTHING = Objective("pace", distill_share=0.3, teacher_top_k=4, step_distill_share=0.2, reveal_share=0.5)


@pytest.mark.parametrize("block_size", [4, 9])
def test_everything_at_once_is_resumed_exactly(
    block_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the fourth step, behind the checkpoint of the second: weights and log to the last bit."""
    target, answers = tiny_transformer(tiny_spec(), dtype=torch.float32), counting(12)
    said = teach(target, answers, EVERYTHING.teacher_top_k, tmp_path)
    fit = FitConfig(steps=5, warmup_steps=1, save_every=2, micro_batches=2, evaluate_every=5)
    config = DrafterConfig(fit, rows_per_batch=4, block_rows=18, heldout_rows=3, objective=EVERYTHING)
    spec = tiny_drafter_spec(target.spec, block_size=block_size)
    whole, killed, resumed = (recipe.new_drafter(spec, target) for _ in range(3))
    train_drafter(whole, target, answers, config, tmp_path / "whole", said)
    loss, calls = recipe.draft_loss, list[int]()

    def dying(*given: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return loss(*given)

    monkeypatch.setattr(recipe, "draft_loss", dying)
    with pytest.raises(KeyboardInterrupt):
        train_drafter(killed, target, answers, config, tmp_path / "killed", said)
    train_drafter(resumed, target, answers, config, tmp_path / "killed", said)
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), resumed.parameters(), strict=True))
    logs = [(tmp_path / run / "log.jsonl").read_text().splitlines() for run in ("whole", "killed")]
    lines, again = ([{**json.loads(line), "seconds": 0} for line in log] for log in logs)
    assert lines == again
    assert {"acceptance_length", "acceptance_length_4_steps"} <= lines[-1].keys()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("draft_loss", r"with rows_per_batch 4\. Lower rows_per_batch; raise micro_batches"),
        ("acceptance_length", r"with heldout_rows 3\. Lower heldout_rows\."),
        ("features", r"Lower count\."),
    ],
)
def test_out_of_memory_names_the_setting(
    place: str, told: str, target: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: object) -> Tensor:
        raise MemoryError

    monkeypatch.setattr(recipe, place, out_of_memory)
    config = DrafterConfig(FitConfig(steps=1), rows_per_batch=4, block_rows=16, heldout_rows=3)
    with pytest.raises(TrainingError, match=told):
        train_drafter(Drafter(tiny_drafter_spec(target.spec), target), target, counting(12), config, tmp_path)


def test_the_bundled_drafter_fits_the_bundled_target() -> None:
    target = bundled_target_spec()
    spec = bundled_drafter_spec(target, mask_token_id=8191)
    assert spec.target_layer_ids == (3, 7, 11, 15)
    assert (spec.block_size, spec.num_target_layers, spec.causal) == (16, 16, (False, False))
    assert spec.block.hidden_size == target.hidden_size
