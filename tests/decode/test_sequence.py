"""The state of one answer."""

from __future__ import annotations

import torch
from scripted import plain
from tiny import tiny_spec, tiny_transformer

from paceline.decode.sequence import Sequence, flat
from paceline.decode.tree import EMPTY, chain
from paceline.request import Sampling


def opened(**sampling: float) -> Sequence:
    return plain(tiny_transformer(tiny_spec())).open([1, 2, 2], Sampling(max_tokens=9, **sampling), seed=5)  # type: ignore[arg-type]


def test_rows_end_to_end() -> None:
    tokens, positions = flat([[7, 8, 9], [5], [], [4, 4]], [range(10, 13), [0], [], range(2, 4)], torch.device("cpu"))
    assert tokens.tolist() == [7, 8, 9, 5, 4, 4]
    assert positions.tolist() == [10, 11, 12, 0, 2, 3]


def test_commit_counts_and_shortens_what_remains() -> None:
    sequence = opened(frequency_penalty=1.0)
    sequence.commit([2, 5, 5])
    assert sequence.tokens == [1, 2, 2, 2, 5, 5]
    assert sequence.remaining_tokens == 6
    assert sequence.counts is not None
    assert sequence.counts.output.nonzero().flatten().tolist() == [2, 5]
    assert sequence.counts.output[5] == 2


def test_the_draw_at_a_position_is_the_same_whenever_and_in_whatever_run_it_is_made() -> None:
    """Shared by drafter and target, in one call or row by row, before and after commits."""
    logits = torch.randn(8, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = opened(temperature=1.0).choose(logits, EMPTY, None)
    sequence = opened(temperature=1.0)
    again = []
    for row in range(8):
        assert sequence.choose(logits[row:], EMPTY, None) == whole[row:]
        again += sequence.choose(logits[row : row + 1], EMPTY, None)
        sequence.commit([0])
    assert again == whole


def test_banned_ids_are_not_chosen() -> None:
    best = torch.zeros(1, 64)
    best[0, 9] = 5.0
    assert opened().choose(best, EMPTY, torch.tensor([9])) == [0]


def test_rows_are_scored_along_their_path() -> None:
    """Row i + 1 sees the path down to draft i: with a large frequency penalty no token follows itself."""
    logits = torch.zeros(3, 64)
    logits[:, 4], logits[:, 6], logits[:, 8] = 3.0, 2.5, 2.0
    sequence = opened(frequency_penalty=2.0)
    assert sequence.choose(logits, chain([4, 6]), None) == [4, 6, 8]
    assert sequence.choose(logits, EMPTY, None) == [4, 4, 4], "drafts are scored after the committed tokens only"
