"""The DFlash loop. Cases named decode-NN, cache-NN, batch-NN, sampling-NN are reports of faults in other engines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from scripted import (
    Watched,
    accepting,
    answer_all,
    answers_of,
    chain,
    constant,
    copying,
    drafter_of,
    plain,
    prompt_of,
    scripted,
)
from tiny import GOLDEN, run_flat, tiny_cache, tiny_spec, tiny_transformer
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.dflash import DFlash
from paceline.decode.draft_context import remember
from paceline.decode.noise import derive_seed, draw_seed
from paceline.decode.sequence import Sequence as Decoded
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.decode.tree import EMPTY
from paceline.engine.loop import Decoder, Job
from paceline.models.load import load_drafter, load_transformer
from paceline.models.transformer import Transformer, prepare
from paceline.request import Sampling

VOCAB = 64


def opened(decoder: Decoder, prompt: Sequence[int], seed: int = 0, **sampling: Any) -> Decoded:
    """A sequence behind its prompt pass."""
    sequence = decoder.open(prompt, Sampling(**sampling), seed)
    decoder.prefill([sequence])
    return sequence


def assert_caches_are_as_if_read_at_once(decoder: DFlash, sequence: Decoded) -> None:
    """Both caches hold what one pass over all tokens but the newest would have put there."""
    remember(decoder.drafter, [sequence])
    model, drafter = decoder.target.model, decoder.drafter
    cache = tiny_cache(model)
    tokens = sequence.tokens[:-1]
    features = run_flat(model, [tokens], [cache], drafter.spec.target_layer_ids).features
    assert features is not None
    assert sequence.draft_cache is not None
    assert sequence.cache.length == sequence.draft_cache.length == len(tokens)
    for layer in range(model.spec.num_layers):
        assert_close(sequence.cache.view(layer), cache.view(layer))
    keys, values = drafter.context(features, torch.arange(len(tokens)))
    for layer in range(drafter.spec.block.num_layers):
        rows = keys[layer].transpose(0, 1), values[layer].transpose(0, 1)
        assert_close(sequence.draft_cache.view(layer), rows)


def assert_close(pair: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for ours, theirs in zip(pair, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=0)


class TestFirstDraft:
    """decode-01: the first draft is judged like every other. The target answers … 7 4 with 9 6."""

    @pytest.mark.parametrize(("draft", "committed", "accepted"), [([7], (9,), 0), ([9, 7], (9, 6), 1)])
    def test_as_reported(self, draft: list[int], committed: tuple[int, ...], accepted: int) -> None:
        decoder = scripted(chain({7: 4, 4: 9, 9: 6}), 8, lambda *_: draft)
        sequence = opened(decoder, [7, 4, 7])
        assert sequence.tokens == [7, 4, 7, 4]
        (round,) = decoder.step([sequence])
        assert (round.committed, round.accepted, round.proposed) == (committed, accepted, tuple(draft))
        assert sequence.tokens == [7, 4, 7, 4, *committed]

    def test_random_ids_change_nothing(self) -> None:
        model = tiny_transformer(tiny_spec())
        job = Job((7, 4, 7, 4), Sampling(max_tokens=40), seed=0)
        wild = scripted(model, 6, lambda sequence, slots: [len(sequence.tokens) * 13 % VOCAB] * slots)
        assert answer_all(wild, [job])[0].token_ids == answer_all(plain(model), [job])[0].token_ids


BLOCK_SIZES = (1, 2, 4, 8, 16)


class TestPrecision:
    """decode-02: what holds in which precision; see docs/equality.md."""

    JOBS = tuple(
        Job(tuple(range(start, start + 9)), Sampling(max_tokens=48, temperature=heat), seed=start)
        for start, heat in ((1, 0.0), (20, 0.0), (40, 1.0))
    )
    GAP = 0.25
    """bfloat16 has steps of 1/32 at 8, near the top logits of this model; several operations round."""

    def drafted(self, model: Transformer, block_size: int) -> list[list[int]]:
        prepare(model)
        truths = answers_of(plain(model), self.JOBS)
        decoder = scripted(model, block_size, copying(truths, 0.8, VOCAB))
        return [answer.token_ids for answer in answer_all(decoder, self.JOBS, batch=2)]

    @pytest.mark.parametrize("block_size", BLOCK_SIZES)
    def test_float32_gives_identical_tokens(self, block_size: int) -> None:
        model = tiny_transformer(tiny_spec(), dtype=torch.float32)
        prepare(model)
        assert self.drafted(model, block_size) == [*answers_of(plain(model), self.JOBS).values()]

    @pytest.mark.parametrize("block_size", BLOCK_SIZES)
    def test_bfloat16_gives_the_top_token_of_the_plain_model_within_a_gap(self, block_size: int) -> None:
        """Teacher-forced: every greedy token, fed back, is the plain model's first choice or at most GAP behind."""
        model = tiny_transformer(tiny_spec(), dtype=torch.bfloat16)
        for job, answer in zip(self.JOBS[:2], self.drafted(model, block_size), strict=False):
            tokens, cache = [*job.prompt, *answer], tiny_cache(model)
            hidden = torch.cat([run_flat(model, [[token]], [cache]).hidden for token in tokens[:-1]])
            logits = model.head(hidden)[len(job.prompt) - 1 :].float()
            chosen = logits.gather(-1, torch.tensor(answer).unsqueeze(-1)).squeeze(-1)
            assert (logits.amax(-1) - chosen).max() <= self.GAP

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    def test_exact_ties_go_to_the_lowest_id(self, dtype: torch.dtype) -> None:
        """Ids 3, 8 and 40 always have one logit, the highest: whoever computes it, 3 is chosen."""
        logits = [0.0] * VOCAB
        logits[3] = logits[8] = logits[40] = 6.125
        model = constant(logits).to(dtype)
        for block_size in BLOCK_SIZES:
            decoder = scripted(model, block_size, lambda _, slots: [8, 3, 40, 3][:slots])
            assert answer_all(decoder, [Job((5,), Sampling(max_tokens=7), 0)])[0].token_ids == [3] * 7


