"""Benchmark prompts cut from held-out documents, and the file they are kept in.

A prompt is a dict with id, scenario, source, reference (the true continuation) and either prompt (text)
or messages (ending with a user turn). Knows documents; nothing of tokens or models.
`python -m paceline.zoo.prompts` writes `data/prompts.jsonl` anew.
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

from paceline.zoo.corpus import documents
from paceline.zoo.documents import Document

Scenario = Literal["long_text", "dialogue", "code"]
Prompt = dict[str, Any]
SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)
# About 60 tokens each, at the bytes per token of their kind.
OPENING_CHARS, ANSWER_CHARS, CODE_CHARS, LONGEST_CODE_CHARS = 240, 190, 200, 1000
ANSWERS_ALIKE = 2  # so many answers may begin alike
PROMPTS_FILE = files("paceline.zoo").joinpath("data", "prompts.jsonl")


def load_prompts(scenario: Scenario | None = None) -> list[Prompt]:
    """The kept prompts, of all scenarios or of one."""
    prompts = [json.loads(line) for line in PROMPTS_FILE.read_text("utf-8").splitlines()]
    return [prompt for prompt in prompts if scenario in (None, prompt["scenario"])]


def build_prompts(per_scenario: int = 24) -> list[Prompt]:
    """`per_scenario` prompts of each scenario, in a fixed order; takes about half a minute."""
    heldout = list(documents("heldout"))
    found: dict[Scenario, Iterable[Prompt]] = {
        "long_text": map(_long_text, (d for d in heldout if d.kind == "story")),
        "dialogue": _dialogues([d for d in heldout if d.kind == "dialogue"]),
        "code": _code([d for d in heldout if d.kind == "code"]),
    }
    return [
        {"id": f"{scenario}-{number:02}", "scenario": scenario, **prompt}
        for scenario in SCENARIOS
        for number, prompt in enumerate(islice(found[scenario], per_scenario))
    ]


def _long_text(document: Document) -> Prompt:
    """The first sentences of a text, and the rest."""
    ends = (found.end() for found in re.finditer(r"[.!?]\"?(?=\s)", document.text))
    cut = next(end for end in ends if end >= OPENING_CHARS)
    return {"source": document.name, "prompt": document.text[:cut], "reference": document.text[cut:]}


def _dialogues(heldout: list[Document]) -> Iterator[Prompt]:
    """Chats whose last answer is long, and different from every answer of the training split."""
    taken: Counter[str] = Counter()
    known = {m["content"] for d in documents("train") for m in d.messages if m["role"] == "assistant"}
    for document in heldout:
        *messages, answer = document.messages
        text = answer["content"]
        if len(text) >= ANSWER_CHARS and text not in known and taken[text[:8]] < ANSWERS_ALIKE:
            taken[text[:8]] += 1
            yield {"source": document.name, "messages": messages, "reference": text}


def _code(heldout: list[Document]) -> Iterator[Prompt]:
    """Two generated modules, then a function of the standard library, and so on."""
    modules = [document for document in heldout if document.name.startswith("module:")]
    functions = _functions([document for document in heldout if not document.name.startswith("module:")])
    cut = map(_module, modules)
    return (prompt for three in zip(cut, cut, functions, strict=False) for prompt in three)


def _module(document: Document) -> Prompt:
    """A module up to the first method of its second class, and the rest."""
    tree = ast.parse(document.text)
    collection = [node for node in tree.body if isinstance(node, ast.ClassDef)][1]
    method = next(node for node in collection.body if isinstance(node, ast.FunctionDef))
    lines = document.text.split("\n")
    start, rest = "\n".join(lines[: method.end_lineno]), "\n".join(lines[method.end_lineno :])
    return {"source": document.name, "prompt": start, "reference": f"\n{rest}"}


def _functions(heldout: list[Document]) -> Iterator[Prompt]:
    """Functions cut after their first statements: one of each file, then the second ones, and so on."""
    by_file: dict[str, list[Prompt]] = {}
    for document in heldout:
        if prompt := _function(document):
            by_file.setdefault(document.name.split(":")[0], []).append(prompt)
    return (prompt for row in zip_longest(*by_file.values()) for prompt in row if prompt)


def _function(document: Document) -> Prompt | None:
    """Signature, docstring and first statements of a function, and the rest; None if it does not suit."""
    tree = _parsed(document.text)
    node = tree.body[0] if tree and len(tree.body) == 1 else None
    if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node):
        return None
    lines = document.text.split("\n")
    for statement in node.body[1:]:
        last = statement.end_lineno or statement.lineno
        start, rest = "\n".join(lines[:last]), "\n".join(lines[last:])
        if CODE_CHARS <= len(start) <= LONGEST_CODE_CHARS and len(rest) >= CODE_CHARS:
            return {"source": document.name, "prompt": start, "reference": f"\n{rest}"}
    return None


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def main() -> None:
    """Write the file of prompts."""
    lines = [json.dumps(prompt, ensure_ascii=False) for prompt in build_prompts()]
    Path(str(PROMPTS_FILE)).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
