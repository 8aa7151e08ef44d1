"""What is counted of an answer: rounds, drafts, passes, time."""

from __future__ import annotations

from dataclasses import replace

from paceline.completion import Round, Stats, Usage


def stats(accepted: tuple[int, ...] = (), seconds: float = 2.0) -> Stats:
    rounds, kept = len(accepted), sum(accepted) - len(accepted)
    return Stats("dflash", rounds, sum(accepted) + 1, accepted, 7 * rounds, 5 * rounds, kept, 0.5, 0.5, seconds)


def test_usage_adds_up() -> None:
    assert Usage(prompt_tokens=5, completion_tokens=7).total_tokens == 12


def test_eval_01_acceptance_length_is_the_mean_over_rounds() -> None:
    assert stats((8, 3, 4)).acceptance_length == 5


def test_tokens_per_second_counts_the_first_token() -> None:
    assert stats((8, 3, 4), seconds=2.0).tokens_per_second == 8
    assert stats((), seconds=0.5).tokens_per_second == 2


def test_the_prompt_pass_is_a_forward_pass_where_it_gives_a_token() -> None:
    assert (stats((8, 3, 4)).forward_passes, stats((8, 3, 4)).tokens_per_forward) == (4, 4)


def test_a_diffusion_pass_drafts_nothing_that_is_judged() -> None:
    """Two tokens behind a mask, then the mask: nothing and then all three are committed."""
    rounds = [Round((5, 6), (), (), 0, 0.5, 0.0, (1, 2)), Round((4,), (), (4, 5, 6), 0, 0.5, 0.0, (0,))]
    found = Stats.of("diffusion", rounds, 3, 2.0)
    assert (found.rounds, found.accepted_per_round, found.acceptance_length) == (2, (0, 3), 1.5)
    assert (found.drafted_tokens, found.checked_tokens, found.accepted_tokens) == (0, 0, 0)
    assert (found.forward_passes, found.tokens_per_forward) == (2, 1.5)
    assert (found.draft_seconds, found.verify_seconds, found.tokens_per_second) == (1.0, 0.0, 1.5)


def test_the_first_draft_of_apd_is_judged_by_nobody() -> None:
    """Two of five kept, and the third refused; then a lone draft; then three, all kept. 16 of 20 tokens reused."""
    rounds = [
        Round((4, 5, 6, 7, 8), (5, 9, 1, 1), (4, 5), 1, 0.5, 0.25, (), 10, 6),
        Round((6,), (), (6,), 0, 0.5, 0.25, (), 4, 4),
        Round((7, 8, 9), (8, 9), (7, 8, 9), 2, 0.5, 0.25, (), 6, 6),
    ]
    assert [round.unjudged for round in rounds] == [1, 1, 1]
    found = Stats.of("apd", rounds, 6, 3.0)
    assert (found.drafted_tokens, found.checked_tokens, found.accepted_tokens) == (6, 4, 3)
    assert (found.forward_passes, found.tokens_per_forward, found.prefix_hit_rate) == (3, 2, 0.8)
    assert (found.draft_seconds, found.verify_seconds) == (1.5, 0.75)


def test_a_draft_behind_the_end_of_the_answer_was_not_judged() -> None:
    """APD kept five and DFlash three with a bonus, and a stop string ended the answer in the second of them."""
    apd = Round((4, 5, 6, 7, 8), (5, 6, 7, 8), (4, 5, 6, 7, 8), 4, 0.5, 0.25).cut(2)
    assert (apd.committed, apd.accepted, apd.checked, apd.drafted) == ((4, 5), 1, 1, 4)
    dflash = Round((4, 5, 6, 7), (4, 5, 6, 1, 2), (4, 5, 6, 1), 3, 0.5, 0.25)
    assert (dflash.accepted, dflash.checked, dflash.cut(4)) == (3, 4, replace(dflash, ended=True))
    assert (dflash.cut(4).accepted, dflash.cut(4).checked) == (3, 4)
    assert (dflash.cut(3).accepted, dflash.cut(3).checked) == (3, 3)
    assert (dflash.cut(2).accepted, dflash.cut(2).checked) == (2, 2)
    assert (dflash.cut(0).committed, dflash.cut(0).accepted, apd.cut(0).accepted) == ((), 0, 0)


def test_the_draft_of_apd_that_differs_was_not_judged_where_the_answer_ended_before_it() -> None:
    """Kept are two of five, the verifier wants 9 instead of the third: only an answer that goes on gets so far."""
    apd = Round((4, 5, 6, 7, 8), (5, 9, 1, 1), (4, 5), 1, 0.5, 0.25)
    assert (apd.accepted, apd.checked, apd.ended) == (1, 2, False)
    assert (apd.cut(2).committed, apd.cut(2).accepted, apd.cut(2).checked, apd.cut(2).ended) == ((4, 5), 1, 1, True)
    assert (apd.cut(1).committed, apd.cut(1).accepted, apd.cut(1).checked) == ((4,), 0, 0)


def test_ngrams_are_counted_over_all_rounds() -> None:
    """Of nine contexts six were found; they were enough in one round of two."""
    counts = {"contexts_looked_up": 4, "contexts_found": 4, "verifier_skipped": True}
    rounds = [
        Round((4, 5, 6, 7), (5, 6, 7), (4, 5, 6, 7), 3, 0.5, 0.25, **counts),
        Round((4, 5, 6, 7, 8), (5, 9, 1, 1), (4, 5), 1, 0.5, 0.25, contexts_looked_up=5, contexts_found=2),
    ]
    found = Stats.of("apd", rounds, 6, 3.0)
    assert (found.contexts_looked_up, found.contexts_found, found.verifier_skips) == (9, 6, 1)
    assert (found.context_hit_rate, found.verifier_skip_rate) == (6 / 9, 0.5)


def test_no_round_and_no_time_divide_nothing() -> None:
    assert stats(()).acceptance_length == stats(()).prefix_hit_rate == 0
    assert stats(()).context_hit_rate == stats(()).verifier_skip_rate == 0
    assert Stats.of("diffusion", [], 0, 0.0).tokens_per_forward == 0
    assert stats((), seconds=0.0).tokens_per_second == 0


def test_the_path_on_which_both_agree() -> None:
    chain = Round((4, 5, 6), (4, 5, 9, 1), (4, 5, 9), 2, 0.0, 0.0)
    tree = Round((4, 7, 8, 5, 6), (7, 1, 8, 2, 3, 4), (7, 8, 2), 2, 0.0, 0.0, parents=(-1, -1, 1, 0, 2))
    assert chain.agreed == (0, 1)
    assert tree.agreed == (1, 2)
    assert tree.checked == 3
    assert Round((), (5,), (5,), 0, 0.0, 0.0).agreed == ()
