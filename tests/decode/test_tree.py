"""Proposals: the oracle of growing is to score every prefix there is, and to take the best."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from paceline.decode.tree import EMPTY, Proposal, Ranked, best_first, chain, merged, prune

Table = list[Ranked]


def table_of(seed: int, slots: int = 5, width: int = 4) -> Table:
    """Random independent slots; tokens differ between slots."""
    rng = random.Random(seed)
    found = []
    for slot in range(slots):
        weights = sorted((rng.random() for _ in range(width)), reverse=True)
        scores = [math.log(weight / (sum(weights) + 0.1)) for weight in weights]
        found.append(Ranked(rng.sample(range(10 * slot, 10 * slot + 10), width), scores))
    return found


def grown(table: Table, nodes: int, candidates: int) -> Proposal:
    slots = [*table, Ranked((), ())]
    return best_first(lambda path: slots[len(path)], nodes, candidates)


def paths_of(tree: Proposal) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[node] for node in tree.path_to(last)) for last in range(len(tree.tokens))}


def all_prefixes(table: Table) -> dict[tuple[int, ...], float]:
    found = {}
    for depth in range(1, len(table) + 1):
        for ranks in itertools.product(*(range(len(slot.tokens)) for slot in table[:depth])):
            path = tuple(slot.tokens[rank] for slot, rank in zip(table, ranks, strict=False))
            found[path] = sum(slot.scores[rank] for slot, rank in zip(table, ranks, strict=False))
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("nodes", [1, 2, 7, 32, 10_000])
def test_grown_are_the_most_probable_prefixes(seed: int, nodes: int) -> None:
    table = table_of(seed)
    tree, scores = grown(table, nodes, 64 * nodes), all_prefixes(table)
    best = sorted(scores, key=lambda path: -scores[path])[:nodes]
    assert paths_of(tree) == set(best)
    for node, score in enumerate(tree.scores):
        path = tuple(tree.tokens[other] for other in tree.path_to(node))
        assert score == pytest.approx(scores[path], abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_none_is_less_probable_than_asked_for(seed: int) -> None:
    """What is left is the same tree, cut off."""
    table, least = table_of(seed), 0.02
    slots = [*table, Ranked((), ())]
    whole = grown(table, 10_000, 10_000)
    tree = best_first(lambda path: slots[len(path)], 10_000, 10_000, least)
    assert 1 < len(tree.tokens) < len(whole.tokens)
    assert tree.scores == tuple(score for score in whole.scores if score >= math.log(least))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("candidates", [1, 2, 3, 6])
def test_no_more_candidates_than_asked_for(seed: int, candidates: int) -> None:
    tree = grown(table_of(seed), 12, candidates)
    assert 1 <= tree.leaves <= candidates
    assert len(tree.tokens) == (12 if candidates > 2 else len(tree.tokens))
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert len(paths_of(tree)) == len(tree.tokens), "siblings differ"


@pytest.mark.parametrize("seed", range(4))
def test_one_candidate_is_the_chain_of_first_choices(seed: int) -> None:
    table = table_of(seed)
    tree = grown(table, 10, 1)
    assert tree.tokens == tuple(slot.tokens[0] for slot in table)
    assert tree.is_chain
    assert tree.depths == [1, 2, 3, 4, 5]


def test_a_slot_may_depend_on_what_stands_before() -> None:
    """As with a model that couples slots: behind 1 comes 3, behind 2 comes 4."""
    followers = {(): Ranked((1, 2), (-0.5, -1.0)), (1,): Ranked((3,), (-0.1,)), (2,): Ranked((4,), (-0.2,))}
    tree = best_first(lambda path: followers.get(path, Ranked((), ())), 8, 8)
    assert paths_of(tree) == {(1,), (2,), (1, 3), (2, 4)}


def test_nothing_is_proposed_where_nothing_may_stand() -> None:
    assert grown([], 8, 8) == EMPTY
    assert EMPTY.is_chain
    assert EMPTY.leaves == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.45, 1.0])
def test_pruned_is_what_is_improbable_beside_the_best_of_its_depth(seed: int, threshold: float) -> None:
    tree = grown(table_of(seed), 30, 30)
    laws = [(depth, math.exp(score)) for depth, score in zip(tree.depths, tree.scores, strict=True)]
    best = [max(law for depth, law in laws if depth == each) for each in range(1, max(tree.depths) + 1)]

    def stays(node: int) -> bool:
        return all(
            math.exp(tree.scores[each]) >= threshold * best[depth] for depth, each in enumerate(tree.path_to(node))
        )

    expected = {
        tuple(tree.tokens[each] for each in tree.path_to(node)) for node in range(len(tree.tokens)) if stays(node)
    }
    pruned = prune(tree, threshold)
    assert paths_of(pruned) == expected
    assert prune(tree, 0.0) == tree
    if threshold == 1.0:
        assert pruned.is_chain


def test_merged_holds_both_and_counts_common_prefixes_once() -> None:
    tree, other = Proposal((5, 6, 7), (-1, -1, 0)), chain([5, 7, 8, 9])
    assert paths_of(merged(tree, other, 10)) == paths_of(tree) | paths_of(other)
    assert len(merged(tree, other, 10).tokens) == 5
    assert paths_of(merged(tree, other, 4)) == paths_of(tree) | {(5, 7, 8)}
    assert merged(tree, other, 2).tokens == (5, 6)
    assert merged(EMPTY, other, 10).tokens == other.tokens


def test_merged_keeps_the_scores_of_the_first() -> None:
    tree = Proposal((5, 6), (-1, -1), (-0.5, -1.0))
    assert merged(tree, chain([5, 7]), 10) == Proposal((5, 6, 7), (-1, -1, 0), (-0.5, -1.0))
    assert merged(tree, chain([5, 7]), 1) == Proposal((5,), (-1,), (-0.5,))


def test_children_are_found_by_their_token() -> None:
    tree = Proposal((5, 6, 7, 8), (-1, -1, 1, 1))
    assert [tree.child(-1, 6), tree.child(1, 8), tree.child(1, 5), tree.child(0, 7)] == [1, 3, None, None]
    assert tree.path_to(3) == [1, 3]
    assert tree.leaves == 3
