"""From blocks to proposals: what a plain pass, several passes, noise and what is carried over come to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from scripted import drafter_of
from tiny import fill_block, tiny_spec, tiny_transformer
from torch import Tensor

from paceline.decode.dflash import DFlash
from paceline.decode.draft_context import context_of, remember
from paceline.decode.drafting import Drafting
from paceline.decode.sequence import Sequence
from paceline.decode.speculation import PLAIN, Plan, Speculation
from paceline.decode.target import Target
from paceline.decode.tree import EMPTY
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import DFlash2
from paceline.request import Sampling

MODEL = tiny_transformer(tiny_spec())
DRAFTER = drafter_of(MODEL)
CHAIN = Speculation(candidate_num=1)
TARGET = Target(MODEL, 64, DRAFTER.spec.target_layer_ids)


def opened(prompt: list[int], **sampling: Any) -> Sequence:
    decoder = DFlash(TARGET, DRAFTER, Speculation(block_size=8))
    sequence = decoder.open(prompt, Sampling(max_tokens=40, **sampling), seed=3)
    decoder.prefill([sequence])
    remember(decoder.drafter, [sequence])
    return sequence


def drafting(noisy: bool = True, scored: bool = False, **settings: Any) -> Drafting:
    return Drafting(TARGET, DRAFTER, Speculation(**{"candidate_num": 1} | settings), noisy=noisy, scored=scored)


def read_block(drafter: Drafter, sequence: Sequence, block: list[int]) -> Tensor:
    """What a drafter says of every slot of one block, in one pass: logits [slots, vocab]."""
    logits: Tensor = drafter.logits(fill_block(drafter, context_of(sequence), block)[1:])
    logits[:, drafter.spec.mask_token_id] = -torch.inf
    return logits


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 6])
def test_a_tree_of_one_candidate_is_the_chain(temperature: float, top_k: int) -> None:
    """The general way, which knows scores, against the short one."""
    sequence = opened([1, 2, 3], temperature=temperature, top_k=top_k)
    (chain,) = drafting().propose([sequence], [Plan(8)])
    (tree,) = drafting(scored=True).propose([sequence], [Plan(8)])
    assert tree.tokens == chain.tokens
    assert tree.is_chain
    assert len(chain.tokens) == len(tree.scores) == 7
    assert chain.scores == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_nodes": 3},
        {"pruning_threshold": 1.0},
        {"block_size": 4},
    ],
)
def test_what_does_not_change_a_chain_does_not_slow_it_down(settings: dict[str, Any]) -> None:
    """The general way, which knows scores, comes to the same with these settings, so the short one is taken."""
    sequence = opened([1, 2, 3], temperature=1.0)
    (short,) = drafting(**settings).propose([sequence], [Plan(8)])
    (general,) = drafting(scored=True, **settings).propose([sequence], [Plan(8)])
    assert short == replace(general, scores=(), likeliest=())
    assert short.scores == ()
    (several,) = drafting(**settings).propose([sequence], [Plan(8, 2)])
    assert len(several.scores) == len(several.tokens)


def test_the_likeliest_path_of_a_tree_is_the_chain() -> None:
    sequence = opened([1, 2, 3], temperature=1.0)
    (chain,) = drafting().propose([sequence], [Plan(6)])
    (tree,) = drafting(candidate_num=8, max_nodes=40).propose([sequence], [Plan(6)])
    deepest = max(range(len(tree.tokens)), key=lambda node: (tree.depths[node], tree.scores[node]))
    path = [tree.tokens[node] for node in tree.path_to(deepest)]
    assert path == list(chain.tokens[: len(path)])
    assert tree.leaves > 1


def test_each_sequence_has_a_plan_of_its_own_and_no_more_than_is_left() -> None:
    sequences = [opened([1, 2, 3]), opened([4, 5]), opened([6])]
    sequences[2].limit_tokens = len(sequences[2].tokens) + 2
    found = drafting().propose(sequences, [Plan(4), PLAIN, Plan(8)])
    assert [len(proposal.tokens) for proposal in found] == [3, 0, 2]
    assert found[1] == EMPTY


def test_without_the_noise_candidates_are_those_of_greedy_choice() -> None:
    hot, cold = opened([1, 2, 3], temperature=1.0), opened([1, 2, 3])
    hot.tokens = list(cold.tokens)
    settings = {"candidate_num": 4, "max_nodes": 12}
    quiet, greedy = drafting(noisy=False, **settings), drafting(**settings)
    assert quiet.propose([hot], [Plan(6)]) == greedy.propose([cold], [Plan(6)])
    assert drafting(**settings).propose([hot], [Plan(6)]) != greedy.propose([cold], [Plan(6)])


def test_without_its_selector_a_drafter_ranks_every_slot_for_itself() -> None:
    drafter = drafter_of(MODEL, v2=DFlash2(2, 8, 4, 5))
    sequence = opened([1, 2, 3])
    with_it, without = (Drafting(TARGET, drafter, CHAIN, selecting=selecting) for selecting in (True, False))
    logits = read_block(drafter, sequence, [sequence.tokens[-1], *[drafter.spec.mask_token_id] * 5])
    (alone,) = without.propose([sequence], [Plan(6)])
    assert list(alone.tokens) == logits.argmax(-1).tolist()
    assert alone != with_it.propose([sequence], [Plan(6)])[0]


def test_more_passes_see_what_was_fixed() -> None:
    """Slot by slot: the surest first, then the rest beside it, against passes made by hand."""
    sequence = opened([1, 2, 3])
    mask = DRAFTER.spec.mask_token_id
    row = [sequence.tokens[-1], *[mask] * 3]
    left = [0, 1, 2]
    while left:
        logits = read_block(DRAFTER, sequence, row)
        best = max(left, key=lambda slot: float(logits[slot].log_softmax(-1).max()))
        row[best + 1] = int(logits[best].argmax())
        left.remove(best)
    (found,) = drafting().propose([sequence], [Plan(4, 3)])
    assert list(found.tokens) == row[1:]


def test_what_was_carried_over_stands_first() -> None:
    sequence = opened([1, 2, 3])
    sequence.carried = (7, 9)
    (found,) = drafting(overlap=2).propose([sequence], [Plan(6)])
    assert found.tokens[:2] == (7, 9)
    assert len(found.tokens) == 5
    (one,) = drafting(overlap=1, candidate_num=3).propose([sequence], [Plan(6)])
    assert {one.tokens[node] for node, depth in enumerate(one.depths) if depth == 1} == {7}
    (none,) = drafting(max_nodes=9).propose([sequence], [Plan(6)])
    assert none == drafting(max_nodes=9).propose([opened([1, 2, 3])], [Plan(6)])[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_plan_may_ask_for_a_chain_where_settings_have_trees(temperature: float) -> None:
    """The same drafts, with scores where these are wanted; and beside a sequence that branches."""
    one, other = (opened(prompt, temperature=temperature) for prompt in ([1, 2, 3], [3, 4]))
    (expected,) = drafting().propose([one], [Plan(8)])
    for scored in (False, True):
        found, tree = drafting(scored=scored, candidate_num=8).propose([one, other], [Plan(8, chain=True), Plan(8)])
        assert (found.tokens, found.is_chain) == (expected.tokens, True)
        assert tree.leaves > 1
        (alone,) = drafting(scored=scored, candidate_num=8).propose([one], [Plan(8, chain=True)])
        assert (alone.tokens, alone.is_chain, bool(alone.scores)) == (expected.tokens, True, scored)