class TestRollback:
    """cache-01: both caches cover the prompt and every token but the newest, whatever was rejected."""

    PROMPT = tuple(range(10))

    def test_lengths_and_contents_as_reported(self) -> None:
        model = tiny_transformer(tiny_spec())
        truths = answers_of(plain(model), [Job(self.PROMPT, Sampling(max_tokens=30), 0)])
        decoder = scripted(model, 5, accepting(truths, {self.PROMPT: (4, 0, 2, 1, 3)}, VOCAB))
        sequence = opened(decoder, self.PROMPT, max_tokens=30)
        lengths, accepted = [], []
        for _ in range(5):
            (round,) = decoder.step([sequence])
            accepted.append(round.accepted)
            lengths.append(sequence.cache.length)
            assert_caches_are_as_if_read_at_once(decoder, sequence)
        assert accepted == [4, 0, 2, 1, 3]
        assert lengths == [15, 16, 19, 21, 25]
        assert sequence.tokens[10:] == list(truths[self.PROMPT, 0])[:16]

    def test_drafts_do_not_get_worse_with_length(self) -> None:
        """A trained drafter drafts, after every round, what it drafts when all tokens so far are its prompt."""
        target = load_transformer(GOLDEN / "dflash-v1-scaled" / "target", torch.float64)
        drafter = load_drafter(GOLDEN / "dflash-v1-scaled" / "draft", target, torch.float64)
        decoder = DFlash(Target(target, 256, drafter.spec.target_layer_ids), drafter, Speculation(block_size=8))
        sequence = opened(decoder, [50, 13, 30, 16, 56, 56, 106, 14, 30, 31], max_tokens=120)
        accepted = 0
        while sequence.remaining_tokens > 8:
            afresh = opened(decoder, sequence.tokens[:-1], max_tokens=120)
            (round,), (cold,) = decoder.step([sequence]), decoder.step([afresh])
            assert round.proposed == cold.proposed
            accepted += round.accepted
        assert accepted > 20, "a drafter that is never right proves nothing"

    @pytest.mark.parametrize("limit", [1, 2, 7, 8, 9])
    def test_the_last_round_leaves_whole_caches_too(self, limit: int) -> None:
        model = tiny_transformer(tiny_spec())
        truths = answers_of(plain(model), [Job(self.PROMPT, Sampling(max_tokens=limit), 0)])
        decoder = scripted(model, 4, copying(truths, 1.0, VOCAB))
        sequence = opened(decoder, self.PROMPT, max_tokens=limit)
        while sequence.remaining_tokens > 0:
            decoder.step([sequence])
        assert len(sequence.tokens) == 10 + limit
        assert_caches_are_as_if_read_at_once(decoder, sequence)


