"""Many prompts in one rectangle, against plain decoding of each in float64: equal ids."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import tiny_spec, tiny_transformer

from paceline.decode.autoregressive import Autoregressive
from paceline.decode.lockstep import LockstepJob, decode_lockstep
from paceline.decode.target import Target
from paceline.engine.loop import Job, run
from paceline.request import Sampling

ENDS = frozenset({7, 9})
PROMPTS = [tuple((7 * n + 3 * i) % 60 for i in range(length)) for n, length in enumerate((5, 1, 12, 5, 3, 9))]
SAMPLINGS = [
    Sampling(max_tokens=40),
    Sampling(max_tokens=23, temperature=1.0),
    Sampling(max_tokens=40, temperature=0.7, top_p=0.9),
    Sampling(max_tokens=1),
    Sampling(max_tokens=400, temperature=1.5, top_k=5),
    Sampling(max_tokens=31),
]


def plainly(target: Target, jobs: list[LockstepJob], ends: frozenset[int]) -> list[list[int]]:
    alone = [Job(job.prompt, job.sampling, job.seed, index) for index, job in enumerate(jobs)]
    done = {a.job.prompt_index: a.token_ids for a, _ in run(Autoregressive(target), alone, None, ends, 1)}
    return [done[index] for index in range(len(jobs))]


@pytest.mark.parametrize(
    "changes", [{}, {"family": "qwen2", "windows": (4, None)}, {"family": "llama", "num_kv_heads": 4}]
)
@pytest.mark.parametrize("ends", [ENDS, frozenset[int]()])
def test_it_equals_plain_decoding(changes: dict[str, Any], ends: frozenset[int]) -> None:
    """Ragged prompts, all kinds of sampling, padded vocabulary; some end early, one at the context."""
    target = Target(tiny_transformer(tiny_spec(**{"context_tokens": 80, **changes})), usable_tokens=61)
    jobs = [LockstepJob(p, s, seed) for seed, (p, s) in enumerate(zip(PROMPTS, SAMPLINGS, strict=True))]
    answers = decode_lockstep(target, jobs, ends)
    assert answers == plainly(target, jobs, ends)
    assert len({len(answer) for answer in answers}) > 2
    if not ends:
        assert len(PROMPTS[4]) + len(answers[4]) == 80


def test_one_alone() -> None:
    target = Target(tiny_transformer(tiny_spec()), usable_tokens=64)
    jobs = [LockstepJob(PROMPTS[2], Sampling(max_tokens=9), 0)]
    assert decode_lockstep(target, jobs, frozenset()) == plainly(target, jobs, frozenset())
