"""Seeded tasks whose answers can be checked: sums in words, records that must parse, functions that must compile.

Each has a level from 1 to 3, how many steps of thought it takes. A model that is to be judged on those of held-out
seeds learns the same kinds of task from other seeds, and no question is of both. Knows nothing of chats, tokens or
models.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args
from warnings import catch_warnings

from paceline.zoo import words
from paceline.zoo.arithmetic import final_answer
from paceline.zoo.documents import HELDOUT_FIRST_SEED, split_of
from paceline.zoo.tables import say

__all__ = ["LEVELS", "TASK_KINDS", "Task", "TaskKind", "drill", "task", "task_of"]

TaskKind = Literal["sums", "records", "functions"]
TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
LEVELS = (1, 2, 3)

_MOST = 10
"""No number of a sum is larger: a hundred sums in all, so few that a model of this size learns them."""

_MORE = ("{he} gets {n} more.", "{he} finds {n} more.", "A friend gives {him} {n}.")
_LESS = ("{he} gives {n} away.", "{he} loses {n}.", "{he} sells {n}.")
_TIMES = ("Then {his} number of {good} becomes {n} times as large.", "{he} ends up with {n} times as many.")
_SUM_ASKS = ("How many {good} does {name} have now?", "How many {good} are there at the end?")
_RECORD_ASKS = ("Write this as one JSON object: {facts}.", "Give me a JSON object with these fields: {facts}.")
_FUNCTION_ASKS = (
    "Write a Python function `{name}` that takes `{given}` and returns {what}.",
    "I need a Python function `{name}({given})`. It returns {what}.",
)
_SIGNS: dict[type, Callable[[int, int], int]] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_FIELDS = ("name", "town", "job", "age", "color", "pets", "active")
_COLORS = ("red", "blue", "green", "white", "black", "yellow", "grey", "brown")
_NAMES = ("scale", "shift", "change", "convert", "compute", "adjust", "update", "transform")


@dataclass(frozen=True, slots=True)
class Task:
    """A question, a right answer, and what tells whether another answer is right."""

    kind: TaskKind
    level: int
    question: str
    answer: str
    check: Callable[[str], bool]


def task(kind: TaskKind, seed: int) -> Task:
    """The task of a kind and a seed: the first one drawn whose question is of the seed's split."""
    rng = Random(f"{kind}:{seed}")
    split = "train" if seed < HELDOUT_FIRST_SEED else "heldout"
    while True:
        level = rng.choice(LEVELS)
        question, answer, check = _MAKERS[kind](rng, level)
        if split_of(question) == split:
            return Task(kind, level, question, answer, check)


def task_of(seed: int) -> Task:
    """The task of a seed, the kinds in turn."""
    return task(TASK_KINDS[seed % len(TASK_KINDS)], seed)


def drill(seed: int) -> tuple[str, str]:
    """Eight sums as they occur in the word problems, and what they come to: to learn from, never to be judged on."""
    rng = Random(f"drill:{seed}")
    facts = {**words.person(rng)[1], "good": "", "name": ""}
    steps = [_change(rng, rng.randrange(2, _MOST + 1), facts)[1] for _ in range(8)]
    asked = "; ".join(step.partition(" = ")[0] for step in steps)
    return f"Work out: {asked}.", "\n".join(steps)


Made = tuple[str, str, Callable[[str], bool]]


def _sums(rng: Random, level: int) -> Made:
    """One to three changes of a number of at most ten, each worked out on a line of its own."""
    name, pronouns = words.person(rng)
    facts = {**pronouns, "name": name, "good": rng.choice(words.GOODS)}
    total = rng.randrange(2, _MOST)
    told, worked = [f"{name} has {total} {facts['good']}."], []
    for _ in range(level):
        sentence, step, total = _change(rng, total, facts)
        told.append(words.capital(sentence))
        worked.append(step)
    question = " ".join([*told, say(rng, _SUM_ASKS, **facts)])
    answer = total
    return question, "\n".join([*worked, f"The answer is {answer}."]), lambda text: final_answer(text) == answer