@pytest.mark.parametrize("prompt_tokens", [6, 7, 8, 20])
def test_sliding_windows_survive_rollback(prompt_tokens: int) -> None:
    """cache-03: window 8, block 4, the first draft accepted in every round, across the wrap of a ring."""
    model = tiny_transformer(tiny_spec("mistral", windows=(8, 8)))
    prompt = tuple(range(prompt_tokens))
    job = Job(prompt, Sampling(max_tokens=24), 0)
    truths = answers_of(plain(model), [job])
    decoder = Watched(scripted(model, 4, accepting(truths, {prompt: (1,)}, VOCAB)))
    (answer,) = answer_all(decoder, [job])
    assert answer.token_ids == truths[prompt, 0]
    assert {round.accepted for round in answer.rounds[:-1]} == {1}
    assert isinstance(decoder.decoder, DFlash)
    assert_caches_are_as_if_read_at_once(decoder.decoder, decoder.sequences[prompt])


class TestBatches:
    def test_rows_that_accept_differently(self) -> None:
        """batch-01: rows roll back each on its own; one that has ended takes no part any more."""
        model = tiny_transformer(tiny_spec("qwen2", windows=(None, 6)))
        jobs = [Job(tuple(range(3 * n, 4 * n)), Sampling(max_tokens=14, temperature=2.0), n) for n in (5, 12, 9)]
        truths = answers_of(plain(model), jobs)
        pattern = {job.prompt: row for job, row in zip(jobs, ((3, 0, 1), (1, 3, 0), (0, 2, 2)), strict=True)}
        third = jobs[2]
        # Row 2 commits 1 token in its first round and 3 in its second: it ends inside the second.
        *before, stop = truths[third.prompt, third.seed][:4]
        assert stop not in before
        ending = Sampling(max_tokens=14, temperature=2.0, stop_token_ids=(stop,))
        jobs[2] = Job(third.prompt, ending, third.seed)
        decoder = Watched(scripted(model, 4, accepting(truths, pattern, VOCAB)))
        answers = answer_all(decoder, jobs, batch=3)
        alone = {job.prompt: answer_all(plain(model), [job])[0].token_ids for job in jobs}
        for answer in answers:
            prompt = answer.job.prompt
            assert answer.token_ids == alone[prompt]
            accepted = [round.accepted for round in answer.rounds[:3]]
            assert accepted == list(pattern[prompt][: len(accepted)])
        assert [third.prompt in step for step in decoder.steps[:3]] == [True, True, False]
        assert isinstance(decoder.decoder, DFlash)
        for job in jobs[:2]:
            assert_caches_are_as_if_read_at_once(decoder.decoder, decoder.sequences[job.prompt])

    def test_acceptance_of_a_row_does_not_depend_on_how_many_there_are(self) -> None:
        """batch-01, with a real drafter that shares the noise."""
        model = tiny_transformer(tiny_spec())
        drafter = drafter_of(model)
        decoder = DFlash(Target(model, VOCAB, drafter.spec.target_layer_ids), drafter, Speculation(block_size=6))
        jobs = [Job((5, n), Sampling(max_tokens=15, temperature=2.0), n) for n in range(4)]
        alone = [answer_all(decoder, [job])[0] for job in jobs]
        for answer, expected in zip(answer_all(decoder, jobs, batch=4), alone, strict=True):
            for round, other in zip(answer.rounds, expected.rounds, strict=True):
                assert (round.proposed, round.reference) == (other.proposed, other.reference)

    @pytest.mark.parametrize("method", ["ar", "dflash"])
    def test_prompts_of_different_lengths(self, method: str) -> None:
        """batch-02: nothing is padded; float32, greedy, each row alone and in the batch."""
        model = tiny_transformer(tiny_spec(), dtype=torch.float32)
        drafter = drafter_of(model)
        dflash = DFlash(Target(model, VOCAB, drafter.spec.target_layer_ids), drafter, Speculation(block_size=8))
        decoder: Decoder = plain(model) if method == "ar" else dflash
        jobs = [Job(tuple(range(n)), Sampling(max_tokens=20), 0) for n in (3, 17, 40)]
        together = [answer.token_ids for answer in answer_all(decoder, jobs, batch=3)]
        assert together == [answer_all(decoder, [job])[0].token_ids for job in jobs]


