"""What the controller chooses where the costs and the odds are known."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from paceline.decode.controller import Controller, first_block_size
from paceline.decode.curves import Costs
from paceline.decode.experience import SHORTEST_REST, Pace, longer
from paceline.decode.speculation import PLAIN, Plan
from paceline.decode.tree import EMPTY, Proposal, chain, merged

FLAT = Costs(read={1: 1.0, 64: 1.1}, draft={4: 0.3, 16: 0.3})
"""Rows cost next to nothing, as on a big idle machine."""
STEEP = Costs(read={1: 1.0, 64: 64.0}, draft={4: 0.1, 16: 0.1})
"""Every row costs as much as the first, as where arithmetic has run out."""


def controller(costs: Costs, **changes: object) -> Controller:
    return Controller(lambda *_: costs, (4, 8, 16), 8, **changes)  # type: ignore[arg-type]


def went(pace: Pace, steps: int, accepted: int, judged: int) -> None:
    """A round with drafts."""
    pace.count(accepted, 1.0)
    pace.acceptance.learn(steps, accepted, judged)


def seen(accepted: int, checked: int, rounds: int = 20) -> Pace:
    pace = Pace()
    for _ in range(rounds):
        went(pace, 1, accepted, checked)
    return pace


def answer(it: Controller, pace: Pace, plan: Plan, proposal: Proposal, text: list[int]) -> None:
    """A round in a text that goes on like this."""
    it.wait(pace, plan, proposal, 1)
    it.judge(pace, [99, *text])
    path = list(range(next(at for at, token in enumerate([*proposal.tokens, None]) if [token] != text[at : at + 1])))
    it.learn(pace, plan, proposal, path, min(len(path) + 1, len(proposal.tokens)))


def chain_of(*probabilities: float) -> Proposal:
    """Drafts behind each other, so probable each."""
    tokens = tuple(range(len(probabilities)))
    scores = tuple(itertools.accumulate(map(math.log, probabilities)))
    return Proposal(tokens, tuple(node - 1 for node in tokens), scores)


@pytest.mark.parametrize(
    ("hidden", "rows"), [(32, 8), (256, 8), (257, 9), (1024, 9), (4096, 10), (5120, 11), (2**24, 16), (2**30, 16)]
)
def test_the_formula_of_the_article_as_printed_rounded_up(hidden: int, rows: int) -> None:
    assert first_block_size(hidden) == rows


def test_costs_between_and_behind_what_was_measured() -> None:
    costs = Costs({1: 1.0, 4: 4.0, 8: 6.0}, {4: 0.5, 8: 0.7})
    assert [costs.reading(rows) for rows in (1, 2, 4, 6, 8, 12)] == pytest.approx([1.0, 2.0, 4.0, 5.0, 6.0, 8.0])
    assert costs.drafting([Plan(6, 3)]) == pytest.approx(1.8)


def test_the_first_round_takes_the_guess_and_the_next_what_pays() -> None:
    it = controller(FLAT)
    assert it.plans([Pace()], 10) == [Plan(8)]
    assert it.plans([seen(15, 15)], 10) == [Plan(16)]
    assert it.plans([seen(0, 1)], 10) == [PLAIN]
    assert it.plans([seen(15, 15), seen(0, 1)], 10) == [Plan(16), PLAIN], "each sequence for itself"


def test_a_wide_tree_must_pay_for_all_its_rows() -> None:
    """The same acceptance, by four drafts for each place instead of one."""
    costs = Costs(read={1: 1.0, 2: 1.1, 5: 2.0, 64: 20.0}, draft={4: 0.2, 16: 0.2})
    chain_like, wide = seen(1, 2), seen(1, 2)
    assert controller(costs).plans([chain_like], 10) != [PLAIN]
    wide.width = 4.0
    assert controller(costs).plans([wide], 10) == [PLAIN]


def test_a_good_drafter_does_not_pay_where_every_row_costs_as_much() -> None:
    assert controller(STEEP).plans([seen(1, 2)], 10) == [PLAIN]


def test_rests_grow_while_drafting_is_in_vain_and_end_with_a_trial() -> None:
    it, pace, plans = controller(FLAT), seen(0, 1, rounds=17), []
    for _ in range(150):
        (plan,) = it.plans([pace], 10)
        plans.append(plan != PLAIN)
        if plan != PLAIN:
            went(pace, 1, 0, 1)
    rests = [len(list(run)) for drafted, run in itertools.groupby(plans) if not drafted]
    assert rests[:3] == [8, 32, 64]
    assert sum(plans) <= 4


def test_drafting_goes_on_as_soon_as_a_trial_succeeds() -> None:
    it, pace = controller(FLAT), seen(0, 1, rounds=17)
    for _ in range(200):
        (plan,) = it.plans([pace], 10)
        if plan != PLAIN:
            went(pace, plan.steps, plan.block_size - 1, plan.block_size - 1)
    assert pace.rest == SHORTEST_REST
    assert it.plans([pace], 10) != [PLAIN]


def test_a_new_answer_is_expected_to_be_like_those_before() -> None:
    """Where drafts were in vain it rests at once, for long; and drafts as soon as a trial succeeds."""
    it = controller(FLAT)
    for _ in range(20):
        answer(it, Pace(), Plan(8), chain_of(0.5), [9])
    pace = Pace()
    rest = longer(SHORTEST_REST)
    told = [it.plans([pace], 10)[0] for _ in range(rest + 1)]
    assert [plan.reason for plan in told] == ["rest"] * rest + ["trial"]
    for _ in range(3):
        answer(it, pace, told[-1], chain_of(0.9, 0.8, 0.7), [0, 1, 2, 9])
    assert it.plans([pace], 10)[0].reason == "best"


def test_drafts_that_would_not_be_read_are_not_looked_for() -> None:
    """A row costs one part of a pass in 64: a draft is looked for down to 0.4 times what pays for it."""
    costs = Costs(read={1: 1.0, 65: 2.0}, draft={4: 0.0, 16: 0.0})
    (plan,) = controller(costs).plans([seen(15, 15)], 10)
    assert plan.least == pytest.approx(0.4 * plan.tokens_per_second / 64)
    assert controller(FLAT).plans([Pace()], 10)[0].least == 0.0


def test_the_longest_block_is_tried_now_and_then() -> None:
    it, pace, sizes = controller(FLAT), Pace(), set[int]()
    for turn in range(40):
        (plan,) = it.plans([pace], 10)
        sizes.add(plan.block_size)
        went(pace, 1, min(2, plan.block_size - 1), min(3, plan.block_size - 1))
        assert turn == 0 or plan != PLAIN
    assert 16 in sizes
    assert min(sizes) < 16


def test_a_plan_says_why() -> None:
    """Reasons and rates are told with a plan; equal plans do the same, whatever the reason."""
    it, first = controller(FLAT), Plan(8)
    told = it.plans([Pace(), seen(15, 15), seen(15, 15, rounds=16), seen(0, 1)], 10)
    assert [plan.reason for plan in told] == ["first", "best", "look around", "rest"]
    assert told[0] == first
    assert (told[0].tokens_per_second, told[0].plain_tokens_per_second) == (0.0, 0.0)
    assert told[1].tokens_per_second > told[1].plain_tokens_per_second == pytest.approx(4 / FLAT.reading(4))
    assert 0.0 < told[3].tokens_per_second < told[3].plain_tokens_per_second
    pace = seen(0, 1, rounds=17)
    rests = [it.plans([pace], 10)[0] for _ in range(SHORTEST_REST + 1)]
    expected = [("rest", left) for left in range(SHORTEST_REST - 1, -1, -1)] + [("trial", 0)]
    assert [(plan.reason, plan.resting) for plan in rests] == expected


def test_steps_are_chosen_by_what_they_bring() -> None:
    it = controller(FLAT, steps=(1, 2))
    pace = seen(1, 2)
    for _ in range(20):
        went(pace, 2, 12, 13)
    pace.drafted = 3
    assert it.plans([pace], 10)[0].steps == 2


def tree(rng: random.Random, nodes: int) -> Proposal:
    parents = [rng.randrange(-1, node) if node else -1 for node in range(nodes)]
    scores: list[float] = []
    for parent in parents:
        scores.append((0.0 if parent < 0 else scores[parent]) + math.log(rng.uniform(0.05, 0.95)))
    return Proposal(tuple(range(nodes)), tuple(parents), tuple(scores))


@pytest.mark.parametrize("seed", range(10))
def test_kept_are_the_nodes_of_the_best_rate(seed: int) -> None:
    """Against all sizes of the set of likeliest nodes, with three sequences in one read."""
    rng = random.Random(seed)
    costs = Costs({1: 1.0, 8: 1.5, 32: 4.0, 64: 9.0}, {4: 0.2, 16: 0.4})
    trees = [tree(rng, 9), EMPTY, tree(rng, 14)]
    plans = [Plan(16), PLAIN, Plan(16)]
    kept = controller(costs).keep(trees, plans, 10)
    chances = sorted((math.exp(score) for each in trees for score in each.scores), reverse=True)
    rates = [(3 + sum(chances[:n])) / (costs.drafting(plans) + costs.reading(3 + n)) for n in range(len(chances) + 1)]
    best = max(range(len(rates)), key=rates.__getitem__)
    assert sorted((math.exp(score) for each in kept for score in each.scores), reverse=True) == chances[:best]
    assert kept[1] == EMPTY
    for each in kept:
        assert all(parent < node for node, parent in enumerate(each.parents))


def test_experience_corrects_the_drafter() -> None:
    """It says 0.9, and is right once in ten times: then its drafts are not worth their rows."""
    costs, proposal = Costs({1: 1.0, 2: 1.5, 3: 2.0}, {4: 0.1, 16: 0.1}), chain([5])
    proposal = Proposal(proposal.tokens, proposal.parents, (math.log(0.9),))
    it = controller(costs)
    assert it.keep([proposal], [Plan(4)], 10) == [proposal]
    for turn in range(200):
        right = turn % 10 == 0
        it.learn(Pace(), Plan(4), proposal, [0] if right else [], 1)
    assert it.calibration.probability(0.9) == pytest.approx(0.13, abs=0.05)
    assert it.keep([proposal], [Plan(4)], 10) == [EMPTY]


def test_a_round_whose_drafts_are_all_dropped_is_a_trial_in_vain() -> None:
    """Otherwise the first round, or a look around, would come again and again."""
    it, pace, plans = controller(STEEP), Pace(), []
    proposal = Proposal((1, 2), (-1, 0), (math.log(0.3), math.log(0.2)))
    for _ in range(40):
        (plan,) = it.plans([pace], 10)
        plans.append(plan != PLAIN)
        (kept,) = it.keep([proposal if plan != PLAIN else EMPTY], [plan], 10)
        it.learn(pace, plan, kept, [], 0)
    assert sum(plans) <= 4


def test_in_the_middle_of_an_answer_nothing_is_measured() -> None:
    asked: list[bool] = []

    def costs(longest: int, may_measure: bool) -> Costs:
        asked.append(may_measure)
        return FLAT

    it = Controller(costs, (4, 8, 16), 8)
    plans = it.plans([Pace(), seen(1, 2)], 10)
    it.keep([EMPTY, EMPTY], plans, 10)
    it.time([PLAIN, PLAIN], [EMPTY, EMPTY], 10, 1.0)
    assert asked == [False, False, False]


def test_a_round_behind_a_rest_is_not_timed() -> None:
    """It makes up for what was not drafted, and finds the drafter's weights far away."""
    it = controller(FLAT)
    for reason in ("first", "trial"):
        it.time([Plan(4, reason=reason)], [EMPTY], 10, 99.0)  # type: ignore[arg-type]
    assert it.drift.drafted == 1.0
    it.time([Plan(4, reason="best")], [EMPTY], 10, 99.0)
    assert it.drift.drafted > 1.0


