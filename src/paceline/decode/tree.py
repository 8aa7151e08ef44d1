"""Proposals: what a fast model says may come next, as a small tree of tokens below the anchor.

A chain is the tree without branches. Nodes are in an order in which every node comes behind its parent, so a path from
the anchor down has rising indices. The tree is grown best first (as in OPT-Tree, arXiv 2406.17276): the score of a node
is the sum of the log probabilities down to it, each at most 0, so no node that is found later can be better. Pure
functions on plain numbers; knows nothing of models, noise or sequences.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "EMPTY",
    "Expand",
    "Proposal",
    "Ranked",
    "best_first",
    "best_path",
    "chain",
    "merged",
    "only",
    "prune",
    "strongest",
]

ROOT = -1
"""The anchor as a parent."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens and how they hang together.

    Attributes:
        tokens: of each node.
        parents: index of the node before each, -1 for the anchor; smaller than the node's own.
        scores: log probability of the path down to each of the first nodes, as far as the drafter knows; the others
            were found elsewhere. Empty where nobody asked.
        likeliest: the drafter's own choice in every place, also where it is not likely enough for a node; empty where
            that depends on the path.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    scores: tuple[float, ...] = ()
    likeliest: tuple[int, ...] = ()

    @property
    def is_chain(self) -> bool:
        """True where every node continues the one before it."""
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @property
    def depths(self) -> list[int]:
        """How far each node is from the anchor, 1 for its children."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    @property
    def leaves(self) -> int:
        """How many candidates there are: paths that nothing continues."""
        return len(self.tokens) - len(set(self.parents) - {ROOT})

    def path_to(self, node: int) -> list[int]:
        """The nodes from the anchor down to `node`, which is the last; none for the anchor."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def child(self, parent: int, token: int) -> int | None:
        """The node behind `parent` that holds `token`, where there is one."""
        for node in range(parent + 1, len(self.tokens)):
            if self.parents[node] == parent and self.tokens[node] == token:
                return node
        return None


EMPTY = Proposal((), ())
"""Nothing is proposed: the round is one of plain decoding."""


class Ranked(NamedTuple):
    """What may stand in a slot: tokens in falling order of their log probabilities."""

    tokens: Sequence[int]
    scores: Sequence[float]


Expand = Callable[[tuple[int, ...]], Ranked]
"""The tokens drafted so far -> what may come next; nothing at the end of the block."""


def chain(tokens: Sequence[int]) -> Proposal:
    """One candidate."""
    return Proposal(tuple(tokens), tuple(range(-1, len(tokens) - 1)))


def best_first(expand: Expand, nodes: int, candidates: int, least: float = 0.0) -> Proposal:
    """The tree of the `nodes` most probable prefixes, of those with at most `candidates` ends.

    None of them is less probable than `least`.

    Each prefix that is taken makes two more known: its best continuation, and the next best token in its own place. So
    among all trees of that size this one has the greatest sum of probabilities, which is how many drafts are expected
    to be accepted: without a bound on candidates, and as far as the scores are right. Equal ones in order of discovery.
    """
    tree = _Growing(expand)
    most = -math.log(least) if least > 0.0 else math.inf
    while tree.known and len(tree.tokens) < nodes and tree.known[0][0] <= most:
        tree.take(candidates)
    return Proposal(tuple(tree.tokens), tuple(tree.parents), tuple(tree.scores))


class _Growing:
    """A tree while it grows.

    Attributes:
        known: a heap of the prefixes that may be taken next: (cost, number, parent, rank of the token, tokens there).
    """

    def __init__(self, expand: Expand) -> None:
        self.expand = expand
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.scores: list[float] = []
        self.known: list[tuple[float, int, int, int, Ranked]] = []
        self._paths: dict[int, tuple[int, ...]] = {ROOT: ()}
        self._ends = 0
        self._continued: set[int] = set()
        self._found = 0
        self._find(0.0, ROOT, 0, expand(()))

    def take(self, candidates: int) -> None:
        """The most probable prefix becomes a node, if there may be one more end where it would make one."""
        cost, _, parent, rank, ranked = heapq.heappop(self.known)
        branches = parent == ROOT or parent in self._continued
        if branches and self._ends == candidates:
            return  # nor may any worse token of this slot
        self._ends += branches
        self._continued.add(parent)
        node, token = len(self.tokens), ranked.tokens[rank]
        self.tokens.append(token)
        self.parents.append(parent)
        self.scores.append(-cost)
        self._paths[node] = (*self._paths[parent], token)
        self._find(cost + ranked.scores[rank], parent, rank + 1, ranked)
        self._find(cost, node, 0, self.expand(self._paths[node]))

    def _find(self, base: float, parent: int, rank: int, ranked: Ranked) -> None:
        if rank < len(ranked.tokens):
            self._found += 1
            heapq.heappush(self.known, (base - ranked.scores[rank], self._found, parent, rank, ranked))


def best_path(proposal: Proposal) -> tuple[int, ...]:
    """The tokens on the path of first children: in the order in which trees grow, these are the best ones."""
    found, last = [], ROOT
    for node, parent in enumerate(proposal.parents):
        if parent == last:
            found.append(proposal.tokens[node])
            last = node
    return tuple(found)


def prune(proposal: Proposal, threshold: float) -> Proposal:
    """Without the nodes whose probability is less than `threshold` times that of the best of their depth.

    What stands below such a node goes with it. The best node of each depth whose ancestors stay is kept.
    """
    best: dict[int, float] = {}
    depths = proposal.depths
    for depth, score in zip(depths, proposal.scores, strict=True):
        best[depth] = max(score, best.get(depth, -math.inf))
    floor = math.log(threshold) if threshold > 0 else -math.inf
    pairs = zip(depths, proposal.scores, strict=True)
    return only(proposal, [score >= best[depth] + floor for depth, score in pairs])


def strongest(proposal: Proposal, nodes: int) -> Proposal:
    """The `nodes` most probable ones."""
    order = sorted(range(len(proposal.tokens)), key=lambda node: -proposal.scores[node])  # a parent before its children
    wanted = set(order[:nodes])
    return only(proposal, [node in wanted for node in range(len(proposal.tokens))])


def merged(first: Proposal, second: Proposal, nodes: int) -> Proposal:
    """Both in one tree of at most `nodes`: all of `first`, and of `second` what is not there and finds room.

    What comes of `second` has no scores.
    """
    tokens, parents = list(first.tokens[:nodes]), list(first.parents[:nodes])
    known = {(parent, token): node for node, (parent, token) in enumerate(zip(parents, tokens, strict=True))}
    places = {ROOT: ROOT}
    for node, (parent, token) in enumerate(zip(second.parents, second.tokens, strict=True)):
        if parent not in places:
            continue
        key = places[parent], token
        if key not in known and len(tokens) < nodes:
            known[key] = len(tokens)
            tokens.append(token)
            parents.append(key[0])
        if key in known:
            places[node] = known[key]
    return Proposal(tuple(tokens), tuple(parents), first.scores[:nodes])


def only(proposal: Proposal, wanted: Sequence[bool]) -> Proposal:
    """The nodes that are wanted, and so are all before them on their path."""
    places = {ROOT: ROOT}
    for node, (parent, keep) in enumerate(zip(proposal.parents, wanted, strict=True)):
        if keep and parent in places:
            places[node] = len(places) - 1
    kept = [node for node in places if node != ROOT]
    return Proposal(
        tuple(proposal.tokens[node] for node in kept),
        tuple(places[proposal.parents[node]] for node in kept),
        tuple(proposal.scores[node] for node in kept if node < len(proposal.scores)),
    )
