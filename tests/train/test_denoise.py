"""Blocks that are filled in several steps, against one block at a time, slot by slot."""

from __future__ import annotations

import math

import pytest
import torch
from scripted import drafter_of
from tiny import tiny_spec, tiny_transformer
from torch import Tensor

from paceline.models.drafter import Drafter
from paceline.models.transformer import Transformer
from paceline.train.blocks import Blocks, open_blocks, predict
from paceline.train.denoise import _choose, acceptance_length, denoise, denoise_from, reveal
from paceline.train.responses import Responses, features

WIDTH, LENGTH = 24, 8
ANCHORS = torch.tensor([[2, 5, 9], [1, 12, 15]])


@pytest.fixture(scope="module")
def target() -> Transformer:
    return tiny_transformer(tiny_spec(), dtype=torch.float32)


@pytest.fixture(scope="module")
def drafter(target: Transformer) -> Drafter:
    return drafter_of(target)


def blocks_of(target: Transformer, drafter: Drafter, anchors: Tensor, length: int = LENGTH, end: int = WIDTH) -> Blocks:
    tokens = torch.randint(60, (len(anchors), WIDTH), generator=torch.Generator().manual_seed(0))
    lengths = torch.full((len(anchors),), WIDTH)
    tapped = features(target, Responses(tokens, lengths, lengths), drafter.spec.target_layer_ids)
    return Blocks(tokens, tapped, anchors, torch.full((len(anchors),), end), torch.arange(length))


def alone(blocks: Blocks, row: int, block: int) -> Blocks:
    each = slice(row, row + 1)
    anchor = blocks.anchors[each, block : block + 1]
    return Blocks(blocks.tokens[each], blocks.tapped[each], anchor, blocks.lengths[each], blocks.slots)


def slowly(drafter: Drafter, blocks: Blocks, steps: int, tokens: Tensor | None = None) -> Tensor:
    """One block: after step s of S, ceil(s / S) of its masked slots are fixed, the surest first."""
    opened = open_blocks(drafter, blocks)
    tokens = opened.masked.clone() if tokens is None else tokens.clone()
    mask = drafter.spec.mask_token_id
    empty = [slot for slot in range(tokens.shape[-1] - 1) if tokens[0, 0, slot + 1] == mask]
    count, said = len(empty), dict[int, Tensor]()
    for step in range(1, steps + 1):
        logits = opened.fill(tokens)[0, 0]
        said = said or {slot: logits[slot] for slot in range(len(logits)) if slot not in empty}
        others = [token for token in range(logits.shape[-1]) if token != mask]
        sure = {slot: float(logits[slot, others].softmax(-1).max()) for slot in empty}
        due = math.ceil(count * step / steps) - (count - len(empty))
        for slot in sorted(empty, key=lambda slot: -sure[slot])[:due]:
            said[slot] = logits[slot]
            tokens[0, 0, slot + 1] = others[int(logits[slot, others].argmax())]
            empty.remove(slot)
    assert not empty
    return torch.stack([said[slot] for slot in sorted(said)])


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
def test_denoising_slot_by_slot(target: Transformer, drafter: Drafter, steps: int) -> None:
    blocks = blocks_of(target, drafter, ANCHORS)
    said = denoise(drafter, blocks, steps).logits
    for row in range(2):
        for block in range(3):
            expected = slowly(drafter, alone(blocks, row, block), steps)
            torch.testing.assert_close(said[row, block], expected, atol=1e-4, rtol=1e-4)


def test_one_step_is_predict_and_more_steps_say_more(target: Transformer, drafter: Drafter) -> None:
    blocks = blocks_of(target, drafter, ANCHORS)
    once = predict(drafter, blocks)
    assert all(torch.equal(*pair) for pair in zip(denoise(drafter, blocks, 1), once, strict=True))
    more = denoise(drafter, blocks, 4).logits
    assert not more.requires_grad
    again = denoise(drafter, blocks, 4).logits
    assert torch.equal(more, again)
    unchanged = (more == once.logits).all(-1).sum(-1)
    assert (unchanged == 2).all()  # of 7 slots, a quarter rounded up is of the first step
    assert torch.equal(denoise(drafter, blocks, 7).logits, denoise(drafter, blocks, 100).logits)


def test_denoising_goes_on_from_what_is_filled(target: Transformer, drafter: Drafter) -> None:
    """Each block has its own number of masked slots; filled ones are kept."""
    blocks = blocks_of(target, drafter, ANCHORS)
    opened = open_blocks(drafter, blocks)
    torch.manual_seed(1)
    tokens, masked = reveal(opened, 0.7)
    assert len(set(masked.sum(-1).flatten().tolist())) > 1
    said = denoise_from(opened, tokens, masked, 3)
    for row in range(2):
        for block in range(3):
            start = tokens[row : row + 1, block : block + 1]
            expected = slowly(drafter, alone(blocks, row, block), 3, start)
            torch.testing.assert_close(said[row, block], expected, atol=1e-4, rtol=1e-4)