def test_chains_are_asked_for_where_branches_do_not_pay() -> None:
    """Rows that cost what they bring leave nothing for siblings; rows for nothing leave everything."""
    it = controller(Costs({1: 1.0, 4: 1.0, 5: 9.0}, {4: 0.3, 16: 0.3}, {4: 0.1, 16: 0.1}), chains=True)
    pace, wide = seen(3, 4), Proposal((1, 2, 3, 9), (-1, 0, 1, -1), tuple(map(math.log, (0.6, 0.5, 0.4, 0.3))))
    for _ in range(10):
        it.keep([wide], [Plan(4)], 10)
    assert it.branching.gain < 1.0
    (plan,) = it.plans([pace], 10)
    assert (plan.chain, plan.block_size) == (True, 4)
    assert it.keep([chain([1, 2, 3])], [plan], 10) == [chain([1, 2, 3])], "all of it is read"
    before = pace.drafted
    it.learn(pace, plan, chain([1, 2, 3]), [0, 1], 3)
    assert (pace.drafted, pace.latest, pace.resting) == (before + 1, 2, 0)
    (copying,) = it.plans([seen(3, 4)], 10, [chain([5])])
    assert not copying.chain, "what was looked up wants a tree to be in"
    cheap = controller(Costs({1: 1.0, 64: 1.0}, {4: 0.1, 16: 0.1}, {4: 0.1, 16: 0.1}), chains=True)
    for _ in range(10):
        cheap.keep([wide], [Plan(4)], 10)
    assert cheap.branching.gain > 1.1
    assert not cheap.plans([pace], 10)[0].chain


