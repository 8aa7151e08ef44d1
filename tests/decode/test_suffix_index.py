"""The suffix array finds what a search of the whole text finds."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from paceline.decode.suffix_index import NOTHING, Found, Reach, SuffixIndex


def by_search(
    known: Sequence[int], text: Sequence[int], longest: int, shortest: int, reach: Reach, count: int
) -> Found:
    """The definition: every place of the known text is compared with the end of `text`."""

    def matched(place: int) -> int:
        common = 0
        while common < min(place, len(text), longest) and known[place - 1 - common] == text[-1 - common]:
            common += 1
        return common

    best = max(map(matched, range(len(known))), default=0)
    if best < shortest:
        return NOTHING
    length = min(reach.tokens, max(1, int(min(reach.factor * best, 99))))
    places = [place for place in range(len(known)) if matched(place) == best]
    places.sort(key=lambda place: (list(reversed(known[max(0, place - longest) : place])), place))
    found: list[tuple[int, ...]] = []
    for place in sorted(places[-32:], key=lambda place: (-len(known[place : place + length]), -place)):
        continuation = tuple(known[place : place + length])
        if not any(other[: len(continuation)] == continuation for other in found):
            found.append(continuation)
    return Found(best, found[:count])


@pytest.mark.parametrize("letters", [1, 2, 3, 20])
@pytest.mark.parametrize("begun", [0, 1, 60])
def test_a_growing_text_is_searched_for_its_own_end(letters: int, begun: int) -> None:
    rng = random.Random(f"{letters} {begun}")
    for longest in (1, 3, 8):
        text = [rng.randrange(letters) for _ in range(begun)]
        index = SuffixIndex(text, longest)
        for _ in range(60):
            more = [rng.randrange(letters) for _ in range(rng.choice((1, 1, 4)))]
            index.extend(more)
            text += more
            shortest, count = rng.randrange(1, longest + 1), rng.choice((1, 2, 40))
            reach = Reach(rng.choice((1, 3, 10)), rng.choice((0.5, 1.0, 2.5, math.inf)))
            wanted = by_search(text, text, longest, shortest, reach, count)
            assert index.find(text, shortest, reach, count) == wanted


def test_another_text_is_searched_for_the_end_of_this_one() -> None:
    rng = random.Random(5)
    for letters in (2, 4):
        known = [rng.randrange(letters) for _ in range(300)]
        index = SuffixIndex(known, 6)
        for size in range(30):
            text = [rng.randrange(letters + 1) for _ in range(size)]
            assert index.find(text, 2, Reach(7), 5) == by_search(known, text, 6, 2, Reach(7), 5)


def test_the_longest_suffix_wins_then_the_longest_continuation_and_then_the_newest() -> None:
    text = [1, 2, 3, 50, 51, 9, 2, 3, 60, 61, 9, 2, 3, 70, 71, 9, 2, 3]
    index = SuffixIndex(text, 8)
    assert index.find(text, 1, Reach(2), 9) == Found(3, [(70, 71), (60, 61)])
    assert index.find(text, 1, Reach(2), 1) == Found(3, [(70, 71)])
    assert index.find([1, 2, 3], 1, Reach(3), 9) == Found(3, [(50, 51, 9)])
    assert index.find(text, 4, Reach(2), 9) == NOTHING


def test_a_continuation_is_as_long_as_what_stands_before_it_deserves() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4]
    index = SuffixIndex(text, 8)
    for factor, length in ((0.1, 1), (0.5, 1), (1.0, 3), (1.9, 5), (2.0, 6), (9.0, 6)):
        assert index.find(text, 1, Reach(6, factor), 1).continuations == [tuple(text[4 : 4 + length])]
    assert index.find(text, 1, Reach(0, 2.0), 1).continuations == [()]


def test_a_continuation_ends_with_the_text() -> None:
    text = [7, 8] * 4
    assert SuffixIndex(text, 3).find(text, 1, Reach(5), 9) == Found(3, [(7, 8, 7, 8)])
    assert SuffixIndex([1, 2], 3).find([1], 1, Reach(5), 9) == Found(1, [(2,)])


def test_where_nothing_stood_before_nothing_follows() -> None:
    assert SuffixIndex([], 4).find([], 1, Reach(5), 9) == NOTHING
    assert SuffixIndex([], 4).find([1], 1, Reach(5), 9) == NOTHING
    assert SuffixIndex([1, 2, 3], 4).find([], 1, Reach(5), 9) == NOTHING
    assert SuffixIndex([1, 2, 3], 4).find([1, 2, 3], 1, Reach(5), 9) == NOTHING