class TestPenaltiesAndBias:
    """sampling-03: slot i is scored with the drafts before it; what was rejected is not counted."""

    A, B = 3, 4
    LOGITS = (-9.0, -9.0, -9.0, 2.0, 1.9, -9.0)

    @pytest.mark.parametrize("block_size", [1, 2, 3, 6, 16])
    @pytest.mark.parametrize("draft", ["all A", "alternating"])
    def test_frequency_penalty_as_reported(self, block_size: int, draft: str) -> None:
        def script(sequence: Decoded, slots: int) -> list[int]:
            start = len(sequence.tokens) - 1
            alternating = [self.B if (start + slot) % 2 else self.A for slot in range(slots)]
            return [self.A] * slots if draft == "all A" else alternating

        decoder = Watched(scripted(constant(self.LOGITS), block_size, script))
        sampling = Sampling(max_tokens=6, frequency_penalty=0.5)
        (answer,) = answer_all(decoder, [Job((0,), sampling, 0)])
        assert answer.token_ids == [self.A, self.B] * 3
        counts = decoder.sequences[0,].counts
        assert counts is not None
        assert counts.output.tolist() == [0, 0, 0, 3, 3, 0], "rejected drafts leave no trace"
        if draft == "alternating" and block_size > 1:
            assert answer.rounds[0].accepted == min(block_size - 1, 5)

    def test_a_banned_token_appears_in_no_slot(self) -> None:
        """Neither committed nor drafted, though both models like it best."""
        model = constant([0.0] * 5 + [2.0] + [0.0] * 58)
        drafter = drafter_of(model)
        decoder = DFlash(Target(model, VOCAB, drafter.spec.target_layer_ids), drafter, Speculation(block_size=6))
        sampling = Sampling(max_tokens=30, temperature=1.0, logit_bias={5: -100.0})
        (answer,) = answer_all(decoder, [Job((1,), sampling, 9)])
        assert 5 not in answer.token_ids
        assert all(5 not in round.proposed for round in answer.rounds)

    @pytest.mark.parametrize("usable", [VOCAB, VOCAB - 3])
    def test_neither_mask_nor_padding_is_ever_proposed(self, usable: int) -> None:
        """The mask id is 63; the target itself may say it, where it is no padding."""
        model = tiny_transformer(tiny_spec())
        drafter = drafter_of(model)
        decoder = DFlash(Target(model, usable, drafter.spec.target_layer_ids), drafter, Speculation(block_size=16))
        sampling = Sampling(max_tokens=400, temperature=50.0)
        (answer,) = answer_all(decoder, [Job((1,), sampling, 9)])
        drafted = {token for round in answer.rounds for token in round.proposed}
        assert drafter.spec.mask_token_id == VOCAB - 1
        assert max(drafted) == min(usable, VOCAB - 1) - 1
        assert max(answer.token_ids) == usable - 1


