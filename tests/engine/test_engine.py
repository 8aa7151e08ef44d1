"""The engine: threads, streams, cancels and faults; whoever is in a batch, answers are those of running alone."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from scripted import answers_of, drafter_of, plain
from tiny import tiny_spec, tiny_transformer
from tiny_tokenizers import of_pieces

from paceline.completion import Completion, Round
from paceline.decode.dflash import DFlash
from paceline.decode.lookup import PromptLookup
from paceline.decode.speculation import Lookup, Speculation
from paceline.decode.target import Target
from paceline.engine.engine import Engine, Served
from paceline.engine.loop import Decoder, Job
from paceline.engine.scheduler import Limits
from paceline.errors import BadRequest, QueueFull, Unavailable
from paceline.request import Sampling

MODEL = tiny_transformer(tiny_spec())
ENDS = frozenset({5})


def decoders() -> dict[str, Decoder[Any]]:
    drafter = drafter_of(MODEL)
    target = Target(MODEL, 64, drafter.spec.target_layer_ids)
    tree = Speculation(block_size=4, candidate_num=3, max_nodes=7)
    return {
        "ar": plain(MODEL),
        "dflash": DFlash(target, drafter, tree),
        "lookup": PromptLookup(Target(MODEL, 64), Lookup(prompt_lookup_num_tokens=4)),
    }


def served(**others: Decoder[Any]) -> dict[str, Served]:
    return {name: Served(decoder, None, ENDS) for name, decoder in {**decoders(), **others}.items()}


def job(seed: int, tokens: int = 12, **sampling: Any) -> Job:
    rng = random.Random(seed)
    prompt = tuple(rng.randrange(6, 64) for _ in range(rng.randint(1, 9)))
    return Job(prompt, Sampling(max_tokens=tokens, temperature=rng.choice([0.0, 1.0]), **sampling), seed)


def alone(jobs: Sequence[Job]) -> list[list[int]]:
    truths = answers_of(plain(MODEL), jobs, ends=ENDS)
    return [list(truths[each.prompt, each.seed]) for each in jobs]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(served()) as it:
        yield it
    assert it.load == (0, 0)


def test_an_answer_is_that_of_running_alone(engine: Engine) -> None:
    one = job(1)
    for name in ("ar", "dflash", "lookup"):
        stream = engine.submit(one, name)
        chunks = list(stream)
        assert [token for chunk in chunks for token in chunk.token_ids] == alone([one])[0]
        completion = chunks[-1].completion
        assert completion is not None
        assert completion.token_ids == alone([one])[0]
        assert stream.ended


@pytest.mark.parametrize("seed", range(6))
def test_who_comes_and_goes_changes_nobodys_text(seed: int) -> None:
    """Random arrivals, methods and cancels; a batch of at most three, so that most wait."""
    rng = random.Random(seed)
    jobs = [job(100 * seed + number, rng.choice([1, 5, 30])) for number in range(24)]
    found: dict[int, Completion] = {}
    with Engine(served(), Limits(running=3, window_seconds=0.001)) as engine:
        streams = []
        for each in jobs:
            streams.append(engine.submit(each, rng.choice(["ar", "dflash", "lookup"])))
            time.sleep(rng.choice([0.0, 0.0, 0.003]))
        gone = set(rng.sample(range(24), 5))
        for number in gone:
            streams[number].cancel()
        for number, stream in enumerate(streams):
            if number not in gone:
                found[number] = stream.result()
        assert engine.drain(10.0)
        assert engine.load == (0, 0)
    truths = alone(jobs)
    assert {number: each.token_ids for number, each in found.items()} == {number: truths[number] for number in found}
    assert found.keys() == set(range(24)) - gone


def test_text_and_stop_strings() -> None:
    tokenizer, _ = of_pieces([f"<{number}>" for number in range(64)])
    with Engine({"ar": Served(plain(MODEL), tokenizer, ENDS)}) as it:
        whole = it.submit(job(3, 9), "ar").result()
        stop = whole.text[len(whole.text) // 2 :][:2]
        chunks = list(it.submit(job(3, 9, stop=(stop,)), "ar"))
    assert "".join(chunk.text for chunk in chunks) == whole.text[: whole.text.index(stop)]


def test_in_asyncio_many_at_once(engine: Engine) -> None:
    jobs = [job(number) for number in range(9)]

    async def hear(each: Job) -> list[int]:
        return [token async for chunk in engine.submit(each, "dflash") for token in chunk.token_ids]

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*map(hear, jobs))

    assert asyncio.run(all_of_them()) == alone(jobs)


class Slow:
    """A decoder that waits in every step, and says how many were taken."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.own, self.seconds, self.steps, self.name = plain(MODEL), seconds, 0, "ar"
        self.check, self.open, self.prefill = self.own.check, self.own.open, self.own.prefill

    def step(self, states: Sequence[Any]) -> list[Round]:
        self.steps += 1
        time.sleep(self.seconds)
        return self.own.step(states)