def test_chains_cost_what_was_measured_of_chains() -> None:
    costs = Costs({1: 1.0}, {4: 0.5, 8: 0.9}, {4: 0.2, 8: 0.3})
    assert costs.drafting([Plan(4, chain=True)]) == 0.2
    assert costs.drafting([Plan(4, chain=True), Plan(4)]) == 0.9, "side by side all go the longer way"
    assert Costs({1: 1.0}, {4: 0.5}).drafting([Plan(4, chain=True)]) == 0.5


def test_blocks_are_drafted_together() -> None:
    costs = Costs({1: 1.0}, {4: 0.4, 8: 0.6, 16: 1.0})
    assert costs.drafting([Plan(8), PLAIN, Plan(4, 3)]) == pytest.approx(3 * 0.8)
    assert costs.drafting([PLAIN, PLAIN]) == 0.0


def test_copies_that_displaced_all_drafts_are_no_trial_in_vain() -> None:
    it, pace = controller(FLAT), seen(1, 2)
    before = pace.drafted
    it.learn(pace, Plan(8), chain([4, 5]), [0], 2)
    assert (pace.resting, pace.drafted) == (0, before + 1), "or a first round, or a look around, would come again"
    it.learn(pace, Plan(8), EMPTY, [], 0)
    assert pace.resting > 0