class TestSeeds:
    """sampling-04: a, b seeded alike; c unseeded with four choices; d greedy; in batches of changing composition."""

    PROMPT = (9, 8, 7)
    HOT = Sampling(max_tokens=16, temperature=1.0)

    @pytest.fixture
    def decoder(self) -> DFlash:
        model = tiny_transformer(tiny_spec())
        drafter = drafter_of(model)
        return DFlash(Target(model, VOCAB, drafter.spec.target_layer_ids), drafter, Speculation(block_size=5))

    def c(self, seed: int) -> list[Job]:
        return [Job(self.PROMPT, self.HOT, derive_seed(seed, choice), 0, choice) for choice in range(4)]

    def test_schedules(self, decoder: DFlash) -> None:
        a, b = (Job(self.PROMPT, self.HOT, 7) for _ in "ab")
        d = Job(self.PROMPT, Sampling(max_tokens=16), 0)
        schedules = ([a], [a, b], [a, *self.c(draw_seed()), d], [d], [*self.c(draw_seed()), b, a])
        outputs: dict[int, set[tuple[int, ...]]] = {id(job): set() for job in (a, b, d)}
        for schedule in schedules:
            for batch in (1, 2, 6):
                for answer in answer_all(decoder, schedule, batch=batch):
                    outputs.setdefault(id(answer.job), set()).add(tuple(answer.token_ids))
        assert len(outputs[id(a)] | outputs[id(b)]) == 1
        assert len(outputs[id(d)]) == 1

    def test_choices_differ_and_unseeded_runs_differ(self, decoder: DFlash) -> None:
        """64^16 answers of this model are about equally likely: that two are equal by chance is out of the question."""
        runs = [[tuple(answer.token_ids) for answer in answer_all(decoder, self.c(draw_seed()), batch=4)] for _ in "12"]
        assert len({*runs[0], *runs[1]}) == 8

    def test_choice_i_is_reproducible(self, decoder: DFlash) -> None:
        whole = [answer.token_ids for answer in answer_all(decoder, self.c(5), batch=3)]
        for choice, job in enumerate(self.c(5)):
            assert answer_all(decoder, [job])[0].token_ids == whole[choice]


def test_the_law_of_the_output_is_the_targets() -> None:
    """sampling-05: drafts from (.6 .3 .1) with the target's own noise; the output is (.2 .5 .3), not (.2 .47 .33).

    9600 tokens: five standard deviations are 0.0256 at most, the fault is 0.034 wide. False alarms: 2e-6 per run; the
    seeds are fixed.
    """
    draft_logits = torch.tensor([math.log(p) for p in (0.6, 0.3, 0.1)], dtype=torch.float64)
    decoder = scripted(
        constant([math.log(p) for p in (0.2, 0.5, 0.3)]),
        4,
        lambda sequence, slots: sequence.choose(draft_logits.expand(slots, -1), EMPTY, None),
    )
    jobs = [Job((0,), Sampling(max_tokens=300, temperature=1.0), seed) for seed in range(32)]
    answers = answer_all(decoder, jobs, batch=32)
    counts = Counter(token for answer in answers for token in answer.token_ids)
    assert counts.total() == 9600
    for token, probability in enumerate((0.2, 0.5, 0.3)):
        spread = math.sqrt(probability * (1 - probability) / counts.total())
        assert abs(counts[token] / counts.total() - probability) < 5 * spread
    accepted = sum(round.accepted for answer in answers for round in answer.rounds)
    assert accepted > 0.4 * counts.total(), "the drafts must matter"


@pytest.mark.parametrize("block_size", [4, 16])
def test_drafter_and_target_draw_with_the_same_noise(block_size: int) -> None:
    """So hot that the noise alone decides: nearly all drafts agree; with noise of their own 1 in 64 would."""
    model = tiny_transformer(tiny_spec())
    drafter = drafter_of(model)
    decoder = DFlash(Target(model, VOCAB, drafter.spec.target_layer_ids), drafter, Speculation(block_size=block_size))
    (answer,) = answer_all(decoder, [Job((1, 2), Sampling(max_tokens=200, temperature=100.0), 5)])
    drafted = sum(len(round.proposed) for round in answer.rounds)
    assert sum(round.accepted for round in answer.rounds) > 0.5 * drafted