def test_a_cancel_takes_effect_within_one_round() -> None:
    slow = Slow()
    with Engine(served(slow=slow)) as engine:
        stream = engine.submit(job(2, 400), "slow")
        for chunk in stream:
            if chunk.round is not None:
                stream.cancel()
                break
        before = slow.steps
        assert engine.drain(5.0)
        assert slow.steps <= before + 1
        assert engine.load == (0, 0)
        with pytest.raises(InterruptedError):
            stream.result()


def test_who_leaves_early_cancels() -> None:
    slow = Slow()
    with Engine(served(slow=slow)) as engine:
        for _ in engine.submit(job(2, 400), "slow"):
            break

        async def leave() -> None:
            async for _ in engine.submit(job(3, 400), "slow"):
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(leave())
        assert engine.drain(5.0)
        assert slow.steps < 20


class Faulty:
    """Raises where one sequence, of that prompt, has so many tokens; in a batch all of it fails."""

    def __init__(self, own: Decoder[Any], prompt: tuple[int, ...], tokens: int, times: int = 10**9) -> None:
        self.own, self.prompt, self.tokens, self.times, self.name = own, prompt, tokens, times, own.name
        self.check, self.open, self.prefill = own.check, own.open, own.prefill

    def step(self, states: Sequence[Any]) -> list[Round]:
        done = self.own.step(states)  # half done: others have committed
        for state in states:
            own = tuple(state.tokens[: state.prompt_tokens]) == self.prompt
            if own and len(state.new_tokens) >= self.tokens and self.times:
                self.times -= 1
                raise ZeroDivisionError("a fault")
        return done


@pytest.mark.parametrize("name", ["ar", "dflash"])
def test_a_fault_fails_only_the_request_that_causes_it(name: str) -> None:
    jobs = [job(number, 20) for number in range(20, 26)]
    faulty = Faulty(decoders()[name], jobs[2].prompt, 4)
    with Engine(served(faulty=faulty)) as engine:
        streams = [engine.submit(each, "faulty") for each in jobs]
        with pytest.raises(ZeroDivisionError, match="a fault"):
            streams[2].result()
        found = [stream.result().token_ids for number, stream in enumerate(streams) if number != 2]
        assert engine.submit(jobs[0], "ar").result().token_ids == alone(jobs)[0], "and the engine goes on"
    assert found == [tokens for number, tokens in enumerate(alone(jobs)) if number != 2]


def test_a_fault_that_does_not_come_again_fails_nobody() -> None:
    jobs = [job(number, 20) for number in range(20, 26)]
    faulty = Faulty(plain(MODEL), jobs[2].prompt, 4, times=1)
    with Engine(served(faulty=faulty)) as engine:
        streams = [engine.submit(each, "faulty") for each in jobs]
        chunks = [list(stream) for stream in streams]
    assert [[token for chunk in own for token in chunk.token_ids] for own in chunks] == alone(jobs)


def test_faults_of_opening_and_of_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(0.0)

    def broken(*given: Any) -> Any:
        raise ZeroDivisionError("no room")

    with Engine(served(slow=slow)) as engine:
        slow.open = broken  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError, match="no room"):
            engine.submit(job(1), "slow").result()
        slow.open, slow.prefill = slow.own.open, broken  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError, match="no room"):
            engine.submit(job(1), "slow").result()
        assert engine.load == (0, 0)


def test_what_cannot_be_served_is_said_at_once(engine: Engine) -> None:
    with pytest.raises(BadRequest, match="empty"):
        engine.submit(Job((), Sampling(), 0), "ar")
    assert engine.load == (0, 0)


def test_limits_draining_and_closing() -> None:
    slow = Slow(0.02)
    engine = Engine(served(slow=slow), Limits(running=1, waiting=1))
    first = engine.submit(job(1, 5), "slow")
    while engine.load != (0, 1):
        time.sleep(0.001)
    second = engine.submit(job(2, 5), "slow")
    with pytest.raises(QueueFull):
        engine.submit(job(3), "slow")
    assert not engine.drain(0.001)
    with pytest.raises(Unavailable):
        engine.submit(job(4), "slow")
    assert engine.drain(20.0)
    assert [first.result().token_ids, second.result().token_ids] == alone([job(1, 5), job(2, 5)])
    engine.close()
    engine.close()


def test_closing_ends_what_is_left() -> None:
    before = threading.active_count()
    engine = Engine(served(slow=Slow()), Limits(running=1))
    streams = [engine.submit(job(number, 400), "slow") for number in range(3)]
    engine.close()
    for stream in streams:
        with pytest.raises(InterruptedError):
            stream.result()
    assert threading.active_count() == before
    with pytest.raises(Unavailable):
        engine.submit(job(1), "ar")