def copies_of(it: Controller, length: int, right: float) -> None:
    """Looked-up tokens in rows of a length were right so often."""
    rng = random.Random(length)
    for _ in range(400):
        it.copies.learn(length, rng.random() < right)


@pytest.mark.parametrize(("right", "kept"), [(0.95, 8), (0.05, 0)])
def test_looked_up_tokens_must_pay_for_their_rows(right: float, kept: int) -> None:
    """Three drafts that are sure to be right, and eight looked-up tokens behind another first token, or none."""
    costs = Costs({1: 1.0, 4: 1.4, 64: 7.0}, {4: 0.1, 16: 0.1})
    it = controller(costs)
    copies_of(it, 8, right)
    (alone,) = it.keep([chain(range(8))], [PLAIN], 10)
    assert len(alone.tokens) == kept
    drafts = Proposal((1, 2, 3), (-1, 0, 1), tuple(map(math.log, (0.9, 0.81, 0.729))))
    (both,) = it.keep([merged(drafts, chain((1, 2, 3, 4, 5, 6, 7, 8)), 11)], [Plan(4)], 10)
    assert both.tokens == (1, 2, 3, *(range(4, 9) if kept else ()))
    assert both.scores == drafts.scores


def test_siblings_leave_a_looked_up_token_no_more_than_the_rest() -> None:
    """However right copies were: where the drafter is sure of another token, this one is not likely."""
    it = controller(STEEP)
    copies_of(it, 1, 0.99)
    own = Proposal((7, 9), (-1, -1), (math.log(0.9),))
    assert it._chances(own)[1] == pytest.approx(0.1)


def test_a_round_with_a_long_match_goes_without_drafts() -> None:
    """And the next one, where nothing was found, drafts as before: this was no rest."""
    costs = Costs({1: 1.0, 64: 1.5}, {4: 0.5, 16: 0.5})
    it, pace = controller(costs), seen(2, 3)
    copies_of(it, 16, 0.97)
    (plan,) = it.plans([pace], 10, [chain(range(16))])
    assert (plan, plan.reason) == (PLAIN, "looked up")
    assert plan.plain_tokens_per_second > plan.tokens_per_second > 0.0
    assert it.plans([pace], 10, [EMPTY])[0] != PLAIN
    assert pace.resting == 0
    trial = seen(0, 1)
    trial.resting = 1
    assert it.plans([trial], 10, [chain(range(16))])[0].reason == "trial", "which is not put off"
    bad = controller(costs)
    copies_of(bad, 16, 0.1)
    assert bad.plans([pace], 10, [chain(range(16))])[0] != PLAIN