class TestBlocks:
    def test_a_block_is_shortened_near_the_budget(self) -> None:
        """stop-04: never more drafts than tokens are left, as the reference implementation does it."""
        model = tiny_transformer(tiny_spec())
        drafter = drafter_of(model)
        decoder = DFlash(Target(model, VOCAB, drafter.spec.target_layer_ids), drafter, Speculation(block_size=6))
        (answer,) = answer_all(decoder, [Job((1, 2), Sampling(max_tokens=11), 0)])
        left = [10 - sum(len(round.committed) for round in answer.rounds[:n]) for n in range(len(answer.rounds))]
        assert [len(round.proposed) for round in answer.rounds] == [min(5, tokens) for tokens in left]

    def test_a_block_of_one_drafts_nothing_and_never_runs_the_drafter(self) -> None:
        model = tiny_transformer(tiny_spec())
        drafter = drafter_of(model)
        drafter.register_forward_pre_hook(lambda *_: pytest.fail("the drafter ran"))
        decoder = DFlash(Target(model, VOCAB, drafter.spec.target_layer_ids), drafter, Speculation(block_size=1))
        (answer,) = answer_all(decoder, [Job((1, 2), Sampling(max_tokens=5), 0)])
        assert [round.committed for round in answer.rounds] == [(token,) for token in answer.token_ids[1:]]

    def test_a_block_longer_than_the_one_trained(self) -> None:
        model = tiny_transformer(tiny_spec())
        drafter = drafter_of(model, block_size=4)
        decoder = DFlash(Target(model, VOCAB, drafter.spec.target_layer_ids), drafter, Speculation(block_size=20))
        job = Job((1, 2), Sampling(max_tokens=25), 0)
        assert answer_all(decoder, [job])[0].token_ids == answer_all(plain(model), [job])[0].token_ids

    def test_positions_are_consecutive(self) -> None:
        """batch-01: of every row the target reads, none is left out, and a block begins at its anchor."""
        model = tiny_transformer(tiny_spec())
        seen: list[list[int]] = []
        hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1].tolist()))
        truths = answers_of(plain(model), [Job((4, 4, 4), Sampling(max_tokens=12), 0)])
        seen.clear()
        decoder = scripted(model, 4, copying(truths, 0.5, VOCAB))
        answer_all(decoder, [Job((4, 4, 4), Sampling(max_tokens=12), 0)])
        hook.remove()
        assert seen[0] == [0, 1, 2]
        assert all(b - a == 1 for block in seen for a, b in pairwise(block))
        assert [block[0] for block in seen[1:]][:1] == [3]

    def test_seconds_are_shared_out(self) -> None:
        model = tiny_transformer(tiny_spec())
        decoder = scripted(model, 4, lambda _, slots: [0] * slots)
        sequences = [opened(decoder, [place]) for place in range(3)]
        rounds = decoder.step(sequences)
        assert all(round.draft_seconds >= 0 and round.verify_seconds > 0 for round in rounds)
        assert len({round.verify_seconds for round in rounds}) == 1
        assert [prompt_of(sequence) for sequence in sequences] == [(0,), (1,), (2,)]


def test_the_draft_cache_grows_beyond_its_first_reservation() -> None:
    """It is opened with room for the prompt and 256 rows."""
    model = chain({})
    decoder = scripted(model, 16, lambda sequence, slots: [(sequence.tokens[-1] + 1 + n) % VOCAB for n in range(slots)])
    sequence = opened(decoder, [1], max_tokens=300)
    while sequence.remaining_tokens > 0:
        decoder.step([sequence])
    remember(decoder.drafter, [sequence])
    assert isinstance(sequence.draft_cache, SequenceCache)
    assert sequence.draft_cache.length == 300
    assert sequence.tokens == [(1 + n) % VOCAB for n in range(301)]
