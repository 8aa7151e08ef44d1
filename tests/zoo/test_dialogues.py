"""Chats: well formed, and right where rightness can be checked."""

import re
from random import Random

import pytest

from paceline.zoo import chat_code, chat_lists, chat_plans
from paceline.zoo.arithmetic import final_answer
from paceline.zoo.dialogues import TASKS, dialogue
from paceline.zoo.tables import rows, table

SEEDS = range(250)
INTS = re.compile(r"\d+")
PRODUCT = re.compile(r"(\d+) x (\d+) = (\d+)")
SUM = re.compile(r"(\d+) \+ (\d+) = (\d+)")


def turns_of(task):
    """(ask, answer) of the first turn of many chats of a task."""
    return [task(Random(seed))[0] for seed in SEEDS]


def test_a_seed_has_one_dialogue():
    assert [dialogue(seed) for seed in range(50)] == [dialogue(seed) for seed in range(50)]


def test_roles_take_turns_and_an_answer_ends_the_chat():
    for seed in SEEDS:
        roles = [message["role"] for message in dialogue(seed)]
        spoken = roles[1:] if roles[0] == "system" else roles
        assert spoken == ["user", "assistant"] * (len(spoken) // 2)
        assert 1 <= len(spoken) // 2 <= 3


@pytest.mark.parametrize("task", [task for task, _ in TASKS], ids=lambda task: task.__name__)
def test_no_slot_is_left_open_and_no_line_repeats(task):
    for seed in range(60):
        for ask, answer in task(Random(seed)):
            if "`" not in ask + answer:
                assert not re.search(r"[{}|]|\[\w", ask + answer), ask
            steps = [line for line in answer.split("\n") if len(line) > 25]
            assert len(steps) == len(set(steps))
            assert len(answer.split()) <= 260


def test_products_and_sums_hold_everywhere():
    for task, _ in TASKS:
        for seed in range(60):
            for _, answer in task(Random(seed)):
                assert all(int(x) * int(y) == int(z) for x, y, z in PRODUCT.findall(answer)), answer
                if "Altogether" not in answer:
                    assert all(int(x) + int(y) == int(z) for x, y, z in SUM.findall(answer)), answer


def test_sorted_numbers_are_sorted():
    for ask, answer in turns_of(chat_lists.sort_numbers):
        given = [int(n) for n in INTS.findall(ask)]
        down = "from the largest" in ask
        assert ", ".join(str(n) for n in sorted(given, reverse=down)) in answer


def test_sorted_words_are_sorted():
    for ask, answer in turns_of(chat_lists.sort_words):
        given = re.split(r", ", re.split(r"[:?] ", ask)[-1].rstrip("."))
        listed = re.findall(r"^\d+\. (\w+)", answer, re.MULTILINE)
        assert listed == sorted(given, key=lambda word: (len(word) if "length" in ask else 0, word))


def test_counted_words_have_what_was_asked():
    for ask, answer in turns_of(chat_lists.count_words):
        checked = re.findall(r"^- (\w+): (\w+)$", answer, re.MULTILINE)
        letter = re.search(r'the letter "(\w)"', ask)
        size = re.search(r"exactly (\d+) letters", ask)
        for word, mark in checked:
            assert mark == (("yes" if letter[1] in word else "no") if letter else str(len(word)))
        found = [word for word, _ in checked if (letter[1] in word if letter else len(word) == int(size[1]))]
        assert f"So {len(found)} word" in answer
        assert all(word in answer.rsplit(": ", 1)[1] for word in found)


def test_sums_after_sorting():
    followed = [turns for seed in SEEDS if len(turns := chat_lists.sort_numbers(Random(seed))) == 2]
    assert len(followed) > 50
    for (ask, _), (_, answer) in followed:
        assert final_answer(answer) == sum(int(n) for n in INTS.findall(ask))


def test_conversions():
    factors = {(big, small): int(factor) for big, small, factor in rows("words", "units")}
    for ask, answer in turns_of(chat_lists.convert_units):
        amount = int(INTS.findall(ask)[0])
        pairs = {pair for pair in factors if all(re.search(rf"\b{unit}\b", ask) for unit in pair)}
        assert any(f"{amount * factors[pair]} {pair[1]}" in answer for pair in pairs), (ask, answer)


def test_the_code_of_an_answer_runs_and_gives_what_it_says():
    for _, answer in turns_of(chat_code.write_function):
        code = re.search(r"```python\n(.*?)\n```", answer, re.DOTALL)[1]
        call, result = re.findall(r"`([^`]+)`", answer.split("```")[-1])[-2:]
        scope = {}
        exec(code, scope)
        assert repr(eval(call, scope)) == result


def test_every_example_of_the_table_runs():
    for entry in table("code")["functions"]:
        for example in entry["examples"]:
            assert chat_code.run_example(entry["name"], entry["body"], example)
    for entry in table("code")["words"]:
        compile(entry["code"], entry["word"], "exec")


def test_recipes_scale():
    amounts = {name: parts.split(" / ") for name, parts, *_ in rows("plans", "recipes")}
    for ask, answer in turns_of(chat_plans.recipe):
        people = int(INTS.findall(ask)[0])
        name = next(name for name in amounts if name in ask)
        for part in amounts[name]:
            amount, _, what = part.split(",")
            assert re.search(rf"- {int(amount) * people} .*{what}", answer), (ask, answer)
