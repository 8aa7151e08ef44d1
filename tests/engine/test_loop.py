"""The engine loop: admission, ends inside a block, streams and statistics. Cases named stop-NN are reports."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from scripted import Watched, accepting, answer_all, answers_of, chain, copying, plain, scripted
from tiny import tiny_spec, tiny_transformer
from tiny_tokenizers import of_pieces

from paceline.completion import Round
from paceline.decode.dflash import DFlash
from paceline.decode.sequence import Sequence as Decoded
from paceline.engine.loop import Answer, Job, run
from paceline.request import Sampling

VOCAB = 64


def along(tokens: Sequence[int], block_size: int, vocab_size: int = VOCAB) -> DFlash:
    """A target that says tokens[1:] after tokens[0], and a drafter that knows it. All tokens differ."""
    assert len(set(tokens)) == len(tokens)
    following = dict(pairwise(tokens))

    def script(sequence: Decoded, slots: int) -> list[int]:
        drafts, token = [], sequence.tokens[-1]
        for _ in range(slots):
            token = following.get(token, (token + 1) % vocab_size)
            drafts.append(token)
        return drafts

    return scripted(chain(following, vocab_size), block_size, script)


def answer_of(decoder: Any, prompt: int, ends: Sequence[int] = (), **sampling: Any) -> Answer:
    (answer,) = answer_all(decoder, [Job((prompt,), Sampling(**sampling), 0)], ends=frozenset(ends))
    return answer


class TestEndTokens:
    """stop-01: block 8, prefill token 10, then 11 12 … all drafted rightly, and an end token somewhere in it."""

    @pytest.mark.parametrize("place", range(12))
    @pytest.mark.parametrize("ends", [(2,), (2, 3), (3, 2)])
    def test_at_every_slot(self, place: int, ends: tuple[int, ...]) -> None:
        """0 is the prefill token, 1 … 7 the slots, 8 the bonus token, 9 … those of the second round."""
        tokens = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]
        tokens[place] = 2
        answer = answer_of(along([9, *tokens], 8), 9, ends, max_tokens=32)
        assert answer.token_ids == tokens[: place + 1]
        assert answer.finish_reason == "stop"
        sizes = [len(round.committed) for round in answer.rounds]
        assert sizes == ([] if place == 0 else [place] if place <= 8 else [8, place - 8])
        completion = answer.completion()
        assert completion.usage.completion_tokens == place + 1
        assert completion.stats.accepted_tokens <= place + 1
        assert sum(completion.stats.accepted_per_round) == place

    def test_the_first_of_two_end_tokens_ends(self) -> None:
        tokens = [10, 11, 3, 12, 2, 13]
        assert answer_of(along([9, *tokens], 8), 9, (2, 3), max_tokens=32).token_ids == [10, 11, 3]

    def test_a_rejected_end_token_does_not_end(self) -> None:
        decoder = scripted(chain({}), 4, lambda _, slots: [2] * slots)
        assert answer_of(decoder, 9, (2,), max_tokens=5).token_ids == [10, 11, 12, 13, 14]

    def test_an_ended_answer_takes_no_part_any_more(self) -> None:
        decoder = Watched(along([9, 10, 11, 2, 12, 13, 14, 15, 16, 17], 4))
        jobs = [Job((9,), Sampling(max_tokens=30), 0), Job((12,), Sampling(max_tokens=30), 0)]
        answer_all(decoder, jobs, ends=frozenset((2,)), batch=2)
        assert decoder.steps[0] == [(9,), (12,)]
        assert all(step == [(12,)] for step in decoder.steps[1:])


@pytest.mark.parametrize("block_size", range(1, 17))
@pytest.mark.parametrize(
    ("run", "kept", "reason"),
    [([41, 42, 43, 60, 51, 52, 53, 54], 4, "stop"), ([41, 42, 43, 51, 52, 53, 60, 54], 6, "length")],
)
def test_what_comes_first_in_token_order_wins(block_size: int, run: list[int], kept: int, reason: str) -> None:
    """stop-02: an accepted run crosses the budget of 6 and holds a stop token; 40 is the prefill token before it."""
    answer = answer_of(along([39, 40, *run], block_size), 39, stop_token_ids=(60,), max_tokens=7)
    assert answer.token_ids == [40, *run[:kept]]
    assert answer.finish_reason == reason


@pytest.mark.parametrize("block_size", [1, 2, 16])
@pytest.mark.parametrize("max_tokens", [1, 2, 3, 15, 16, 17, 40])
def test_the_budget_is_met_exactly(max_tokens: int, block_size: int) -> None:
    """stop-04: a drafter that always agrees, and no end token."""
    decoder = along(range(VOCAB), block_size)
    completion = answer_of(decoder, 3, max_tokens=max_tokens).completion()
    assert completion.token_ids == [(4 + n) % VOCAB for n in range(max_tokens)]
    assert completion.finish_reason == "length"
    usage, stats = completion.usage, completion.stats
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (1, max_tokens, max_tokens + 1)
    assert sum(stats.accepted_per_round) == max_tokens - 1
    assert stats.accepted_tokens <= max_tokens - 1
    assert stats.rounds == -(-(max_tokens - 1) // block_size)
    for round in completion.rounds:
        assert round.accepted <= len(round.proposed)
    left = max_tokens - 1 - sum(len(round.committed) for round in completion.rounds[:-1])
    assert all(len(round.proposed) <= left for round in completion.rounds[-1:])


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_the_context_ends_an_answer_too(block_size: int) -> None:
    model = tiny_transformer(tiny_spec(context_tokens=20))
    job = Job(tuple(range(12)), Sampling(max_tokens=100), 0)
    truths = answers_of(plain(model), [job])
    (answer,) = answer_all(scripted(model, block_size, copying(truths, 1.0, VOCAB)), [job])
    assert len(answer.token_ids) == 8
    assert answer.finish_reason == "length"
    assert answer.token_ids == truths[job.prompt, 0]


class TestText:
    PIECES = ("Sure", ".", "\n\n", "Q", ":", " next", "uick", " note", b"\xf0\x9f", b"\x91\x8b", " hi")
    TOKENIZER, IDS = of_pieces(PIECES)
    SURE, DOT, BLANK, Q, COLON, NEXT, UICK, NOTE, WAVE, HAND, HI = IDS
    START = 0

    def texts(self, tokens: list[int], block_size: int, **sampling: Any) -> tuple[list[str], Answer]:
        decoder = along([self.START, *tokens], block_size, max(self.IDS) + 2)
        job = Job((self.START,), Sampling(max_tokens=len(tokens), **sampling), 0)
        chunks, answers = [], set()
        for answer, chunk in run(decoder, [job], self.TOKENIZER, frozenset(), 1):
            chunks.append(chunk.text)
            answers.add(id(answer))
        assert len(answers) == 1
        assert "".join(chunks) == answer.text
        return chunks, answer

    @pytest.mark.parametrize("block_size", range(1, 8))
    def test_a_stop_string_across_rounds(self, block_size: int) -> None:
        """stop-03, case A, whatever the borders of the blocks."""
        tokens = [self.SURE, self.DOT, self.BLANK, self.Q, self.COLON, self.NEXT]
        _, answer = self.texts(tokens, block_size, stop="\n\nQ:")
        assert (answer.text, answer.finish_reason) == ("Sure.", "stop")
        assert answer.token_ids == tokens[:5]

    @pytest.mark.parametrize("block_size", range(1, 8))
    def test_what_only_began_like_a_stop_string_is_released(self, block_size: int) -> None:
        """stop-03, case B."""
        tokens = [self.SURE, self.DOT, self.BLANK, self.Q, self.UICK, self.NOTE]
        _, answer = self.texts(tokens, block_size, stop="\n\nQ:")
        assert (answer.text, answer.finish_reason) == ("Sure.\n\nQuick note", "length")

    @pytest.mark.parametrize("block_size", range(1, 5))
    def test_half_a_character_is_never_streamed(self, block_size: int) -> None:
        chunks, answer = self.texts([self.SURE, self.WAVE, self.HAND, self.HI], block_size)
        assert answer.text == "Sure👋 hi"
        assert not any("\ufffd" in chunk for chunk in chunks)

    def test_the_chunks_carry_the_rounds(self) -> None:
        decoder = along([self.START, *self.IDS], 4, max(self.IDS) + 2)
        job = Job((self.START,), Sampling(max_tokens=9), 0)
        chunks = [chunk for _, chunk in run(decoder, [job], self.TOKENIZER, frozenset(), 1)]
        assert [len(chunk.token_ids) for chunk in chunks] == [1, 4, 4]
        assert chunks[0].round is None
        assert all(chunk.round is not None and chunk.round.committed == chunk.token_ids for chunk in chunks[1:])
        assert [chunk.finish_reason for chunk in chunks] == [None, None, "length"]


@dataclass(slots=True)
class Runs:
    """A decoder, and the state of its one answer, whose runs are written down."""

    remaining_tokens: int
    prompt_pass: tuple[int, ...]
    rounds: list[tuple[int, ...]]
    name: str = "runs"

    def check(self, *_: object) -> None:
        """Everything can be decoded."""

    def open(self, *_: object) -> Runs:
        return self

    def prefill(self, states: Sequence[Runs], /) -> list[tuple[int, ...]]:
        return [self.prompt_pass] * len(states)

    def step(self, states: Sequence[Runs], /) -> list[Round]:
        return [Round((), (), self.rounds.pop(0), 0, 0.0, 0.0) for _ in states]


@pytest.mark.parametrize(
    ("prompt_pass", "rounds", "chunks", "reason"),
    [
        ((), [(5, 6, 7)], [(5, 6, 7)], "length"),
        ((), [(), (5,), (), (6, 7)], [(), (5,), (), (6, 7)], "length"),
        ((5, 6), [(7,)], [(5, 6), (7,)], "length"),
        ((5, 6, 7, 8), [], [(5, 6, 7)], "length"),
        ((5, 2, 7), [], [(5, 2)], "stop"),
        ((), [(), (2, 7)], [(), (2,)], "stop"),
    ],
)
def test_a_prompt_pass_and_a_round_may_commit_any_run(
    prompt_pass: tuple[int, ...], rounds: list[tuple[int, ...]], chunks: list[tuple[int, ...]], reason: str
) -> None:
    taken = list(run(Runs(3, prompt_pass, list(rounds)), [Job((1,), Sampling(), 0)], None, frozenset({2}), 1))
    assert [chunk.token_ids for _, chunk in taken] == chunks
    assert [chunk.finish_reason for _, chunk in taken] == [None] * (len(chunks) - 1) + [reason]
    completion = taken[-1][1].completion
    assert completion is not None
    assert completion.token_ids == [token for chunk in chunks for token in chunk]
    assert completion.stats.completion_tokens == completion.usage.completion_tokens == len(completion.token_ids)
    assert completion.stats.forward_passes == len(rounds) + bool(prompt_pass)


class TestAdmission:
    def jobs(self, *budgets: int) -> list[Job]:
        return [Job((place,), Sampling(max_tokens=budget), place) for place, budget in enumerate(budgets)]

    def test_at_most_so_many_decode_together_and_the_next_takes_the_place(self) -> None:
        decoder = Watched(along(range(VOCAB), 1))
        answers = answer_all(decoder, self.jobs(3, 6, 4, 2), batch=2)
        assert [len(answer.token_ids) for answer in answers] == [3, 6, 4, 2]
        assert decoder.steps == [[(0,), (1,)], [(0,), (1,)], [(1,), (2,)], [(1,), (2,)], [(1,), (2,)], [(3,)]]

    def test_answers_that_end_with_their_first_token_never_step(self) -> None:
        decoder = Watched(along(range(VOCAB), 4))
        answers = answer_all(decoder, self.jobs(1, 1, 1), batch=2)
        assert [answer.token_ids for answer in answers] == [[1], [2], [3]]
        assert decoder.steps == []

    def test_nothing_to_do(self) -> None:
        assert answer_all(along(range(VOCAB), 4), []) == []

    def test_an_abandoned_run_releases_its_sequences(self) -> None:
        stream = run(along(range(VOCAB), 4), self.jobs(30, 30), None, frozenset(), 2)
        answer, _ = next(stream)
        cache = weakref.ref(answer.state.cache)
        del answer
        stream.close()
        del stream
        gc.collect()
        assert cache() is None

    def test_a_finished_answer_is_released_one_round_later_while_others_go_on(self) -> None:
        ended, later = list[Any](), 0
        for answer, chunk in run(along(range(VOCAB), 2), self.jobs(2, 40), None, frozenset(), 2):
            if chunk.finish_reason is not None:
                ended.append(weakref.ref(answer.state.cache))
            later += len(ended)
            if later == 3:
                break
        gc.collect()
        assert len(ended) == 1
        assert ended[0]() is None


def test_a_completion_tells_how_it_came_about() -> None:
    decoder = scripted(chain({}), 4, lambda sequence, slots: [(sequence.tokens[-1] + 1) % VOCAB, 0, 0][:slots])
    job = Job((9,), Sampling(max_tokens=8), seed=77, prompt_index=3, choice_index=2)
    (answer,) = answer_all(decoder, [job])
    completion = answer.completion()
    assert (completion.seed, completion.prompt_index, completion.choice_index) == (77, 3, 2)
    stats = completion.stats
    assert stats.method == "dflash"
    assert stats.accepted_per_round == (2, 2, 2, 1)
    assert (stats.rounds, stats.drafted_tokens, stats.checked_tokens) == (4, 3 + 3 + 3 + 1, 2 + 2 + 2 + 1)
    assert stats.accepted_tokens == 4
    assert stats.acceptance_length == 7 / 4
    assert 0 < stats.draft_seconds + stats.verify_seconds <= stats.total_seconds
    assert stats.tokens_per_second == 8 / stats.total_seconds


def test_eval_01_drafted_checked_and_kept_drafts_are_counted_apart() -> None:
    """eval-01: 7 drafts a round; all right, 2 right, all right with an end token as the fourth."""
    model, answer = chain({}), {((9,), 0): list(range(10, 40))}
    decoder = scripted(model, 8, accepting(answer, {(9,): (7, 2, 7)}, VOCAB))
    completion = answer_of(decoder, 9, ends=(25,), max_tokens=32).completion()
    stats = completion.stats
    assert stats.accepted_per_round == (8, 3, 4)
    assert stats.acceptance_length == 5
    assert sum(stats.accepted_per_round) == completion.usage.completion_tokens - 1
    assert [round.checked for round in completion.rounds] == [7, 3, 4]
    assert (stats.drafted_tokens, stats.checked_tokens, stats.accepted_tokens) == (21, 14, 7 + 2 + 4)
