"""Seeded small Python modules: a record class and a collection of records, whose names run through all methods.

Names given at the top return in every method, so that a model that reads its context completes them. Each module is
valid Python; which methods it has differs from seed to seed.
"""

from __future__ import annotations

from random import Random

from paceline.zoo.tables import table

__all__ = ["module"]


def module(seed: int) -> str:
    """The source of a module, 60 to 150 lines, ending with a line break."""
    rng = Random(f"module {seed}")
    data = table("modules")
    names = _names(rng)
    record = rng.choice(data["record"])
    head = rng.choice(data["heads"]).format(**names)
    classes = [record.format(**names), _collection(rng, names)]
    parts = [head, *_imports(record), *("\n" + source for source in classes)]
    return "\n\n".join(parts) + "\n"


def _names(rng: Random) -> dict[str, str]:
    data = table("modules")
    item, items = rng.choice(data["items"])
    owner = rng.choice(data["owners"])
    names = {"item": item, "items": items, "Item": item.title(), "Items": items.title()}
    names |= {"owner": owner, "Owner": owner, "owner_lower": owner.lower()}
    return names | {"num": rng.choice(data["numbers"]), "word": rng.choice(data["words"])}


def _imports(record: str) -> list[str]:
    if "@dataclass" in record:
        return ["from dataclasses import dataclass"]
    return ["from typing import NamedTuple"] if "NamedTuple" in record else []


def _collection(rng: Random, names: dict[str, str]) -> str:
    data = table("modules")
    methods = data["methods"]
    # In the order of the table: in shuffled modules the likeliest method is always the shortest, and greedy text loops.
    chosen = [methods[index] for index in sorted(rng.sample(range(len(methods)), rng.randint(7, 11)))]
    return "\n\n".join(part.format(**names) for part in (rng.choice(data["start"]), *chosen))
