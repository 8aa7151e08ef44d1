"""Every message of ours is a sentence, as far as its words can be read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import errors

SOURCE = Path(errors.__file__).parent
NAMES = {name for name in errors.__all__ if name != "ContextOverflow"}  # its arguments are numbers
ENDS = (".", "?", "!", "…")
OURS = ("error.message", "remedy")
"""What holds a whole sentence of ours already."""


def sentences(module: ast.Module) -> Iterator[tuple[int, ast.expr]]:
    """Message and remedy of every error, with their lines; where they are a variable, what it was set to."""
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        known: dict[str, list[ast.expr]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                known.setdefault(node.targets[0].id, []).append(node.value)
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
                told = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "remedy")]
                for each in told:
                    values = known.get(each.id, []) if isinstance(each, ast.Name) else [each]
                    yield from ((node.lineno, value) for value in values)


def end_of(value: ast.expr) -> str | None:
    """How a text ends; None where the source does not say."""
    if isinstance(value, ast.JoinedStr):
        return end_of(value.values[-1])
    if isinstance(value, ast.FormattedValue):
        return None if ast.unparse(value.value) in OURS else "{}"
    return value.value[-1:] if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_message_ends_as_a_sentence(path: Path) -> None:
    found = sentences(ast.parse(path.read_text(encoding="utf-8")))
    assert [(line, end) for line, value in found if (end := end_of(value)) is not None and end not in ENDS] == []


def test_there_is_something_to_read() -> None:
    found = [value for path in SOURCE.rglob("*.py") for _, value in sentences(ast.parse(path.read_text("utf-8")))]
    assert sum(end_of(value) is not None for value in found) > 200
