"""Candidates weighed anew: the oracle reads every path by itself, and multiplies probabilities in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from scripted import plain
from tiny import run_flat, tiny_cache, tiny_spec, tiny_transformer
from torch import Tensor

from paceline.decode.candidates import Candidates
from paceline.decode.ngram_table import NgramTable, Owner
from paceline.decode.rescoring import SmallModel, TableOfNgrams, rescored
from paceline.decode.sequence import Sequence
from paceline.decode.target import Target
from paceline.decode.tree import Proposal
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


def candidates(seed: int) -> Candidates:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.tensor([5, 6, 7, 8, 9, 1])] * 3)
    scores, noise = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64).unbind()
    scores[1, 5] = -torch.inf
    return Candidates(ids, scores, scores, noise, torch.zeros(3, 1))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_product_of_both_path_by_path(small: Transformer, temperature: float, weight: float) -> None:
    sequence, found = opened([1, 2, 3], temperature), candidates(1)
    (weighed,) = rescored(SmallModel(Target(small, 64)), weight, [sequence], [TREE], [found])
    heat, total = temperature or 1.0, list[float]()
    for node, (parent, depth) in enumerate(zip(TREE.parents, TREE.depths, strict=True)):
        path = [TREE.tokens[each] for each in TREE.path_to(parent)]
        own = found.scores[depth - 1].softmax(-1).tolist()
        other = behind(small, [*sequence.tokens, *path])[found.ids[0]].softmax(-1).tolist()
        draws = found.noise[depth - 1].tolist()
        chances = [
            (0.0 if weight and not p else p**weight * q ** (1 - weight)) ** (1 / heat) * math.exp(draw)
            for p, q, draw in zip(own, other, draws, strict=True)
        ]
        place = found.ids[0].tolist().index(TREE.tokens[node])
        total.append(math.log(chances[place] / sum(chances)) + (0.0 if parent < 0 else total[parent]))
    assert weighed.scores == pytest.approx(total, abs=1e-9)
    assert (weighed.tokens, weighed.parents) == (TREE.tokens, TREE.parents)


def test_a_table_says_what_it_has_and_nothing_else(small: Transformer) -> None:
    """Contexts of two tokens: the anchor with the one before it, and one along the tree."""
    del small
    contexts = torch.tensor([[3, 9], [9, 6]])
    ids, scores = torch.tensor([[5], [8]]), torch.tensor([[2.0], [3.0]])
    table = NgramTable(Owner(0, 64, 0), contexts, ids, scores, torch.tensor([-1.0, -2.0]))
    (rows,) = TableOfNgrams(table).read([opened([1, 2, 3])], [TREE])
    assert rows.isnan().all(-1).tolist() == [False, True, False, True, True, True, True]
    assert (float(rows[0, 5]), float(rows[0, 6]), float(rows[2, 8])) == (2.0, -1.0, 3.0)
    found = candidates(2)
    (weighed,) = rescored(TableOfNgrams(table), 0.5, [opened([1, 2, 3])], [TREE], [found])
    (plainly,) = rescored(TableOfNgrams(table), 1.0, [opened([1, 2, 3])], [TREE], [found])
    assert weighed.scores[2] - weighed.scores[0] == pytest.approx(plainly.scores[2] - plainly.scores[0])
    assert weighed.scores[0] > plainly.scores[0]
