"""The end of a round: exactly the agreed path stays."""

from __future__ import annotations

import torch
from asked import models
from tiny import run_flat, tiny_cache

from paceline.decode.commit import Kept, commit_path, record
from paceline.decode.sequence import Reading, Sequence
from paceline.decode.target import Target
from paceline.decode.tree import Proposal, chain
from paceline.request import Sampling

TREE = Proposal((5, 6, 7, 8), (-1, -1, 1, 0))


def opened(max_tokens: int) -> tuple[Target, Sequence]:
    target = Target(models("qwen3"), 64, (0, 1))
    sequence = target.open((1, 2, 3), Sampling(max_tokens=max_tokens), 0, None)
    target.prefill([sequence])
    return target, sequence


def test_cache_tokens_and_features_are_those_of_the_path() -> None:
    target, sequence = opened(max_tokens=20)
    before = list(sequence.tokens)
    features = target.read([sequence], [TREE])[0].features
    assert features is not None
    kept = commit_path(sequence, Reading([6, 9, 7, 11, 12], features), [1, 2])
    assert (kept.tokens, sequence.tokens) == ([6, 7, 11], [*before, 6, 7, 11])
    assert kept.features is not None
    assert torch.equal(kept.features, features[[0, 2, 3]])
    assert sequence.cache.length == len(sequence.tokens) - 1
    whole = tiny_cache(target.model)
    run_flat(target.model, [sequence.tokens[:-1]], [whole])
    for ours, theirs in zip(sequence.cache.view(1), whole.view(1), strict=True):
        assert (ours - theirs).abs().max() < 1e-11


def test_no_more_is_committed_than_may_be() -> None:
    target, sequence = opened(max_tokens=3)
    reading = target.read([sequence], [chain((5, 6))])[0]
    kept = commit_path(sequence, Reading([5, 6, 9], None), [0, 1])
    assert (kept.tokens, kept.features, sequence.remaining_tokens) == ([5, 6], None, 0)
    assert record(chain((5, 6)), reading, [0, 1], kept, (0.0, 0.0)).accepted == 2


def test_the_record_tells_all() -> None:
    told = record(TREE, Reading([6, 9, 7, 11, 12], None), [1, 2], Kept([6, 7, 11], None), (0.25, 0.5))
    assert (told.proposed, told.parents, told.reference) == (TREE.tokens, TREE.parents, (6, 9, 7, 11, 12))
    assert (told.committed, told.accepted) == ((6, 7, 11), 2)
    assert (told.draft_seconds, told.verify_seconds) == (0.25, 0.5)
    assert record(chain((6,)), Reading([6, 7], None), [0], Kept([6, 7], None), (0, 0)).parents == ()
