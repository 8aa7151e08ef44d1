"""The prompts of a benchmark: held-out ones of the package, or a file of the user's own.

A file holds one JSON object per line: {"scenario": name, "prompt": text}, or with "messages" (a chat that ends with
the user's turn) or "prompt_ids" (token ids) instead of "prompt"; "id" is optional. Knows nothing of models or
tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.bench.options import Workload
from paceline.errors import ConfigError
from paceline.request import Prompt
from paceline.zoo.prompts import load_prompts

__all__ = ["BenchPrompt", "read_scenarios"]

_FORMS = ("prompt", "messages", "prompt_ids")


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt, and the name it has in results."""

    id: str
    prompt: Prompt


def read_scenarios(options: Workload) -> dict[str, list[BenchPrompt]]:
    """The prompts of every scenario to run, in the order of the file.

    Raises:
        ConfigError: a file that cannot be read, a line that is no prompt, or a scenario that is not there.
    """
    entries = load_prompts() if options.prompts is None else _read(options.prompts)
    found: dict[str, list[BenchPrompt]] = {}
    for number, entry in enumerate(entries, start=1):
        scenario = str(entry.get("scenario", "custom"))
        found.setdefault(scenario, []).append(_prompt(entry, f"{scenario}-{number}"))
    unknown = set(options.scenarios) - found.keys()
    if unknown or not found:
        remedy = f"There are: {', '.join(found) or 'none'}."
        raise ConfigError(f"There are no prompts of scenario {', '.join(sorted(unknown))!r}.", remedy=remedy)
    chosen = [name for name in found if not options.scenarios or name in options.scenarios]
    return {name: found[name][: options.prompts_per_scenario] for name in chosen}


def _read(path: Path) -> list[Mapping[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        told = f"The prompts {str(path)!r} cannot be read: {error}."
        raise ConfigError(told, remedy="Name a file of JSON lines.", param="prompts") from error
    return [_entry(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _entry(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}, line {number}: not JSON ({error}).") from error
    if not isinstance(entry, dict) or sum(form in entry for form in _FORMS) != 1 or not _well_formed(entry):
        remedy = 'Write {"scenario": …, "prompt": text}, or "messages" or "prompt_ids" instead of "prompt".'
        raise ConfigError(f"{path}, line {number}: not a prompt.", remedy=remedy)
    return entry


def _well_formed(entry: Mapping[str, Any]) -> bool:
    """The one form that is there has the type it should have."""
    if "prompt" in entry:
        return isinstance(entry["prompt"], str)
    if "messages" in entry:
        messages = entry["messages"]
        return isinstance(messages, list) and bool(messages) and all(isinstance(item, dict) for item in messages)
    ids = entry["prompt_ids"]
    return isinstance(ids, list) and all(type(item) is int for item in ids)


def _prompt(entry: Mapping[str, Any], name: str) -> BenchPrompt:
    form = next(form for form in _FORMS if form in entry)
    return BenchPrompt(str(entry.get("id", name)), entry[form])
