"""Intervals against published values, a slow reference, and the share of seeded samples that they should hold."""

from __future__ import annotations

import math
from random import Random

import pytest

from paceline.bench.intervals import Pairs, kept_share_low, ratio_interval, wilson


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # these four: Newcombe, Stat. Med. 17 (1998) 857, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 1 - 0.1611, 1.0),
    ],
)
def test_wilson_is_the_published_interval(right: int, total: int, low: float, high: float) -> None:
    assert wilson(right, total) == pytest.approx((low, high), abs=5e-5)


def likelihood(pairs: Pairs, ratio: float, only_reference: float) -> float:
    """Of the table in which the setting has `ratio` times the right answers of the reference, and this cell."""
    seen = 1.0 - pairs.neither / sum(pairs)
    both = (seen - (1.0 + ratio) * only_reference) / ratio
    only_setting = ratio * (both + only_reference) - both
    cells = zip(pairs[:3], (both, only_setting, only_reference), strict=True)
    if min(both, only_setting, only_reference) < -1e-15:
        return -math.inf
    return sum(count * math.log(max(share, 1e-300)) for count, share in cells if count)


def slow_score(pairs: Pairs, ratio: float) -> float:
    """The likeliest cell by halving where the likelihood, which is concave, rises."""
    total = sum(pairs)
    seen = 1.0 - pairs.neither / total
    low, high = max(0.0, (1.0 - ratio) * seen), seen / (1.0 + ratio)
    for _ in range(300):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        if likelihood(pairs, ratio, first) < likelihood(pairs, ratio, second):
            low = first
        else:
            high = second
    cell = (low + high) / 2
    both = (seen - (1.0 + ratio) * cell) / ratio
    variance = ratio * (ratio * (both + cell) - both + cell)
    better = pairs.both + pairs.only_setting - ratio * (pairs.both + pairs.only_reference)
    return better / math.sqrt(total * variance)


def test_the_bound_is_where_a_slow_score_test_stops_rejecting() -> None:
    rng = Random(3)
    for _ in range(40):
        pairs = Pairs(*(rng.randrange(1, most) for most in (90, 20, 20, 40)))
        low = kept_share_low(pairs)
        assert low is not None
        assert pairs.share is not None
        assert 0.0 < low < pairs.share
        assert slow_score(pairs, low) == pytest.approx(1.6448536, abs=1e-4), pairs


def test_it_holds_the_truth_as_often_as_it_says() -> None:
    """A bound of 95 % lies above the truth in 1 of 20 samples. Of 2000, more than 140 would be seen once in 10^4 runs
    if it were exact; the score test is so to within a fraction of a percent."""
    rng = Random(11)
    shares = (0.6, 0.06, 0.09, 0.25)
    truth = (shares[0] + shares[1]) / (shares[0] + shares[2])
    above = 0
    for _ in range(2000):
        drawn = rng.choices(range(4), shares, k=200)
        low = kept_share_low(Pairs(*(drawn.count(cell) for cell in range(4))))
        assert low is not None
        above += low > truth
    assert 60 < above < 140


def test_without_any_difference_it_is_wilsons_margin() -> None:
    low = kept_share_low(Pairs(80, 0, 0, 20))
    assert low == pytest.approx(1.0 / (1.0 + 1.6448536**2 / 80))


def test_what_neither_gets_right_does_not_count_and_what_both_do_does() -> None:
    few, many, more = (
        kept_share_low(pairs) for pairs in (Pairs(80, 3, 5, 0), Pairs(80, 3, 5, 900), Pairs(90, 3, 5, 0))
    )
    assert few == pytest.approx(many, rel=1e-9)
    assert more is not None
    assert few is not None
    assert more > few


def test_shares_that_say_nothing() -> None:
    assert kept_share_low(Pairs(0, 5, 0, 5)) is Pairs(0, 5, 0, 5).share is None, "the reference has no right answer"
    assert kept_share_low(Pairs(0, 0, 9, 1)) == Pairs(0, 0, 9, 1).share == 0.0
    better = kept_share_low(Pairs(50, 40, 0, 10))
    assert better is not None
    assert better > 1.0


def prompts_of(rng: Random, count: int, most: int) -> list[tuple[int, int]]:
    """Tokens and rounds of so many prompts: a round gives 1 to `most` tokens, each as likely."""
    rounds = [rng.randint(5, 30) for _ in range(count)]
    return [(sum(rng.randint(1, most) for _ in range(number)), number) for number in rounds]


def test_the_interval_of_a_ratio_holds_the_true_one() -> None:
    """60 samples of 24 prompts: if it held the truth 9 times in 10, fewer than 45 would be seen once in 5,000 runs."""
    rng, held = Random(11), 0
    for _ in range(60):
        ratio, interval = ratio_interval(prompts_of(rng, 24, 9), prompts_of(rng, 24, 7))
        assert ratio is not None
        assert interval is not None
        assert interval[0] <= ratio <= interval[1]
        held += interval[0] <= 5.0 / 4.0 <= interval[1]
    assert held >= 45


def test_the_interval_of_a_ratio_is_that_of_a_bootstrap_by_hand() -> None:
    own, other = [(6, 2), (9, 3), (4, 4)], [(4, 2), (3, 3), (8, 4)]
    rng, ratios = Random(0), []
    for _ in range(2000):
        rows = rng.choices(range(3), k=3)
        means = [sum(each[row][0] for row in rows) / sum(each[row][1] for row in rows) for each in (own, other)]
        ratios.append(means[0] / means[1])
    ratios.sort()
    assert ratio_interval(own, other) == ((19 / 9) / (15 / 9), (pytest.approx(ratios[50]), pytest.approx(ratios[1949])))


def test_prompts_that_count_nothing_say_nothing() -> None:
    assert ratio_interval([(0, 0), (8, 4)], [(3, 1), (4, 4)]) == (2.0, None)
    assert ratio_interval([(0, 0)], [(0, 0)]) == (None, None)
    assert ratio_interval([(8, 4)] * 3, [(8, 4)] * 3) == (1.0, (1.0, 1.0))
