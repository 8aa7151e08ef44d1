"""The bundled diffusion model and its verifier: they are what APD takes by itself, and they solve held-out tasks."""

from __future__ import annotations

import pytest

from paceline import LLM, Completion, Sampling
from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_TARGET, BUNDLED_VERIFIER, bundled_folder, bundled_names
from paceline.zoo.documents import HELDOUT_FIRST_SEED
from paceline.zoo.tasks import Task, task_of

TASKS = [task_of(HELDOUT_FIRST_SEED + seed) for seed in range(18)]


@pytest.fixture(scope="module")
def apd() -> LLM:
    return LLM(method="apd")


def answers(llm: LLM, tasks: list[Task]) -> list[Completion]:
    prompts = [[{"role": "user", "content": task.question}] for task in tasks]
    return llm.generate(prompts, Sampling(max_tokens=80))


def test_both_are_bundled_and_the_verifier_is_small(apd: LLM) -> None:
    assert {BUNDLED_DLLM, BUNDLED_VERIFIER} <= set(bundled_names())
    assert apd.verifier is not None
    own, small, target = (
        sum(tensor.numel() for name, tensor in model.named_parameters() if name != "head.weight")
        for model in (apd.model, apd.verifier, LLM(BUNDLED_TARGET, method="ar").model)
    )
    assert 0.1 <= small / own <= 0.2
    assert own == target
    assert LLM(verifier=bundled_folder(BUNDLED_VERIFIER)).verifier is not None
    assert LLM(method="diffusion").verifier is None


def test_held_out_tasks_are_solved_in_fewer_passes_than_tokens(apd: LLM) -> None:
    """The main job, on the real weights: half of 18 tasks at least, as one token per pass does (69 % of 120)."""
    found = answers(apd, TASKS)
    assert sum(task.check(answer.text) for task, answer in zip(TASKS, found, strict=True)) >= 9
    assert sum(len(answer.token_ids) for answer in found) > 1.5 * sum(answer.stats.forward_passes for answer in found)


def test_the_dllm_alone_keeps_every_token_in_sight_and_is_worse(apd: LLM) -> None:
    """With alpha 1 the verifier has no say: what it is for shows in the answers."""
    alone = LLM(method="apd", alpha=1.0)
    found, checked = answers(alone, TASKS), answers(apd, TASKS)
    for answer in found:
        assert all(round.accepted == round.drafted for round in answer.rounds[:-1])
    right = [sum(task.check(answer.text) for task, answer in zip(TASKS, own, strict=True)) for own in (found, checked)]
    assert right[0] < right[1]


def test_an_answer_is_the_same_alone_and_in_a_batch(apd: LLM) -> None:
    assert [answers(apd, [task])[0].text for task in TASKS[:3]] == [answer.text for answer in answers(apd, TASKS[:3])]
