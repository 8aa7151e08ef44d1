"""Chat tasks about Python: small functions with an example, and words of the language.

The result of each example is found by running the template itself, so that it is right.
Each task takes a generator and returns the turns: (user text, assistant text) pairs.
"""

from functools import cache
from random import Random

from paceline.zoo.chat_lists import Turns
from paceline.zoo.tables import say, table

NAMES = {
    "n": ("number", "n", "value", "x"),
    "s": ("text", "s", "string", "line"),
    "l": ("items", "values", "numbers", "data"),
    "w": ("words", "names", "items", "strings"),
    "d": ("mapping", "table", "d", "scores"),
}
ASKS = (
    "Write a [|short |simple ]Python function that {what}.",
    "How do I write a function in Python that {what}?",
    "I need a Python function `{name}` that {what}.",
    "Please write `{name}({arg})`, which {what}.",
    "[Can|Could] you give me a short Python function that {what}?",
)
OPENINGS = ("Here is a short version:", "This function {what}:", "You can write it like this:", "Here it is:", "Sure:")
USES = (
    "For example, `{call}` returns `{result}`.",
    "`{call}` gives `{result}`.",
    "With the call `{call}` you get `{result}`.",
    "If you call `{call}`, the result is `{result}`.",
)
AGAIN = ("What does `{call}` return?", "And `{call}`?", "What is the result of `{call}`?")
AGAIN_ANSWERS = (
    "It returns `{result}`. The body of `{name}` is the same as before; only the argument `{arg}` is different"
    " from the first example.",
    "The result of `{call}` is `{result}`. You can check it by typing the call after the definition of `{name}`.",
)
WORD_ASKS = (
    "What does `{w}` do in Python?",
    "Explain `{w}` in Python with a small example.",
    "How do I use `{w}`?",
    "When would I use `{w}` in Python?",
)
MIDDLES = ("Here is an example:", "A small example:", "For instance:", "Look at this:")


def write_function(rng: Random) -> Turns:
    """A small function, what it does, and an example that was really run."""
    entry = rng.choice(table("code")["functions"])
    name, body, what, examples = entry["name"], entry["body"], entry["what"], entry["examples"]
    argument, example = rng.choice(NAMES[entry["kind"]]), rng.choice(examples)
    code = function_source(name, argument, what, body, with_doc=rng.random() < 0.6)
    facts = {"what": what, "name": name, "arg": argument, "call": example.replace("FN", name)}
    facts["result"] = run_example(name, body, example)
    why = entry["why"].replace("ARG", argument)
    answer = f"{say(rng, OPENINGS, **facts)}\n\n```python\n{code}\n```\n\n{why} {say(rng, USES, **facts)}"
    turns = [(say(rng, ASKS, **facts), answer)]
    others = [one for one in examples if one != example]
    if others and rng.random() < 0.35:
        other = rng.choice(others)
        facts |= {"call": other.replace("FN", name), "result": run_example(name, body, other)}
        turns.append((say(rng, AGAIN, **facts), say(rng, AGAIN_ANSWERS, **facts)))
    return turns


def function_source(name: str, argument: str, what: str, body: str, with_doc: bool) -> str:
    """The source of a function from its table entry."""
    lines = body.replace("ARG", argument).split("\n")
    doc = [f'"""{what[0].upper()}{what[1:]}."""'] if with_doc else []
    return "\n".join([f"def {name}({argument}):", *(f"    {line}" for line in [*doc, *lines])])


@cache
def run_example(name: str, body: str, example: str) -> str:
    """What the example call returns, by running the table's own source."""
    scope: dict[str, object] = {}
    exec(function_source(name, "ARG", name, body, with_doc=False), scope)
    return repr(eval(example.replace("FN", name), scope))


def explain_word(rng: Random) -> Turns:
    """What a builtin or keyword does, with a small example."""
    turns: Turns = []
    for entry in rng.sample(table("code")["words"], rng.choice((1, 1, 2))):
        lead = rng.choice(("Thanks! ", "I see. ", "Good. ")) if turns else ""
        answer = "`{w}` {what}\n\n{middle}\n\n```python\n{code}\n```\n\n{then}".format(
            w=entry["word"], middle=rng.choice(MIDDLES), **entry
        )
        turns.append((lead + say(rng, WORD_ASKS, w=entry["word"]), answer))
    return turns
