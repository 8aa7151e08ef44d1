"""Word problems: every equation holds, and the checker tells right answers from wrong ones."""

import re

import pytest

from paceline.zoo.arithmetic import check_answer, final_answer, word_problem

SEEDS = range(400)
EQUATION = re.compile(r"((?:\d+ [-+x/] )+\d+) = (\d+)")


def value(terms: str) -> int:
    """The value of "3 x 4" or "1 + 2 + 3"."""
    result, *rest = terms.split(" ")
    total = int(result)
    for sign, number in zip(rest[::2], map(int, rest[1::2]), strict=True):
        total = {"+": total + number, "-": total - number, "x": total * number, "/": total // number}[sign]
        assert sign != "/" or (total * number == int(result))
    return total


def test_a_seed_has_one_problem():
    assert [word_problem(seed) for seed in range(50)] == [word_problem(seed) for seed in range(50)]


@pytest.mark.parametrize("seed", [0, 10**9, 2**39])
def test_the_worked_answer_ends_with_the_answer(seed):
    problem = word_problem(seed)
    assert problem.worked_answer.endswith(f"The answer is {problem.answer}.")


def test_every_equation_holds():
    for seed in SEEDS:
        equations = EQUATION.findall(word_problem(seed).worked_answer)
        assert equations, seed
        for terms, result in equations:
            assert value(terms) == int(result), seed


def test_the_checker_accepts_the_worked_answer_and_refuses_others():
    for seed in SEEDS:
        problem = word_problem(seed)
        assert check_answer(problem, problem.worked_answer)
        assert not check_answer(problem, problem.worked_answer.replace("answer is ", "answer is 1"))
        assert not check_answer(problem, f"The answer is {problem.answer + 1}.")
        assert not check_answer(problem, "I do not know.")
        assert problem.answer >= 0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 12.", 12),
        ("First 3 + 4 = 7. The answer is: **1,204** dollars", 1204),
        ("The answer is 3. No, the answer is 5.", 5),
        ("So there are 42 left", 42),
        ("the ANSWER IS -7", -7),
        ("The answer is $18.", 18),
        ("none", None),
        ("", None),
    ],
)
def test_final_answer(text, answer):
    assert final_answer(text) == answer
