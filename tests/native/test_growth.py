"""Trees against `best_first`, their oracle: the same nodes in the same order, with the same scores."""

from __future__ import annotations

import pytest
import torch

from paceline import native
from paceline.decode.candidates import Candidates, independent
from paceline.decode.tree import best_first

pytestmark = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))


def candidates(seed: int, slots: int, width: int) -> Candidates:
    """Some of them equally likely; some slots have fewer than others."""
    generator = torch.Generator().manual_seed(seed)
    law = (4 * torch.randn(slots, 50, generator=generator)).round().log_softmax(-1)
    log_probs, ids = law.topk(width)
    if seed % 2:
        log_probs[:, 1 + seed % 4 :] = -torch.inf
    return Candidates(ids, log_probs)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("nodes", "most"), [(1, 1), (7, 2), (32, 16), (200, 64)])
@pytest.mark.parametrize("least", [0.0, 1e-3, 0.2])
def test_the_tree_is_that_of_best_first(seed: int, nodes: int, most: int, least: float) -> None:
    found = candidates(seed, 1 + seed % 9, 8)
    tokens, parents, scores = native.grown(found.ids, found.log_probs, nodes, most, least)
    expected = best_first(independent(found), nodes, most, least)
    assert (tuple(tokens), tuple(parents), tuple(scores)) == (expected.tokens, expected.parents, expected.scores)


def test_what_is_no_number_is_no_candidate() -> None:
    ids = torch.arange(6).view(2, 3)
    tokens, parents, _ = native.grown(ids, torch.tensor([[-1.0, torch.nan, -2.0], [torch.nan] * 3]), 9, 9, 0.0)
    assert (tokens, parents) == ([0], [-1])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_grows_from_nothing(shape: tuple[int, int]) -> None:
    assert native.grown(torch.zeros(shape, dtype=torch.int64), torch.zeros(shape), 5, 5, 0.0) == ([], [], [])


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="slots, width"):
        native.grown(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 4), 5, 5, 0.0)
