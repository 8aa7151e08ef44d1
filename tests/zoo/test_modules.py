"""Generated modules: the same for a seed, valid Python, and consistent in their names."""

import ast

from paceline.zoo.modules import module

SEEDS = range(200)


def test_a_seed_has_one_module_and_seeds_differ():
    assert [module(seed) for seed in SEEDS] == [module(seed) for seed in SEEDS]
    assert len({module(seed) for seed in SEEDS}) == len(SEEDS)


def test_modules_are_valid_python_without_unfilled_slots():
    for seed in SEEDS:
        compile(module(seed), f"module {seed}", "exec")


def test_a_collection_stores_its_items_under_one_name():
    for seed in SEEDS:
        tree = ast.parse(module(seed))
        collection = [node for node in tree.body if isinstance(node, ast.ClassDef)][-1]
        stores = {
            node.attr
            for node in ast.walk(collection)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr != "limit"
        }
        assert len({name for name in stores if name.endswith("s")}) >= 1, seed
