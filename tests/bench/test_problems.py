"""The problems are held out: no training corpus, however large, has their seeds."""

from __future__ import annotations

import pytest

from paceline.bench.problems import answer_length, held_out
from paceline.errors import ConfigError
from paceline.zoo import corpus
from paceline.zoo.corpus import HELDOUT_FIRST_SEED, task_document
from paceline.zoo.tasks import TASK_KINDS


def test_they_are_the_held_out_documents_from_the_first_on() -> None:
    problems = held_out(30)
    assert [problem.task.kind for problem in problems[:3]] == [
        TASK_KINDS[HELDOUT_FIRST_SEED % 3 - shift] for shift in (0, 2, 1)
    ]
    for problem in problems:
        document = task_document(problem.seed, "heldout")
        assert [*problem.messages, {"role": "assistant", "content": problem.task.answer}] == list(document.messages)
    heldout = corpus._seeds("heldout", 10**6)
    assert all(problem.seed in heldout for problem in problems)


def test_training_never_uses_their_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[int] = set()
    honest = corpus.task_of
    monkeypatch.setattr(corpus, "task_of", lambda seed: used.add(seed) or honest(seed))
    monkeypatch.setattr(corpus, "library_documents", list)
    assert len(list(corpus.documents("train", 0, 0, 0, task_count=600))) > 500
    seeds = {problem.seed for problem in held_out(600)}
    assert used == set(range(600))
    assert not used & seeds
    assert not any(seed in corpus._seeds("train", HELDOUT_FIRST_SEED) for seed in seeds), "of the largest corpus"


def test_kinds_can_be_chosen_and_no_question_comes_twice() -> None:
    problems = held_out(200, ("functions",))
    assert {problem.task.kind for problem in problems} == {"functions"}
    assert len({problem.task.question for problem in problems}) == 200
    assert [problem.seed for problem in problems] == sorted(problem.seed for problem in problems)
    assert all(problem.task.check(problem.task.answer) for problem in problems)


def test_what_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"kind is 'poems'\. There are: sums, records, functions"):
        held_out(3, ("sums", "poems"))
    monkeypatch.setattr("paceline.bench.problems._MOST_SEEDS_PER_PROBLEM", 2)
    with pytest.raises(ConfigError, match="problems is 30, and there are"):
        held_out(30, ("sums",))


def test_the_longest_right_answer_and_its_end_fit() -> None:
    problems = held_out(20)
    longest = max(len(problem.task.answer) for problem in problems)
    length = answer_length(problems, lambda text: text)
    assert length % 8 == 0
    assert longest < length <= longest + 8
