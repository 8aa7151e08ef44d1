"""The candidate selector, term by term and slot by slot."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paceline.models.drafter_spec import DFlash2
from paceline.models.selector import CandidateSelector

VOCAB, HIDDEN, RANK = 40, 12, 3


def selector(top_k: int = 5, seed: int = 0) -> CandidateSelector:
    """With whole numbers, so that all its sums are exact."""
    module = CandidateSelector(VOCAB, HIDDEN, DFlash2(2, 4, RANK, top_k)).double().requires_grad_(False)
    for index, parameter in enumerate(module.parameters()):
        parameter.copy_(whole_numbers(*parameter.shape, seed=10 * seed + index))
    return module


def whole_numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-6, 7, shape, generator=torch.Generator().manual_seed(seed)).double()


def slow_pair(module: CandidateSelector, hidden: Tensor, previous: int, candidate: int) -> float:
    state = [sum((row * hidden).tolist()) for row in module.hidden_projection.weight]
    left, right = module.predecessor_codebook[previous].tolist(), module.successor_codebook[candidate].tolist()
    return sum(a * h * b for a, h, b in zip(left, state, right, strict=True))


def slow_walk(module: CandidateSelector, hidden: Tensor, logits: Tensor, anchor: int) -> list[int]:
    """One slot after the other, each candidate by itself; of equals the likelier one."""
    path = [anchor]
    for state, row in zip(hidden, logits, strict=True):
        values, ids = row.topk(module.top_k)
        scores = [
            value + slow_pair(module, state, path[-1], candidate)
            for value, candidate in zip(values.tolist(), ids.tolist(), strict=True)
        ]
        path.append(ids.tolist()[scores.index(max(scores))])
    return path[1:]


@pytest.mark.parametrize(("slots", "p", "k"), [(1, 1, 1), (4, 3, 5), (7, 1, 8), (2, 9, 2)])
def test_pair_scores(slots: int, p: int, k: int) -> None:
    module, hidden = selector(), whole_numbers(slots, HIDDEN, seed=7)
    draw = torch.Generator().manual_seed(8)
    before = torch.randint(VOCAB, (slots, p), generator=draw)
    candidates = torch.randint(VOCAB, (slots, k), generator=draw)
    scores = module.pair_scores(hidden, before, candidates)
    assert scores.shape == (slots, p, k)
    for slot in range(slots):
        slow = [[slow_pair(module, hidden[slot], int(a), int(b)) for b in candidates[slot]] for a in before[slot]]
        assert scores[slot].tolist() == slow


@pytest.mark.parametrize("seed", range(8))
def test_the_walk(seed: int) -> None:
    """Eight random selectors, blocks of one slot and more; among fifteen blocks the pair terms decide in some."""
    module = selector(seed=seed)
    shape = (3, 5, (1, 2, 6)[seed % 3])
    hidden = whole_numbers(*shape, HIDDEN, seed=seed)
    logits = torch.randn(*shape, VOCAB, generator=torch.Generator().manual_seed(seed)).double() * 60
    anchors = torch.arange(15).view(3, 5)
    found = module.select(hidden, logits, anchors)
    assert found.shape == shape
    for row in range(3):
        for block in range(5):
            slow = slow_walk(module, hidden[row, block], logits[row, block], int(anchors[row, block]))
            assert found[row, block].tolist() == slow
    assert not torch.equal(found, logits.argmax(-1))


def test_one_candidate_is_the_likeliest_token() -> None:
    hidden = whole_numbers(6, HIDDEN)
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(1)).double()
    assert torch.equal(selector(top_k=1).select(hidden, logits, torch.tensor(3)), logits.argmax(-1))


def test_a_new_selector_adds_nothing() -> None:
    module = CandidateSelector(VOCAB, HIDDEN, DFlash2(2, 4, RANK, 5))
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(1))
    assert torch.equal(module.select(torch.randn(6, HIDDEN), logits, torch.tensor(3)), logits.argmax(-1))
    assert float(module.predecessor_codebook.detach().std()) > 0.5, "or it could never learn"
