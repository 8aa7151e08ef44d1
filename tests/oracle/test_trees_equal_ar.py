"""Trees, steps, overlap: DFlash gives the tokens of plain decoding, `==` in float64, whatever a round proposes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from asked import ENDS, FAMILIES, OPTIONS, TOKENIZER, USABLE, VOCAB, jobs_for, models, outcome
from scripted import answer_all, answers_of, drafter_of, plain, prompt_of, scripted, truth
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer

from paceline.decode.controller import Controller
from paceline.decode.curves import Costs
from paceline.decode.dflash import DFlash
from paceline.decode.draft_context import remember
from paceline.decode.rescoring import SmallModel
from paceline.decode.sequence import Sequence as Decoded
from paceline.decode.speculation import PLAIN, Speculation
from paceline.decode.suffix_index import SuffixIndex
from paceline.decode.target import Target
from paceline.decode.tree import Proposal
from paceline.engine.loop import Job
from paceline.models.drafter_spec import DFlash2
from paceline.request import Sampling


def speculation(rng: random.Random) -> Speculation:
    """Any settings, spread over all of them."""
    return Speculation(
        block_size=rng.randrange(2, 17),
        candidate_num=rng.choice((1, 2, 3, 6, 40)),
        max_nodes=rng.choice((1, 5, 12, 32)),
        pruning_threshold=rng.choice((0.0, 0.0, 0.3, 1.0)),
        diffusion_steps=rng.choice((1, 1, 2, 5)),
        draft_temperature=rng.choice(("off", "fixed", "adaptive")),
        overlap=rng.choice((0, 0, 1, 3)),
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_any_settings_give_the_tokens_of_plain_decoding(family: str) -> None:
    rng = random.Random(family)
    whole = {"tokenizer": TOKENIZER, "ends": ENDS}
    model, usable = models(family), USABLE[family]
    small = tiny_transformer(tiny_spec(num_layers=1), seed=5)
    branched = 0
    options = OPTIONS[len(family) % 3 :: 3]
    for index, first in enumerate(range(0, len(options), 4)):
        jobs = jobs_for(family, 77 + index, options[first : first + 4])
        oracle = [answer for job in jobs for answer in answer_all(plain(model, usable), [job], **whole)]
        real = drafter_of(model, causal=(index % 2 == 0,), v2=DFlash2(2, 8, 4, 5) if index % 3 == 0 else None)
        target = Target(model, usable, real.spec.target_layer_ids)
        joint = SmallModel(Target(small, usable)) if index % 2 else None
        ways = {"noisy": index % 5 > 0, "selecting": index % 6 > 0, "scored": index % 4 == 1}
        decoder = DFlash(target, real, speculation(rng), joint=joint, **ways)
        answers = answer_all(decoder, jobs, batch=index % 4 + 1, **whole)
        assert list(map(outcome, answers)) == list(map(outcome, oracle)), decoder.settings
        rounds = [round for answer in answers for round in answer.rounds]
        branched += sum(bool(round.parents) for round in rounds)
        for round in rounds:
            assert round.accepted <= round.checked <= len(round.committed)
            assert len(round.committed) - round.accepted in (0, 1)
    assert branched > 10, "a test of trees needs some"


CHEAP = Costs({1: 1.0, 8: 1.1, 64: 1.5}, {4: 0.1, 16: 0.2})
DEAR = Costs({1: 1.0, 8: 6.0, 64: 50.0}, {4: 0.5, 16: 0.9})


@pytest.mark.parametrize("costs", [CHEAP, DEAR])
@pytest.mark.parametrize("right", [0.0, 0.5, 0.95])
def test_a_controller_never_changes_the_text(costs: Costs, right: float) -> None:
    """With rests, trials, emptied trees, drafts carried over, a small model, and lookup: drafts of any worth, three at
    once."""
    model, small = models("qwen3"), tiny_transformer(tiny_spec(num_layers=1), seed=5)
    jobs = jobs_for("qwen3", 5, OPTIONS[::13])
    oracle = [answer for job in jobs for answer in answer_all(plain(model), [job])]
    real = drafter_of(model)
    more = {"lookup": 6, "lookup_factor": 3.0} if right else {}
    settings = Speculation(candidate_num=5, max_nodes=20, overlap=2, diffusion_steps=2, **more)  # type: ignore[arg-type]
    known = SuffixIndex([token for answer in oracle for token in (*answer.job.prompt, *answer.token_ids)], 4)
    it = Controller(lambda *_: costs, (2, 4, 9), 4, (1, 2))
    it.calibration.right[:] = [40.0 * right] * len(it.calibration.right)
    it.calibration.seen[:] = [40.0] * len(it.calibration.seen)
    target = Target(model, VOCAB, real.spec.target_layer_ids)
    decoder = DFlash(target, real, settings, it, SmallModel(Target(small, VOCAB)), known)
    answers = answer_all(decoder, jobs, batch=3)
    assert list(map(outcome, answers)) == list(map(outcome, oracle))
    for answer in answers:
        remember(decoder.drafter, [answer.state])
        assert answer.state.draft_cache.length == answer.state.cache.length
        assert_caches_are_whole(decoder, answer.state)
    plans = [round.plan for answer in answers for round in answer.rounds if round.plan is not None]
    assert any(plan.block_size == 1 for plan in plans) or costs is CHEAP
    assert any(plan.block_size > 1 for plan in plans)
    rounds = [round for answer in answers for round in answer.rounds if round.plan == PLAIN]
    assert right == 0.0 or costs is DEAR or any(round.accepted for round in rounds), "copies alone"


TREE = (-1, -1, 0, 0, 1, 2, 4, 5, 5)
"""Parents: nine nodes, five ends, two that stop early."""


def path_to(node: int) -> list[int]:
    return [] if node < 0 else [*path_to(TREE[node]), node]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("family", ["qwen3", "qwen2, one sliding layer", "mistral, all layers sliding"])
def test_every_path_through_a_tree_is_taken(family: str, temperature: float) -> None:
    """The truth stands on the path to each node in turn; caches are then as if all had been read at once."""
    model = models(family)
    sampling = Sampling(max_tokens=80, temperature=temperature, frequency_penalty=0.3)
    jobs = [Job((1, 2, 3), sampling, seed=8), Job((4,) * 12, sampling, seed=9)]
    truths = answers_of(plain(model), jobs)
    turns: dict[Any, int] = {}

    def script(sequence: Decoded, slots: int) -> Proposal:
        turn = turns[prompt_of(sequence)] = turns.get(prompt_of(sequence), -2) + 1
        right, known = path_to(turn % 10 - 1), truth(truths, sequence, 5)
        tokens = [(known[len(path_to(node)) - 1] + 1 + node) % VOCAB for node in range(len(TREE))]
        for depth, node in enumerate(right):
            tokens[node] = known[depth]
        return cut(tokens, slots)

    decoder = scripted(model, 5, script)
    answers = answer_all(decoder, jobs, batch=2)
    for answer in answers:
        assert answer.token_ids == truths[answer.job.prompt, answer.job.seed]
        accepted = [round.accepted for round in answer.rounds]
        wanted = [len(path_to((turn - 1) % 10 - 1)) for turn in range(len(accepted))]
        assert accepted[:20] == wanted[:20]
        assert_caches_are_whole(decoder, answer.state)


def cut(tokens: Sequence[int], slots: int) -> Proposal:
    """The nodes that are no deeper than `slots`."""
    kept = [node for node in range(len(TREE)) if len(path_to(node)) <= slots]
    return Proposal(tuple(tokens[node] for node in kept), tuple(TREE[node] for node in kept))


def assert_caches_are_whole(decoder: DFlash, sequence: Decoded) -> None:
    cache, length = tiny_cache(decoder.target.model), sequence.cache.length
    assert length == len(sequence.tokens) - 1
    run_flat(decoder.target.model, [sequence.tokens[:-1]], [cache])
    for layer in range(decoder.target.model.spec.num_layers):
        for ours, theirs in zip(sequence.cache.view(layer), cache.view(layer), strict=True):
            assert (ours - theirs).abs().max() < 1e-11
