"""What a sweep measures: DFlash with one part more, less or otherwise, each by a name.

Two of them are what the others are held against: the chain of the drafter's own block, and the tree of 32 nodes. Every
other one differs from one of these in one thing. Imports no torch. Knows nothing of models and measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from paceline.bench.configuration import Configuration
from paceline.decode.speculation import Speculation, TemperatureSchedule

__all__ = ["Variant", "asked_variants", "chain_name", "sweep_variants"]

_BLOCKS = (4, 8, 12, 16)
_NODES = 32


class Variant(NamedTuple):
    """DFlash, set in one way.

    Attributes:
        part: which part of DFlash it shows.
        name: unlike any other's.
        noisy, selecting: as in `Drafting`; parts that no setting switches off.
    """

    part: str
    name: str
    settings: Speculation
    noisy: bool = True
    selecting: bool = True


def chain_name(block_size: int) -> str:
    """Of the chain that gains are told against."""
    return f"chain {block_size}"


def asked_variants(asked: Sequence[Configuration], block_size: int) -> list[Variant]:
    """The chain of the drafter's own block, and what a user asked for."""
    found = [(each.name, each.settings) for each in asked]
    own = [Variant("asked", name, each) for name, each in found if isinstance(each, Speculation)]
    return [_chain(block_size, "chain", chain_name(block_size)), *own]


def sweep_variants(block_size: int, selector: bool, rescorer: str | Path | None) -> list[Variant]:
    """All parts, in the order of the table; a new part of DFlash gets its line here.

    Args:
        block_size: the drafter's own.
        selector: it is a DFlash 2 drafter, which has one.
        rescorer: what may weigh candidates anew.
    """
    chain, tree = partial(_chain, block_size), partial(_tree, block_size)
    return [
        *_chains(block_size),
        *(tree("tree", f"tree {nodes}", max_nodes=nodes) for nodes in (7, 16, 32, 64)),
        tree("noise", "tree 32, without the noise")._replace(noisy=False),
        *(tree("candidates", f"tree 32, {count} candidates", candidate_num=count) for count in (2, 6)),
        *(tree("pruning", f"tree 32, pruned {share}", pruning_threshold=share) for share in (0.1, 0.3, 0.45)),
        *(chain("steps", f"chain, {steps} steps", diffusion_steps=steps) for steps in (2, 4, 8)),
        *(tree("steps", f"tree 32, {steps} steps", diffusion_steps=steps) for steps in (2, 4, 8)),
        *(_schedule(tree, schedule) for schedule in ("fixed", "adaptive")),
        *(chain("overlap", f"chain, overlap {count}", overlap=count) for count in (1, 3)),
        *(tree("overlap", f"tree 32, overlap {count}", overlap=count) for count in (1, 3)),
        chain("retrieval", "chain, lookup 10", lookup=10),
        tree("retrieval", "tree 32, lookup 10", lookup=10),
        *(_without_selector(chain, tree) if selector else ()),
        *(_rescored(tree, rescorer) if rescorer is not None else ()),
        Variant("controller", "chosen by the machine", Speculation()),
    ]


def _chains(block_size: int) -> list[Variant]:
    """Of all lengths that the drafter was trained for."""
    shorter = [size for size in _BLOCKS if size < block_size]
    return [_chain(size, "chain", chain_name(size)) for size in (*shorter, block_size)]


def _chain(block_size: int, part: str, name: str, **settings: Any) -> Variant:
    return Variant(part, name, Speculation(block_size=block_size, **settings))


def _tree(block_size: int, part: str, name: str, **settings: Any) -> Variant:
    """A tree whose shape the drafter's probabilities decide, as far as the settings do not."""
    return _chain(block_size, part, name, **{"candidate_num": _NODES, "max_nodes": _NODES, **settings})


def _schedule(tree: Callable[..., Variant], schedule: TemperatureSchedule) -> Variant:
    """Over four passes: it is the passes that the temperature falls over."""
    name = f"tree 32, 4 steps, {schedule} spread"
    return tree("temperature", name, diffusion_steps=4, draft_temperature=schedule)


def _without_selector(chain: Callable[..., Variant], tree: Callable[..., Variant]) -> list[Variant]:
    pair = chain("selector", "chain, without selector"), tree("selector", "tree 32, without selector")
    return [variant._replace(selecting=False) for variant in pair]


def _rescored(tree: Callable[..., Variant], rescorer: str | Path) -> list[Variant]:
    """By weights of the drafter beside it."""
    return [
        tree("re-scoring", f"tree 32, re-scored {weight}", rescorer=rescorer, rescorer_weight=weight)
        for weight in (0.5, 0.8)
    ]