def test_the_mask_token_is_never_chosen() -> None:
    logits = torch.tensor([[0.0, 9.0, 2.0]])
    tokens, confidence = _choose(logits, 1)
    assert tokens.tolist() == [2]
    assert float(confidence) == pytest.approx(2 - math.log(1 + math.exp(2)))
    assert logits.tolist() == [[0.0, 9.0, 2.0]]


def test_revealed_slots_are_the_surest_and_the_rest_stays_masked(target: Transformer, drafter: Drafter) -> None:
    """Every block, many times: one to all but one slot, own guesses or the answer's tokens throughout."""
    blocks = blocks_of(target, drafter, ANCHORS)
    opened = open_blocks(drafter, blocks)
    guesses, confidence = _choose(predict(drafter, blocks).logits, drafter.spec.mask_token_id)
    counts, owns = set[int](), set[bool]()
    for seed in range(30):
        torch.manual_seed(seed)
        tokens, masked = reveal(opened, 1.0)
        assert torch.equal(tokens[..., 0], opened.masked[..., 0])
        assert bool((tokens[..., 1:][masked] == drafter.spec.mask_token_id).all())
        for row in range(2):
            for block in range(3):
                shown = ~masked[row, block]
                count = int(shown.sum())
                assert set(shown.nonzero().flatten().tolist()) == set(confidence[row, block].topk(count)[1].tolist())
                own, right, slots = guesses[row, block], opened.targets[row, block], tokens[row, block, 1:]
                assert any(torch.equal(slots[shown], each[shown]) for each in (own, right))
                counts.add(count)
                owns.add(torch.equal(slots[shown], own[shown]))
    # 180 blocks: that one of 6 counts never comes has a chance of 6 * (5/6)**180 < 1e-13 under another seed.
    assert counts == {1, 2, 3, 4, 5, 6}
    assert owns == {False, True}


def test_a_share_of_the_blocks_is_revealed_half_of_them_with_own_guesses(target: Transformer, drafter: Drafter) -> None:
    """1,200 blocks: four and a half standard deviations, a false alarm in 70,000 for each under another seed."""
    opened = open_blocks(drafter, blocks_of(target, drafter, torch.full((2, 600), 3)))
    torch.manual_seed(0)
    tokens, masked = reveal(opened, 0.3)
    touched = ~masked.all(-1)
    right = ((tokens[..., 1:] == opened.targets) | masked).all(-1) & touched
    revealed = int(touched.sum())
    assert abs(revealed - 360) < 4.5 * math.sqrt(1200 * 0.3 * 0.7)
    assert abs(int(right.sum()) - revealed / 2) < 4.5 * math.sqrt(revealed / 4)


def test_nothing_is_revealed_behind_the_end_of_an_answer(target: Transformer, drafter: Drafter) -> None:
    """An answer of 12 tokens: the padding behind it is no token of the answer."""
    opened = open_blocks(drafter, blocks_of(target, drafter, ANCHORS, end=12))
    torch.manual_seed(0)
    _, masked = reveal(opened, 1.0)
    assert masked[~opened.real].all()
    assert not masked[opened.real].all()


def test_without_a_share_nothing_is_revealed_or_drawn(target: Transformer, drafter: Drafter) -> None:
    opened = open_blocks(drafter, blocks_of(target, drafter, ANCHORS))
    before = torch.get_rng_state()
    tokens, masked = reveal(opened, 0.0)
    assert torch.equal(tokens, opened.masked)
    assert masked.all()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_only_slot_of_a_block_is_not_revealed(target: Transformer, drafter: Drafter) -> None:
    _, masked = reveal(open_blocks(drafter, blocks_of(target, drafter, ANCHORS, length=2)), 1.0)
    assert masked.all()


@pytest.mark.parametrize("steps", [1, 3])
def test_acceptance_length(target: Transformer, drafter: Drafter, steps: int) -> None:
    """Answers that are the drafter's own guesses up to a slot; blocks that reach over the end do not count."""
    blocks = blocks_of(target, drafter, torch.tensor([[2], [5], [20]]))
    for row, agreed in ((0, 3), (1, 5)):
        said = denoise(drafter, alone(blocks, row, 0), steps).logits[0, 0].argmax(-1)
        first = int(blocks.anchors[row, 0]) + 1
        blocks.tokens[row, first : first + agreed] = said[:agreed]
        blocks.tokens[row, first + agreed] = (said[agreed] + 1) % 60
    assert acceptance_length(drafter, blocks, steps) == 1 + (3 + 5) / 2


def test_acceptance_length_of_answers_too_short_for_a_whole_block(target: Transformer, drafter: Drafter) -> None:
    """Three slots are left behind one anchor, one behind the other: 2 and 1 of them agree."""
    blocks = blocks_of(target, drafter, torch.tensor([[20], [22]]))
    for row, agreed in ((0, 2), (1, 1)):
        said = denoise(drafter, alone(blocks, row, 0), 1).logits[0, 0].argmax(-1)
        first = int(blocks.anchors[row, 0]) + 1
        blocks.tokens[row, first : first + agreed] = said[:agreed]
        blocks.tokens[row, first + agreed :] = (said[agreed] + 1) % 60
    assert acceptance_length(drafter, blocks) == 1 + (2 + 1) / 2