def test_copies_are_judged_by_what_the_target_said() -> None:
    """Read or not: two candidates of three tokens, of which the second agrees for two places."""
    it = controller(FLAT)
    found = merged(chain((1, 2, 3)), chain((4, 5, 6)), 9)
    it.learn_copies(found, (4, 5, 9))
    place = it.copies.probability(3)
    assert place == pytest.approx((0.98**4 + 0.98**2 + 0.98) / (2 * 0.98**4 + sum(0.98**k for k in range(4))), abs=0.02)
    fresh = controller(FLAT)
    fresh.learn_copies(EMPTY, (4, 5))
    assert fresh.copies == type(fresh.copies)()


def test_costs_outside_of_what_was_measured() -> None:
    """Never less than the least, and ahead along the upper half: the last two points alone may be one busy moment."""
    costs = Costs({4: 1.0, 16: 2.0, 32: 4.0, 33: 4.0}, {4: 0.1})
    assert costs.reading(1) == 1.0
    assert costs.reading(67) == pytest.approx(4.0 + 34 * 2.0 / 17)
    assert Costs({1: 1.0}, {4: 0.1}).drafting([Plan(16, 2)]) == 0.2


def test_only_drafts_that_were_judged_are_experience() -> None:
    """Children of what agreed; what stands behind a rejected draft was never judged."""
    it = controller(FLAT)
    proposal = Proposal((1, 2, 3, 4), (-1, -1, 1, 2), tuple(map(math.log, (0.5, 0.3, 0.2, 0.1))))
    it.learn(Pace(), Plan(4), proposal, [1], 2)
    assert sum(it.calibration.seen) == 3
    assert sum(it.calibration.right) == 1


@pytest.mark.parametrize(("path", "right"), [([1, 3, 4], 1), ([1, 2, 5], 2), ([], 0)])
def test_what_was_looked_up_says_nothing_of_the_drafter(path: list[int], right: int) -> None:
    """Nodes 0, 1, 2 were drafted, the others found in the text: they have no score."""
    it, pace = controller(FLAT), Pace()
    proposal = Proposal((1, 2, 3, 4, 5, 6), (-1, -1, 1, 1, 3, 2), tuple(map(math.log, (0.5, 0.3, 0.2))))
    it.learn(pace, Plan(4), proposal, path, min(len(path) + 1, 4))
    assert sum(it.calibration.right) == right
    assert pace.latest == right
    plain = Pace()
    it.learn(plain, Plan(1), Proposal((4, 5), (-1, 0)), [0, 1], 2)
    assert plain == Pace()


@pytest.mark.parametrize(
    ("texts", "accepted", "judged"),
    [
        ([[5, 6, 7, 8]], [1, 1, 1], [1, 1, 1]),
        ([[5, 9]], [1, 0], [1, 1]),
        ([[9]], [0], [1]),
        ([[5], [5, 6], [5, 6, 9]], [1, 1, 0], [1, 1, 1]),
        ([[5], [5, 6]], [], []),
    ],
)
def test_drafts_are_judged_by_the_text_whether_they_were_read_or_not(
    texts: list[list[int]], accepted: list[float], judged: list[float]
) -> None:
    """Of three drafts one became a node; and as soon as the text decides, not before, and once."""
    it, pace = controller(FLAT), Pace()
    it.wait(pace, Plan(4, 2), Proposal((5,), (-1,), (-0.1,), likeliest=(5, 6, 7)), 2)
    it.wait(pace, PLAIN, EMPTY, 2)
    for text in [*texts, texts[-1]]:
        it.judge(pace, [1, 2, *text])
    assert pace.acceptance.accepted.get(2, []) == it.habit.acceptance.accepted.get(2, []) == accepted
    assert pace.acceptance.checked.get(2, []) == judged


def test_what_depends_on_the_path_is_judged_along_the_best_one() -> None:
    it, pace = controller(FLAT), Pace()
    it.wait(pace, Plan(4), Proposal((5, 6, 7, 8), (-1, -1, 0, 2), (-0.1, -0.2, -0.3, -0.4)), 0)
    assert pace.awaited[0].tokens == (5, 7, 8)


def test_a_plan_that_pays_stands_for_some_rounds_as_long_as_drafts_are_accepted() -> None:
    it, pace = controller(FLAT), seen(15, 15)
    pace.drafted = 1
    first = it.plans([pace], 10)[0]
    again = [it.plans([pace], 10)[0] for _ in range(3)]
    assert [each is first for each in again] == [True, True, False]
    pace.latest = 0
    assert it.plans([pace], 10)[0] is not again[-1]
