"""Where an answer ends. Cases named stop-NN, tokenizer-NN and eval-NN are reports of faults in other engines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))

from tiny_tokenizers import byte_level, of_pieces, spell, wrap

from paceline.engine.stop import Cut, Stopper
from paceline.request import Sampling
from paceline.text import Detokenizer, Tokenizer

EOS = 2
LETTERS, (A, B, C, D) = of_pieces("abcd")


def make(tokenizer: Tokenizer | None = None, ends: Iterable[int] = (), limit: int = 1000, **sampling: Any) -> Stopper:
    return Stopper(Sampling(**sampling), frozenset(ends), limit, Detokenizer(tokenizer))


def feed_all(stopper: Stopper, runs: Iterable[Sequence[int]]) -> tuple[list[int], str, str | None]:
    """Kept tokens, joined text, finish reason; stops feeding at the end, as the engine does."""
    kept: list[int] = []
    text = ""
    for run in runs:
        cut = stopper.feed(run)
        kept += run[: cut.kept]
        text += cut.text
        if cut.finish_reason:
            return kept, text, cut.finish_reason
    return kept, text, None


def oracle(tokenizer: Tokenizer, tokens: Sequence[int], ends: set[int], limit: int, stops: Sequence[str]) -> Any:
    """The definition, in quadratic time: look at the whole text after each token."""
    text = ""
    for count, token in enumerate(tokens, start=1):
        if token in ends:
            return list(tokens[:count]), tokenizer.decode(tokens[: count - 1]), "stop"
        detokenizer = Detokenizer(tokenizer)
        text = "".join(map(detokenizer.push, tokens[:count]))
        if count == limit:
            text += detokenizer.finish()
        starts = [text.index(stop) for stop in stops if stop in text]
        if starts:
            return list(tokens[:count]), text[: min(starts)], "stop"
        if count == limit:
            return list(tokens[:count]), text, "length"
    return list(tokens), text, None


# stop-01


@pytest.mark.parametrize("slot", range(8))
def test_stop_01_end_token_at_every_slot_of_the_block(slot: int) -> None:
    run = [11, 12, 13, 14, 15, 16, 17, 18]
    run[slot] = EOS
    stopper = make(ends=[EOS])
    assert stopper.feed([10]) == Cut(1, "")
    assert stopper.feed(run) == Cut(slot + 1, "", "stop")
    assert stopper.finished


def test_stop_01_as_reported() -> None:
    kept, _, reason = feed_all(make(ends=[EOS], limit=32), [[10], [11, 12, 2, 13, 14, 15, 16]])
    assert (kept, reason) == ([10, 11, 12, 2], "stop")


def test_stop_01_end_token_as_the_prefill_token() -> None:
    assert make(ends=[EOS]).feed([EOS]) == Cut(1, "", "stop")


def test_stop_01_two_end_tokens() -> None:
    assert make(ends=[EOS, 7]).feed([11, 7, EOS]) == Cut(2, "", "stop")


def test_stop_01_text_after_the_end_token_is_not_released() -> None:
    assert make(LETTERS, ends=[D]).feed([A, B, D, C]) == Cut(3, "ab", "stop")


# stop-02


@pytest.mark.parametrize(
    ("run", "cut"),
    [
        ([41, 42, 43, 99, 51, 52, 53, 54], Cut(4, "", "stop")),
        ([41, 42, 43, 51, 52, 53, 99, 54], Cut(6, "", "length")),
        ([41, 42, 43, 51, 52, 99, 53, 54], Cut(6, "", "stop")),  # both at the same token
    ],
)
@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_stop_02_first_condition_in_token_order(run: list[int], cut: Cut, block: int) -> None:
    runs = [run[at : at + block] for at in range(0, len(run), block)]
    kept, _, reason = feed_all(make(limit=6, stop_token_ids=[99]), runs)
    assert (len(kept), reason) == (cut.kept, cut.finish_reason)


def test_stop_02_stop_string_and_length() -> None:
    assert make(LETTERS, limit=2, stop=["bc"]).feed([A, B, C]) == Cut(2, "ab", "length")
    assert make(LETTERS, limit=3, stop=["bc"]).feed([A, B, C]) == Cut(3, "a", "stop")


# stop-03


def test_stop_03_stop_string_over_two_rounds() -> None:
    tokenizer, ids = of_pieces(["Sure", ".", "\n\n", "Q", ":", " next"])
    stopper = make(tokenizer, limit=32, stop=["\n\nQ:"])
    assert stopper.feed(ids[:3]) == Cut(3, "Sure.")
    assert stopper.feed(ids[3:]) == Cut(2, "", "stop")


def test_stop_03_what_only_looked_like_a_stop_string_is_released() -> None:
    tokenizer, ids = of_pieces(["Sure", ".", "\n\n", "Quick", " note"])
    stopper = make(tokenizer, limit=32, stop=["\n\nQ:"])
    assert stopper.feed(ids[:3]).text == "Sure."
    assert stopper.feed(ids[3:]) == Cut(2, "\n\nQuick note")


@pytest.mark.parametrize(("limit", "ends", "reason"), [(3, (), "length"), (32, (D,), "stop")])
def test_stop_03_held_text_is_released_at_the_end(limit: int, ends: tuple[int, ...], reason: str) -> None:
    assert make(LETTERS, ends, limit, stop=["bcd"]).feed([A, B, C, D]).text == "abc"


def test_stop_strings_match_inside_and_beyond_a_token() -> None:
    tokenizer, ids = of_pieces(["one ST", "OP two"])
    assert make(tokenizer, stop=["STOP"]).feed(ids) == Cut(2, "one ", "stop")
    tokenizer, ids = of_pieces(["one STOP two"])
    assert make(tokenizer, stop=["STOP"]).feed(ids) == Cut(1, "one ", "stop")


def test_of_stop_strings_at_one_token_the_first_in_the_text_cuts() -> None:
    tokenizer, ids = of_pieces(["x", "one two three"])
    assert make(tokenizer, stop=["three", "two", "xone tw"]).feed(ids) == Cut(2, "", "stop")
    assert make(tokenizer, stop=["three", "two"]).feed(ids) == Cut(2, "xone ", "stop")


def test_a_stop_string_that_fails_late_falls_back_to_a_later_start() -> None:
    assert feed_all(make(LETTERS, stop=["aab"]), [[A], [A], [A], [B]]) == ([A, A, A, B], "a", "stop")


# stop-04


@pytest.mark.parametrize("limit", [1, 2, 3, 15, 16, 17, 40])
def test_stop_04_exactly_max_tokens(limit: int) -> None:
    runs = [[A], *[[B] * 16] * 4]
    kept, text, reason = feed_all(make(LETTERS, limit=limit), runs)
    assert (len(kept), len(text), reason) == (limit, limit, "length")


# eval-01


def test_eval_01_a_round_counts_what_left_the_engine() -> None:
    stopper = make(ends=[EOS])
    emitted = [stopper.feed(run).kept for run in ([5], [5] * 8, [5] * 3, [5, 5, 5, EOS, 5, 5, 5, 5])]
    assert emitted[1:] == [8, 3, 4]
    assert sum(emitted[1:]) / 3 == 5


# tokenizer-01 at the end of an answer


def test_tokenizer_01_length_inside_a_character() -> None:
    tokenizer, ids = of_pieces([b"ok ", b"\xf0\x9f", b"\x91", b"\x8b"])
    stopper = make(tokenizer, limit=2)
    assert stopper.feed(ids[:2]) == Cut(2, "ok \ufffd", "length")
    assert tokenizer.decode(ids[:2]) == "ok \ufffd"


def test_leftover_bytes_may_complete_a_stop_string() -> None:
    tokenizer, ids = of_pieces([b"ok ", b"\xf0\x9f"])
    assert make(tokenizer, limit=2, stop=[" \ufffd"]).feed(ids) == Cut(2, "ok", "stop")


# contract


def test_nothing_may_be_fed_after_the_end() -> None:
    stopper = make(ends=[EOS])
    stopper.feed([EOS])
    with pytest.raises(AssertionError):
        stopper.feed([1])


def test_an_empty_run_changes_nothing() -> None:
    assert make().feed([]) == Cut(0, "")


def test_without_a_tokenizer_stop_strings_never_match() -> None:
    assert make(limit=2, stop=["a"]).feed([A, A, A]) == Cut(2, "", "length")


ALPHABET = wrap(byte_level([b"ab", b"ba", b"\xc3", b"\xa9a"]))
TOKENS = [ALPHABET.token_id(spell(raw)) for raw in (b"a", b"b", b"ab", b"ba", b"\xc3", b"\xa9", b"\xa9a")]


@settings(max_examples=200, deadline=None)
@given(
    tokens=st.lists(st.sampled_from(TOKENS), max_size=24),
    sizes=st.lists(st.integers(1, 6), min_size=24, max_size=24),
    stops=st.lists(st.text("abé\ufffd", min_size=1, max_size=5), max_size=3),
    end=st.sampled_from([*TOKENS, -1, -1, -1]),
    limit=st.integers(1, 26),
)
def test_any_grouping_gives_the_cut_of_one_token_at_a_time(
    tokens: list[int], sizes: list[int], stops: list[str], end: int, limit: int
) -> None:
    runs, at = [], 0
    for size in sizes:
        runs.append(tokens[at : at + size])
        at += size
    kept, text, reason = feed_all(make(ALPHABET, [end], limit, stop=stops), runs)
    wanted = oracle(ALPHABET, tokens, {end}, limit, stops)
    if reason is None:  # undecided text is still held
        assert wanted[1].startswith(text)
        assert (kept, None) == (wanted[0], wanted[2])
    else:
        assert (kept, text, reason) == wanted
        assert not any(stop in text for stop in stops)


@settings(max_examples=100, deadline=None)
@given(tokens=st.lists(st.sampled_from(TOKENS), min_size=1, max_size=20), stop=st.text("ab", min_size=1, max_size=4))
def test_what_is_held_back_may_still_become_the_stop_string(tokens: list[int], stop: str) -> None:
    stopper = make(ALPHABET, stop=[stop])
    _, text, reason = feed_all(stopper, [tokens])
    if reason is None:
        detokenizer = Detokenizer(ALPHABET)
        held = "".join(map(detokenizer.push, tokens))[len(text) :]
        assert stop.startswith(held)


def test_a_hostile_stop_string_costs_linear_time() -> None:
    stopper = make(LETTERS, limit=10**6, stop=["a" * 20_000 + "b"])
    cut = stopper.feed([A] * 30_000 + [C])
    assert cut.text == "a" * 30_000 + "c"