def _change(rng: Random, total: int, facts: dict[str, str]) -> tuple[str, str, int]:
    """A sentence, its sum, and what that comes to."""
    kinds = ["more"] * (total < _MOST) + ["less"] * (total > 2) + ["times"] * (total <= _MOST // 2)
    kind = rng.choice(kinds)
    if kind == "times":
        n = rng.randrange(2, _MOST // total + 1)
        return say(rng, _TIMES, n=n, **facts), f"{total} x {n} = {total * n}.", total * n
    if kind == "more":
        n = rng.randrange(1, _MOST - total + 1)
        return say(rng, _MORE, n=n, **facts), f"{total} + {n} = {total + n}.", total + n
    n = rng.randrange(1, total - 1)
    return say(rng, _LESS, n=n, **facts), f"{total} - {n} = {total - n}.", total - n


def _records(rng: Random, level: int) -> Made:
    """Two, four or six fields of words, numbers, truths and lists."""
    fields = sorted(rng.sample(_FIELDS, 2 * level), key=_FIELDS.index)
    record = {field: _value(rng, field) for field in fields}
    facts = "; ".join(f"{field} is {_told(value)}" for field, value in record.items())
    answer = json.dumps(record)
    return (
        say(rng, _RECORD_ASKS, facts=facts),
        answer,
        lambda text: _as_json(text) == json.dumps(record, sort_keys=True),
    )


def _value(rng: Random, field: str) -> object:
    values: dict[str, Callable[[], object]] = {
        "name": lambda: rng.choice(words.NAMED),
        "town": lambda: words.place_name(rng),
        "job": lambda: rng.choice(words.JOBS),
        "age": lambda: rng.randrange(18, 90),
        "color": lambda: rng.choice(_COLORS),
        "pets": lambda: rng.sample(words.ANIMALS, rng.randrange(1, 4)),
        "active": lambda: rng.random() < 0.5,
    }
    return values[field]()


def _told(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value).lower() if value in (True, False) else str(value)


def _as_json(text: str) -> str | None:
    """The JSON object in a text, its keys in order, or None. As text, since 1 is True in Python, and not in JSON."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return json.dumps(json.loads(text[start : end + 1]), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _functions(rng: Random, level: int) -> Made:
    """A function of one to three arithmetic steps; right is what compiles, and would return the same."""
    name, given = rng.choice(_NAMES), rng.choice("nxy")
    expression, what = given, f"`{given}`"
    for _ in range(level):
        n, (sign, verb) = rng.randrange(2, 20), rng.choice((("+", "plus"), ("-", "minus"), ("*", "times")))
        expression = f"({expression}) {sign} {n}" if sign == "*" and " " in expression else f"{expression} {sign} {n}"
        what += f" {verb} {n}"
    lines = [f"def {name}({given}):", f"    return {expression}"]
    return say(rng, _FUNCTION_ASKS, name=name, given=given, what=what), "\n".join(lines), _like(name, "\n".join(lines))


def _like(name: str, wanted: str) -> Callable[[str], bool]:
    """Whether a text defines the function `name` that `wanted` does; neither is run."""
    expected = _returned(name, wanted)
    return lambda text: _returned(name, text) == expected


def _returned(name: str, text: str) -> list[int] | None:
    """What the function `name` of a text returns at some places: enough to tell one polynomial from another.

    None where the text does not compile, or is no such function of one argument that returns what it reckons at once.
    """
    try:
        with catch_warnings(action="ignore"):  # of the text's own escapes and the like
            body = ast.parse(text.replace("```python", "").replace("```", "")).body
        match [each for each in body if isinstance(each, ast.FunctionDef) and each.name == name]:
            case [ast.FunctionDef(args=ast.arguments(args=[given]), body=[ast.Return(value=ast.expr() as result)])]:
                return [_reckoned(result, given.arg, value) for value in range(5)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return None


def _reckoned(node: ast.expr, given: str, value: int) -> int:
    """The value of an expression of +, - and *, where the argument has a value; a ValueError for anything else."""
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            return _SIGNS[type(op)](_reckoned(left, given, value), _reckoned(right, given, value))
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if name == given:
            return value
    raise ValueError(ast.dump(node)[:80])


_MAKERS: dict[TaskKind, Callable[[Random, int], Made]] = {
    "sums": _sums,
    "records": _records,
    "functions": _functions,
}
