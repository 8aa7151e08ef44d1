"""The list of a sweep: every part is there, and differs in one thing from the chain or the tree it is held against."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from paceline.bench.configuration import read_configuration
from paceline.bench.variants import Variant, asked_variants, chain_name, sweep_variants
from paceline.decode.speculation import Speculation

CHAIN = Speculation(block_size=16)
TREE = Speculation(block_size=16, candidate_num=32, max_nodes=32)


def changed(variant: Variant, block_size: int = 16) -> dict[str, object]:
    """What a variant sets otherwise than the chain, or than the tree where it has candidates."""
    base = replace(CHAIN if variant.settings.candidate_num is None else TREE, block_size=block_size)
    found = {name: value for name, value in asdict(variant.settings).items() if value != asdict(base)[name]}
    return found | {name: False for name in ("noisy", "selecting") if not getattr(variant, name)}


def test_the_list_of_the_bundled_drafter() -> None:
    found = sweep_variants(16, selector=False, rescorer=None)
    assert len({variant.name for variant in found}) == len(found)
    assert {variant.name: changed(variant) for variant in found} == {
        "chain 4": {"block_size": 4},
        "chain 8": {"block_size": 8},
        "chain 12": {"block_size": 12},
        "chain 16": {},
        "tree 7": {"max_nodes": 7},
        "tree 16": {"max_nodes": 16},
        "tree 32": {},
        "tree 64": {"max_nodes": 64},
        "tree 32, without the noise": {"noisy": False},
        "tree 32, 2 candidates": {"candidate_num": 2},
        "tree 32, 6 candidates": {"candidate_num": 6},
        "tree 32, pruned 0.1": {"pruning_threshold": 0.1},
        "tree 32, pruned 0.3": {"pruning_threshold": 0.3},
        "tree 32, pruned 0.45": {"pruning_threshold": 0.45},
        "chain, 2 steps": {"diffusion_steps": 2},
        "chain, 4 steps": {"diffusion_steps": 4},
        "chain, 8 steps": {"diffusion_steps": 8},
        "tree 32, 2 steps": {"diffusion_steps": 2},
        "tree 32, 4 steps": {"diffusion_steps": 4},
        "tree 32, 8 steps": {"diffusion_steps": 8},
        "tree 32, 4 steps, fixed spread": {"diffusion_steps": 4, "draft_temperature": "fixed"},
        "tree 32, 4 steps, adaptive spread": {"diffusion_steps": 4, "draft_temperature": "adaptive"},
        "chain, overlap 1": {"overlap": 1},
        "chain, overlap 3": {"overlap": 3},
        "tree 32, overlap 1": {"overlap": 1},
        "tree 32, overlap 3": {"overlap": 3},
        "chain, lookup 10": {"lookup": 10},
        "tree 32, lookup 10": {"lookup": 10},
        "chosen by the machine": {"block_size": "auto"},
    }


@pytest.mark.parametrize("block_size", [2, 6, 8, 10])
def test_chains_are_no_longer_than_the_drafter_was_trained_for(block_size: int) -> None:
    sizes = [size for size in (4, 8, 12, 16) if size < block_size]
    chains = [each for each in sweep_variants(block_size, False, None) if each.part == "chain"]
    assert [each.name for each in chains] == [*(f"chain {size}" for size in sizes), chain_name(block_size)]


def test_parts_that_need_something() -> None:
    plain, full = sweep_variants(8, False, None), sweep_variants(8, True, "small")
    more = [variant for variant in full if variant not in plain]
    assert {variant.name: changed(variant, 8) for variant in more} == {
        "chain, without selector": {"selecting": False},
        "tree 32, without selector": {"selecting": False},
        "tree 32, re-scored 0.5": {"rescorer": "small"},
        "tree 32, re-scored 0.8": {"rescorer": "small", "rescorer_weight": 0.8},
    }


def test_a_users_own_list_has_the_chain_too() -> None:
    asked = [read_configuration(text) for text in ("dflash,candidate_num=6", "dflash,overlap=2")]
    found = asked_variants(asked, 8)
    assert [(each.part, each.name) for each in found] == [
        ("chain", "chain 8"),
        ("asked", "dflash,candidate_num=6"),
        ("asked", "dflash,overlap=2"),
    ]
    assert found[1].settings == Speculation(candidate_num=6)
