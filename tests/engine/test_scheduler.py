"""Who is let in when: windows, groups, room for tokens, and the bound on how often anybody is passed over."""

from __future__ import annotations

import random

import pytest

from paceline.engine.scheduler import Limits, Scheduler
from paceline.errors import QueueFull


class Request:
    def __init__(self, number: int, tokens: int) -> None:
        self.number, self.tokens = number, tokens


def submit(it: Scheduler[Request], *tokens: int) -> list[Request]:
    found = [Request(number, count) for number, count in enumerate(tokens)]
    for request in found:
        it.submit(request, request.tokens // 2, request.tokens)
    return found


def test_the_first_request_never_waits() -> None:
    it = Scheduler[Request]()
    assert it.seconds_left(5.0) is None
    (one,) = submit(it, 10)
    assert it.seconds_left(5.0) == 0.0
    assert it.admit(5.0) == [one]
    assert (it.waiting, it.running) == (0, 1)


def test_while_others_decode_a_window_gathers() -> None:
    it = Scheduler[Request]()
    submit(it, 10)
    it.admit(5.0)
    two = submit(it, 10, 20)
    assert it.seconds_left(5.01) == pytest.approx(0.04)
    assert it.admit(5.04) == []
    assert it.admit(5.05) == two
    assert it.seconds_left(6.0) is None


def test_an_idle_engine_opens_at_once_whatever_the_window() -> None:
    it = Scheduler[Request]()
    (one,) = submit(it, 10)
    it.admit(5.0)
    it.release(one)
    (other,) = submit(it, 10)
    assert it.admit(5.001) == [other]


def test_with_the_oldest_go_those_of_like_length() -> None:
    it = Scheduler[Request](Limits(running=3))
    requests = submit(it, 100, 900, 10, 110, 90)
    assert it.admit(0.0) == [requests[0], requests[3], requests[4]]
    it.release(requests[0])
    assert it.admit(1.0) == [requests[1]], "then the next oldest"


def test_room_for_tokens() -> None:
    it = Scheduler[Request](Limits(tokens=100))
    requests = submit(it, 60, 50, 40)
    assert it.admit(0.0) == [requests[0], requests[2]], "50 finds no room beside 60"
    it.release(requests[0])
    assert it.admit(1.0) == [requests[1]]


def test_what_is_too_large_for_all_runs_alone() -> None:
    it = Scheduler[Request](Limits(tokens=100))
    large, small = submit(it, 500, 5)
    assert it.admit(0.0) == [large]
    assert it.admit(1.0) == []
    it.release(large)
    assert it.admit(2.0) == [small]


def test_a_full_queue_says_so() -> None:
    it = Scheduler[Request](Limits(waiting=2))
    submit(it, 1, 1)
    with pytest.raises(QueueFull, match="2 requests wait"):
        submit(it, 1)


def test_who_is_withdrawn_is_not_let_in() -> None:
    it = Scheduler[Request]()
    one, two = submit(it, 1, 1)
    assert it.withdraw(one)
    assert not it.withdraw(one)
    assert it.admit(0.0) == [two]
    assert not it.withdraw(two), "it decodes"


@pytest.mark.parametrize("seed", range(30))
def test_nobody_is_passed_over_more_often_than_the_bound(seed: int) -> None:
    """Random arrivals, sizes and ends: everybody is let in, and at most `passes` admissions pass anybody."""
    rng = random.Random(seed)
    limits = Limits(running=rng.randint(1, 4), tokens=rng.choice([50, 100, 400]), passes=rng.randint(0, 5))
    it, now, arrived, passed = Scheduler[Request](limits), 0.0, list[Request](), dict[int, int]()
    inside: list[Request] = []
    for number in range(400):
        if number < 200 and rng.random() < 0.6:
            request = Request(number, rng.randint(1, 120))
            it.submit(request, rng.randint(0, request.tokens), request.tokens)
            arrived.append(request)
            passed[number] = 0
        for request in [each for each in inside if rng.random() < 0.4]:
            inside.remove(request)
            it.release(request)
        admitted = it.admit(now)
        inside += admitted
        assert len(inside) <= limits.running
        assert len(inside) == 1 or sum(each.tokens for each in inside) <= limits.tokens
        for request in [each for each in arrived if each not in admitted]:
            passed[request.number] += any(each.number > request.number for each in admitted)
        arrived = [each for each in arrived if each not in admitted]
        now += rng.choice([0.0, 0.02, 0.1])
    assert not arrived
    assert max(passed.values()) <= limits.passes
