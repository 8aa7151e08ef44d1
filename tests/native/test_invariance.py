"""A row is the same to the bit whatever is computed with it. `==` throughout: no tolerance, no false alarms."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from compiled import SETS, Piece, filled, needs_native, packed, random_piece, read, same, use_set
from tiny import tiny_spec

from paceline.models.spec import Spec
from paceline.native import Arithmetic

pytestmark = needs_native

SPEC = tiny_spec(hidden_size=40, intermediate_size=72, num_heads=6, head_dim=20, windows=(None, 6), qkv_bias=True)


@pytest.fixture(params=SETS, autouse=True)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_set(monkeypatch, request.param)


@pytest.fixture(params=["none", "bfloat16", "int8"])
def arithmetic(request: pytest.FixtureRequest) -> Arithmetic:
    return Arithmetic(request.param)


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("spec", [SPEC, tiny_spec(head_dim=64)], ids=["windows", "whole vectors"])
def test_rows_beside_it(spec: Spec, arithmetic: Arithmetic) -> None:
    model, rng = packed(spec, arithmetic=arithmetic), random.Random(0)
    alone = read(model, [Piece([7], 9)], [filled(model, 9)]).hidden
    for rows in range(1, 41):
        row = rng.randrange(rows)
        tokens = [rng.randrange(spec.vocab_size) for _ in range(rows)]
        tokens[row] = 7
        siblings = Piece(tokens, 9, (-1,) * rows)
        assert same(read(model, [siblings], [filled(model, 9)]).hidden[row : row + 1], alone), (rows, row)


@pytest.mark.parametrize("past", [0, 5, 16, 29, 150])
def test_trees_and_their_paths(past: int, arithmetic: Arithmetic) -> None:
    model = packed(SPEC, arithmetic=arithmetic)
    tree = random_piece(past, 64, 24, past, tree=True)
    hidden = read(model, [tree], [filled(model, past)]).hidden
    for row in range(24):
        path = tree.path(row)
        chain = read(model, [Piece([tree.tokens[each] for each in path], past)], [filled(model, past)])
        assert same(chain.hidden, hidden[path])


@pytest.mark.parametrize("past", [0, 13, 120])
def test_one_row_after_the_other(past: int, arithmetic: Arithmetic) -> None:
    model = packed(SPEC, arithmetic=arithmetic)
    chain = random_piece(past, 64, 21, past, tree=False)
    at_once = read(model, [chain], [filled(model, past)]).hidden
    cache = filled(model, past)
    for row, token in enumerate(chain.tokens):
        assert same(read(model, [Piece([token], past + row)], [cache]).hidden[0], at_once[row])
        cache.advance(1)


def test_sequences_beside_it(arithmetic: Arithmetic) -> None:
    model = packed(SPEC, arithmetic=arithmetic)
    pieces = [random_piece(past, 64, 5, past, tree=past % 2 == 1) for past in (0, 3, 17, 8)]
    caches = [filled(model, piece.past, seed=piece.past) for piece in pieces]
    together = read(model, pieces, caches, (0,))
    assert together.features is not None
    for index, piece in enumerate(pieces):
        rows = slice(5 * index, 5 * index + 5)
        alone = read(model, [piece], [filled(model, piece.past, seed=piece.past)], (0,))
        assert alone.features is not None
        assert same(alone.hidden, together.hidden[rows])
        assert same(alone.features, together.features[rows])


def test_threads(restored_threads: None, arithmetic: Arithmetic) -> None:
    piece, found = random_piece(1, 64, 19, 12, tree=True), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        model = packed(SPEC, arithmetic=arithmetic)
        hidden = read(model, [piece], [filled(model, 12)]).hidden
        found.append((hidden, model.head(hidden)))
    for hidden, logits in found[1:]:
        assert same(hidden, found[0][0])
        assert same(logits, found[0][1])
