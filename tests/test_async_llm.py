"""AsyncLLM: many tasks at once give what `LLM.generate` gives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tiny import GOLDEN

from paceline import LLM, AsyncLLM, Sampling
from paceline.engine.scheduler import Limits
from paceline.errors import BadRequest, QueueFull, Unavailable

CASE = GOLDEN / "dflash-v1-full"
PROMPTS = [[1, 2, 3], [4, 5], [9, 8, 7, 6], [3], [1, 1, 2, 2]]


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(CASE / "target", drafter=CASE / "draft")


@pytest.fixture
def many(llm: LLM) -> Iterator[AsyncLLM]:
    it = AsyncLLM({"pair": llm, "plain": LLM(CASE / "target", method="ar")})
    yield it
    it.close()


def sampling(seed: int, **settings: Any) -> Sampling:
    return Sampling(**{"max_tokens": 12, "temperature": 1.0, "seed": seed} | settings)


def test_answers_are_those_of_generate(llm: LLM, many: AsyncLLM) -> None:
    async def ask() -> list[Any]:
        asked = [(number, prompt, model) for number, prompt in enumerate(PROMPTS) for model in ("pair", "plain")]
        return await asyncio.gather(*(many.generate(prompt, sampling(n), model) for n, prompt, model in asked))

    found = [answer.token_ids for (answer,) in asyncio.run(ask())]
    alone = [llm.generate(prompt, sampling(number))[0].token_ids for number, prompt in enumerate(PROMPTS)]
    assert found[::2] == found[1::2] == alone


def test_several_answers_to_one_prompt(llm: LLM) -> None:
    async def ask() -> list[list[int]]:
        async with AsyncLLM(llm) as it:
            return [answer.token_ids for answer in await it.generate([1, 2, 3], sampling(5, n=3))]

    assert asyncio.run(ask()) == [answer.token_ids for answer in llm.generate([1, 2, 3], sampling(5, n=3))]


def test_a_stream_in_a_thread_and_in_asyncio(llm: LLM, many: AsyncLLM) -> None:
    async def hear() -> list[int]:
        stream = many.stream([4, 5], sampling(2), "pair")
        return [token async for chunk in stream for token in chunk.token_ids]

    expected = llm.generate([4, 5], sampling(2))[0].token_ids
    assert asyncio.run(hear()) == expected
    stream = many.stream([4, 5], sampling(2), "pair")
    assert [token for chunk in stream for token in chunk.token_ids] == expected


def test_a_task_that_is_cancelled_takes_its_request_along(many: AsyncLLM) -> None:
    async def ask() -> None:
        task = asyncio.create_task(many.generate([1, 2, 3], sampling(0, max_tokens=400), "plain"))
        while many.load == (0, 0):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    assert many.drain(10.0)
    assert many.load == (0, 0)


def test_what_is_refused(llm: LLM, many: AsyncLLM) -> None:
    with pytest.raises(BadRequest, match="'pair', 'plain'"):
        many.stream([1], model="other")
    with pytest.raises(BadRequest, match="one answer"):
        many.stream([1], sampling(0, n=2), "pair")
    with pytest.raises(BadRequest, match="empty"):
        many.stream([], model="pair")
    full = AsyncLLM(llm, Limits(waiting=0))
    with pytest.raises(QueueFull):
        full.stream([1])
    full.close()
    many.close()
    with pytest.raises(Unavailable):
        many.stream([1], model="pair")


FORGETS = """
import sys
from paceline import LLM, AsyncLLM

llm = AsyncLLM(LLM(sys.argv[1], method="ar"))
for chunk in (stream := llm.stream([1, 2, 3])):
    print("heard")
    sys.exit()
"""


def test_who_forgets_to_close_leaves_nothing_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGETS, str(CASE / "target")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")
