"""Candidates weighed anew: the oracle reads every path by itself, and multiplies probabilities in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from scripted import plain
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer
from torch import Tensor

from paceline.decode.candidates import Candidates, independent
from paceline.decode.ngram_table import NgramTable, Owner
from paceline.decode.rescoring import SmallModel, TableOfNgrams, rescored
from paceline.decode.sequence import Sequence
from paceline.decode.target import Target
from paceline.decode.tree import Expand, Proposal, Ranked, best_first
from paceline.models.transformer import Transformer
from paceline.request import Sampling

TREE = Proposal((5, 6, 7, 8, 9, 5), (-1, -1, 0, 1, 3, 2))


@pytest.fixture(scope="module")
def small() -> Transformer:
    return tiny_transformer(tiny_spec(num_layers=1), seed=3)


def opened(prompt: list[int], temperature: float = 0.0) -> Sequence:
    model = tiny_transformer(tiny_spec())
    sequence = plain(model).open(prompt, Sampling(max_tokens=90, temperature=temperature), seed=4)
    sequence.commit([9])
    return sequence


def behind(model: Transformer, tokens: list[int]) -> Tensor:
    """What the model says behind a text, read at once and from nothing."""
    hidden = run_flat(model, [tokens], [tiny_cache(model)]).hidden
    return model.head(hidden[-1:])[0]


def test_every_path_is_read_as_if_alone(small: Transformer) -> None:
    """Two sequences at once, in three rounds: with nothing, one and more tokens committed meanwhile."""
    sequences, joint = [opened([1, 2, 3]), opened([4] * 20)], SmallModel(Target(small, 64))
    other = Proposal((11,), (-1,))
    for committed in ([], [7], [8, 3, 2]):
        for sequence in sequences:
            sequence.commit(committed)
        for sequence, proposal, rows in zip(
            sequences, (TREE, other), joint.read(sequences, [TREE, other]), strict=True
        ):
            for node in range(-1, len(proposal.tokens)):
                path = [proposal.tokens[each] for each in proposal.path_to(node)]
                torch.testing.assert_close(rows[node + 1], behind(small, [*sequence.tokens, *path]), atol=1e-11, rtol=0)


def test_a_long_prompt_is_read_in_parts() -> None:
    model = tiny_transformer(tiny_spec(num_layers=1, context_tokens=2048), seed=3)
    sequence = opened([n % 60 for n in range(500)])
    sequence.tokens = [n % 60 for n in range(1200)]
    (rows,) = SmallModel(Target(model, 64)).read([sequence], [TREE])
    torch.testing.assert_close(rows[0], behind(model, sequence.tokens), atol=1e-10, rtol=0)


IDS = [5, 6, 7, 8, 9, 1]


def laws(seed: int, sequence: Sequence) -> tuple[Tensor, Expand]:
    """What a drafter says of three slots, log probabilities with the noise of the draws; id 1 is ruled out in one."""
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scores[1, 5] = -torch.inf
    heat = sequence.sampling.temperature
    if heat:
        first = len(sequence.tokens)
        scores = scores / heat + sequence.noise.at(range(first, first + 3), torch.tensor([IDS])).double()
    found = scores.log_softmax(-1)
    return found, independent(Candidates(torch.tensor([IDS] * 3), found))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_product_of_both_path_by_path(small: Transformer, temperature: float, weight: float) -> None:
    sequence = opened([1, 2, 3], temperature)
    found, expand = laws(1, sequence)
    (weighed,) = rescored(SmallModel(Target(small, 64)), weight, [sequence], [TREE], [expand])
    heat, total = temperature or 1.0, list[float]()
    for node, (parent, depth) in enumerate(zip(TREE.parents, TREE.depths, strict=True)):
        path = [TREE.tokens[each] for each in TREE.path_to(parent)]
        other = behind(small, [*sequence.tokens, *path])[IDS] / heat
        if temperature:
            place = len(sequence.tokens) + depth - 1
            other = other + sequence.noise.at([place], torch.tensor([IDS]))[0].double()
        mine, theirs = found[depth - 1].exp().tolist(), other.exp().tolist()
        chances = [p**weight * q ** (1 - weight) if p else 0.0 for p, q in zip(mine, theirs, strict=True)]
        share = chances[IDS.index(TREE.tokens[node])] / sum(chances)
        total.append(math.log(share) + (0.0 if parent < 0 else total[parent]))
    assert weighed.scores == pytest.approx(total, abs=1e-9)
    assert (weighed.tokens, weighed.parents) == (TREE.tokens, TREE.parents)


def test_with_its_whole_weight_the_drafter_is_left_alone(small: Transformer) -> None:
    """Its own scores, where its law is of the candidates alone; also slots that know their neighbours."""
    sequence = opened([1, 2, 3], 1.0)
    followers = {(): Ranked((5, 6), (-0.5, -0.9)), (5,): Ranked((7,), (0.0,)), (6,): Ranked((8, 7), (-0.1, -2.4))}
    whole = {path: _normal(law) for path, law in followers.items()}

    def expand(path: tuple[int, ...]) -> Ranked:
        return whole.get(path, Ranked((), ()))

    tree = best_first(expand, 9, 9)
    (weighed,) = rescored(SmallModel(Target(small, 64)), 1.0, [sequence], [tree], [expand])
    assert weighed.scores == pytest.approx(tree.scores, abs=1e-9)
    assert weighed.tokens == tree.tokens


def _normal(law: Ranked) -> Ranked:
    return Ranked(law.tokens, torch.tensor(law.scores, dtype=torch.float64).log_softmax(-1).tolist())


def test_beyond_the_small_models_context_the_drafter_is_left_alone() -> None:
    model = tiny_transformer(tiny_spec(num_layers=1, context_tokens=8), seed=3)
    short, long, joint = opened([1, 2]), opened([1, 2, 3, 4, 5, 6, 7]), SmallModel(Target(model, 64))
    one, other = joint.read([short, long], [TREE, TREE])
    assert not one.isnan().any()
    assert other.isnan().all()
    found, expand = laws(3, long)
    (weighed,) = rescored(joint, 0.5, [long], [TREE], [expand])
    assert weighed.scores[0] == pytest.approx(float(found[0, 0]))


def test_reading_twice_without_a_commit_gives_the_same(small: Transformer) -> None:
    """As the measurement of costs does."""
    sequence, joint = opened([1, 2, 3]), SmallModel(Target(small, 64))
    (first,), (second,) = joint.read([sequence], [TREE]), joint.read([sequence], [TREE])
    torch.testing.assert_close(first, second, atol=1e-11, rtol=0)


def test_a_table_says_what_it_has_and_nothing_else() -> None:
    """Contexts of two tokens: the anchor with the one before it, and one along the tree."""
    contexts = torch.tensor([[3, 9], [9, 6]])
    ids, scores = torch.tensor([[5], [8]]), torch.tensor([[2.0], [3.0]])
    table = NgramTable(Owner(0, 64, 0), contexts, ids, scores, torch.tensor([-1.0, -2.0]))
    sequence = opened([1, 2, 3])
    (rows,) = TableOfNgrams(table).read([sequence], [TREE])
    assert rows.isnan().all(-1).tolist() == [False, True, False, True, True, True, True]
    assert (float(rows[0, 5]), float(rows[0, 6]), float(rows[2, 8])) == (2.0, -1.0, 3.0)
    _, expand = laws(2, sequence)
    (weighed,) = rescored(TableOfNgrams(table), 0.5, [sequence], [TREE], [expand])
    (plainly,) = rescored(TableOfNgrams(table), 1.0, [sequence], [TREE], [expand])
    assert weighed.scores[2] - weighed.scores[0] == pytest.approx(plainly.scores[2] - plainly.scores[0], abs=1e-6)
    assert weighed.scores[0] > plainly.scores[0]
