"""Tasks are what their seed says, and their checks tell right from wrong."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from paceline.zoo.arithmetic import final_answer
from paceline.zoo.documents import HELDOUT_FIRST_SEED
from paceline.zoo.tasks import LEVELS, TASK_KINDS, TaskKind, drill, task


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_each_answer_is_right_and_no_answer_of_another_task_is(kind: TaskKind) -> None:
    tasks = [task(kind, seed) for seed in range(300)]
    assert {each.level for each in tasks} == set(LEVELS)
    assert len({each.question for each in tasks}) > 290
    assert all(each.check(each.answer) for each in tasks)
    assert task(kind, 7).question == tasks[7].question
    for one, other in pairwise(tasks):
        assert not one.check("")
        if kind != "functions" and one.answer.split()[-1] != other.answer.split()[-1]:
            assert not one.check(other.answer)


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_no_question_is_of_both_splits(kind: TaskKind) -> None:
    """Level 1 has few questions: most of them come up again and again."""
    learnt = {task(kind, seed).question for seed in range(3000)}
    held = [task(kind, HELDOUT_FIRST_SEED + seed) for seed in range(100)]
    assert learnt.isdisjoint(each.question for each in held)
    assert {each.level for each in held} == set(LEVELS)


def test_a_level_is_the_number_of_steps() -> None:
    for seed in range(200):
        sums, record, function = (task(kind, seed) for kind in TASK_KINDS)
        assert sums.answer.count("=") == sums.level
        assert len(json.loads(record.answer)) == 2 * record.level
        assert sum(function.answer.count(sign) for sign in "+-*") == function.level


def test_sums_stay_below_a_hundred_and_above_nothing() -> None:
    for seed in range(2000):
        found = task("sums", seed)
        lines = [line for line in found.answer.splitlines() if "=" in line]
        results = [int(line.split("=")[1].strip(" .")) for line in lines]
        for line, result in zip(lines, results, strict=True):
            left, sign, right, *_ = line.split()
            assert (
                result == {"+": int(left) + int(right), "-": int(left) - int(right), "x": int(left) * int(right)}[sign]
            )
        assert all(0 < result < 100 for result in results)
        assert final_answer(found.answer) == results[-1]


@pytest.mark.parametrize("seed", range(20))
def test_functions_are_read_and_not_run(seed: int) -> None:
    found = task("functions", seed)
    assert found.check(f"Here it is:\n```python\n{found.answer}\n```") is False, "words do not compile"
    assert found.check(f"```python\n{found.answer}\n```")
    assert not found.check(found.answer.replace("(", "[", 1))
    assert not found.check(found.answer.replace("def ", "def other_"))
    assert not found.check(found.answer + "\x00")
    assert not found.check(found.answer + " + 1")
    head, expression = found.answer.split("return ")
    assert found.check(f"{head}return 0 + ({expression})")
    for other in ("pass", "return", "return abs(1)", f"return {expression} / 1", f"print(1)\n    return {expression}"):
        assert not found.check(head + other)
    assert not found.check(f"{head}return {'(' * 300}{expression}{')' * 300}")


def test_no_text_is_more_than_wrong() -> None:
    """Neither a warning of the parser nor its giving up leaves a check."""
    assert not task("functions", 3).check("def f(x):\n    return '\\d'")
    for text in ("1" * 5000, "[" * 5000, "(" * 5000, '{"a": ' * 5000 + "}"):
        assert not any(task(kind, 3).check(text) for kind in TASK_KINDS)


def test_records_may_stand_in_a_sentence_but_must_be_equal() -> None:
    found = task("records", 3)
    assert found.check(f"Here it is: {found.answer}")
    assert not found.check(found.answer.replace('"', "'"))
    assert not found.check(found.answer.replace("}", ', "more": 1}'))


def test_a_number_is_no_truth_and_no_other_kind_of_number() -> None:
    found = next(one for one in (task("records", seed) for seed in range(50)) if '"active": true' in one.answer)
    assert not found.check(found.answer.replace("true", "1"))
    aged = next(one for one in (task("records", seed) for seed in range(50)) if '"age"' in one.answer)
    assert not found.check(aged.answer.replace(re.search(r'"age": \d+', aged.answer)[0], '"age": 30.0'))
    assert aged.check(json.dumps(dict(reversed(json.loads(aged.answer).items()))))


def test_drills_are_right_and_in_the_words_of_the_tasks() -> None:
    for seed in range(50):
        asked, answer = drill(seed)
        lines = answer.splitlines()
        assert len(lines) == 8
        assert asked == f"Work out: {'; '.join(line.partition(' = ')[0] for line in lines)}."
        for line in lines:
            left, result = line.removesuffix(".").split(" = ")
            assert eval(left.replace("x", "*")) == int(result)  # digits and signs of our own
            assert 0 <= int(result) < 100
    assert drill(3) == drill(3) != drill(4)
