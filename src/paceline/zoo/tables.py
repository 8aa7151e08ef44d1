"""Reads the word and template tables of `data/*.toml`, and fills templates.

A template may hold choices, `[one|two|three]`, and slots, `{hero}`. Knows nothing of what is told.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")


@cache
def table(name: str) -> dict[str, Any]:
    """The table `data/<name>.toml`."""
    return tomllib.loads(files("paceline.zoo").joinpath("data", f"{name}.toml").read_text("utf-8"))


@cache
def lines(name: str, *keys: str) -> tuple[str, ...]:
    """The lines of one entry of a table."""
    entry: Any = table(name)
    for key in keys:
        entry = entry[key]
    return tuple(str(entry).strip().splitlines())


@cache
def rows(name: str, *keys: str) -> tuple[tuple[str, ...], ...]:
    """The lines of one entry, each cut into its fields at " :: "."""
    return tuple(tuple(line.split(" :: ")) for line in lines(name, *keys))


def fill(rng: Random, template: str, facts: Mapping[str, object]) -> str:
    """`template` with one of each choice taken and the slots filled."""
    while found := CHOICE.search(template):
        chosen = rng.choice(found[1].split("|"))
        template = template[: found.start()] + chosen + template[found.end() :]
    return template.format_map(facts)


def say(rng: Random, templates: tuple[str, ...], **facts: object) -> str:
    """One of the templates, filled."""
    return fill(rng, rng.choice(templates), facts)
