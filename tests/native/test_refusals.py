"""What the network refuses: every wrong shape, type or tree is an exception, and never a crash."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from compiled import needs_native

from paceline import native

pytestmark = needs_native

HIDDEN, HEADS, KV_HEADS, DIM, INNER, VOCAB = 12, 4, 2, 6, 10, 20
KERNEL, GROUPS = 3, 4

EMBEDDING = torch.zeros(VOCAB, HIDDEN)


def weights(**changes: Any) -> native.LayerWeights:
    width, both = HEADS * DIM, 2 * KV_HEADS * DIM
    layer = native.LayerWeights(
        attention_norm=torch.ones(HIDDEN),
        mlp_norm=torch.ones(HIDDEN),
        query_norm=torch.ones(DIM),
        key_norm=torch.ones(DIM),
        qkv=torch.ones(width + both, HIDDEN),
        out=torch.ones(HIDDEN, width),
        gate_up=torch.ones(2 * INNER, HIDDEN),
        down=torch.ones(HIDDEN, INNER),
        qkv_bias=None,
        out_bias=torch.ones(HIDDEN),
        gate_up_bias=None,
        down_bias=None,
        attention_base=torch.ones(2, KERNEL, HIDDEN),
        attention_projection=torch.ones(2 * KERNEL * GROUPS, HIDDEN),
        mlp_base=None,
        mlp_projection=None,
    )
    return layer._replace(**changes)


def network(layer: native.LayerWeights | None = None, heads: int = HEADS, dim: int = DIM) -> native.Network:
    sizes = native.Sizes(2, INNER, heads, KV_HEADS, dim, 1e-6, KERNEL, GROUPS)
    return native.Network(sizes, [layer or weights()] * 2, torch.ones(HIDDEN), EMBEDDING)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_norm": torch.ones(HIDDEN + 1)},
        {"mlp_norm": torch.ones(HIDDEN, dtype=torch.float64)},
        {"query_norm": None},
        {"key_norm": torch.ones(DIM - 1)},
        {"qkv": torch.ones(5, HIDDEN)},
        {"out": torch.ones(HIDDEN, 3)},
        {"gate_up": torch.ones(2 * INNER, HIDDEN - 1)},
        {"down": torch.ones(HIDDEN, INNER).half()},
        {"out_bias": torch.ones(HIDDEN - 1)},
        {"attention_base": None},
        {"mlp_projection": torch.ones(2 * KERNEL * GROUPS, HIDDEN)},
        {"attention_base": torch.ones(2, KERNEL + 1, HIDDEN)},
        {"attention_base": torch.ones(1, KERNEL, HIDDEN)},
        {"attention_base": torch.ones(2, KERNEL, HIDDEN - 1)},
        {"attention_base": torch.ones(2, KERNEL, HIDDEN, dtype=torch.float64)},
        {"attention_projection": torch.ones(2 * KERNEL * GROUPS - 1, HIDDEN)},
        {"attention_projection": torch.ones(2 * KERNEL * GROUPS, HIDDEN + 1)},
    ],
)
def test_weights(changes: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        network(weights(**changes))


def at_an_odd_byte(*shape: int) -> torch.Tensor:
    """Zeros that begin in the middle of a number."""
    count = math.prod(shape)
    return torch.frombuffer(bytearray(4 * count + 4), dtype=torch.float32, count=count, offset=1).view(shape)


def test_unaligned_values() -> None:
    with pytest.raises(ValueError, match="aligned"):
        native.Product(at_an_odd_byte(16, 8), None)
    with pytest.raises(ValueError, match="aligned"):
        native.Product(torch.zeros(16, 8), None)(at_an_odd_byte(2, 8))
    with pytest.raises(ValueError, match="aligned"):
        native.drawn(at_an_odd_byte(1, 9), 1.0, [1])
    with pytest.raises(ValueError, match="aligned"):
        network(weights(mlp_norm=at_an_odd_byte(HIDDEN)))
    with pytest.raises(ValueError, match="aligned"):
        network().states(batch(rows=[rows(cache=at_an_odd_byte(2, 2, KV_HEADS, 8, DIM))]))


def test_heads_that_no_number_counts() -> None:
    with pytest.raises(ValueError, match="larger"):
        native.Network(native.Sizes(1, INNER, 2**62, 2**61, 6, 1e-6), [weights()], torch.ones(HIDDEN), EMBEDDING)


def test_heads() -> None:
    with pytest.raises(ValueError, match="kv_heads"):
        network(heads=3)
    with pytest.raises(ValueError, match="even"):
        network(dim=5)


@pytest.mark.parametrize("kernels", [(0, 4), (3, 0), (-3, -4), (3, 5), (2**62, 4), (2**24, 12)])
def test_kernels(kernels: tuple[int, int]) -> None:
    sizes = native.Sizes(2, INNER, HEADS, KV_HEADS, DIM, 1e-6, *kernels)
    with pytest.raises(ValueError, match=r"kernel_|larger"):
        native.Network(sizes, [], torch.ones(HIDDEN), EMBEDDING)


def test_convolutions_in_a_network_that_has_none() -> None:
    sizes = native.Sizes(2, INNER, HEADS, KV_HEADS, DIM, 1e-6)
    nothing = weights(attention_base=torch.ones(2, 0, HIDDEN), attention_projection=torch.ones(0, HIDDEN))
    for layer in (weights(), nothing):
        with pytest.raises(ValueError, match="no convolutions"):
            native.Network(sizes, [layer], torch.ones(HIDDEN), EMBEDDING)


def test_other_numbers_of_layers_than_announced() -> None:
    sizes = native.Sizes(2, INNER, HEADS, KV_HEADS, DIM, 1e-6, KERNEL, GROUPS)
    with pytest.raises(ValueError, match="more layers"):
        native.Network(sizes, [weights()] * 3, torch.ones(HIDDEN), EMBEDDING)
    with pytest.raises(ValueError, match="missing"):
        native.Network(sizes, [weights()], torch.ones(HIDDEN), EMBEDDING).states(batch())
    with pytest.raises(ValueError, match="no layers"):
        native.Network(sizes._replace(layers=0), [], torch.ones(HIDDEN), EMBEDDING)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_int8_cannot_hold(wrong: float) -> None:
    out = torch.ones(HIDDEN, HEADS * DIM)
    out[2, 3] = wrong
    with pytest.raises(ValueError, match="finite"):
        native.Product(out, None, native.Arithmetic("weights", 4))
    with pytest.raises(ValueError, match="finite"):
        native.Product(out, None, native.Arithmetic("int8"))


def rows(**changes: Any) -> native.Rows:
    return native.Rows(torch.zeros(2, 2, KV_HEADS, 8, DIM), 3, 4, None)._replace(**changes)


def batch(**changes: Any) -> native.Batch:
    return native.Batch(
        tokens=torch.tensor([0, 1, 2, VOCAB - 1]),
        places=torch.tensor([0, 1, 2, 8]),
        turn=turn(9, DIM),
        rows=[rows()],
        causal=[True, True],
        windows=[None, 3],
        taps=(0, 1),
    )._replace(**changes)


def turn(places: int, dim: int, others: int | None = None) -> Any:
    return native.turn_of((torch.zeros(places, 1, dim), torch.zeros(others or places, 1, dim)))


def head(inputs: int = HIDDEN) -> native.Product:
    return native.Product(torch.ones(5, inputs), None)


def test_what_is_right_is_accepted() -> None:
    hidden, features = network().states(batch())
    assert hidden.shape == (4, HIDDEN)
    assert features is not None
    assert features.shape == (4, 2 * HIDDEN)
    scores, _ = network().scores(batch(), head(), [1, 3])
    assert scores.shape == (2, 5)
    states, same_scores = network().states_and_scores(batch(), head(), [1, 3])
    assert states.shape == (2, HIDDEN)
    assert torch.equal(same_scores, scores)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": torch.tensor([0, 1, 2, VOCAB])},
        {"tokens": torch.tensor([0, 1, 2, -1])},
        {"tokens": torch.tensor([0, 1, 2])},
        {"tokens": torch.tensor([0, 1, 2, 3], dtype=torch.int32)},
        {"places": torch.tensor([0, 1, 2, 9])},
        {"places": torch.tensor([0, 1, 2, -1])},
        {"places": torch.tensor([0, 1, 2])},
        {"turn": turn(9, DIM, 8)},
        {"turn": turn(9, DIM - 2)},
        {"rows": []},
        {"rows": [rows(past=5)]},
        {"rows": [rows(past=-1)]},
        {"rows": [rows(past=2**62)]},
        {"rows": [rows(rows=-4), rows(rows=8, past=0)]},
        {"rows": [rows(cache=torch.zeros(2, 2, KV_HEADS, 8, DIM)[..., ::2, :])]},
        {"rows": [rows(cache=torch.zeros(1, 2, KV_HEADS, 8, DIM))]},
        {"rows": [rows(cache=torch.zeros(2, 2, KV_HEADS, 8, DIM, dtype=torch.float64))]},
        {"rows": [rows(tree=(-1, 0, 1))]},
        {"rows": [rows(tree=(-1, 0, 2, 1))]},
        {"rows": [rows(tree=(-1, 0, -2, 1))]},
        {"causal": [True]},
        {"windows": [None]},
        {"windows": [None, 0]},
        {"taps": (2,)},
        {"taps": (-1,)},
    ],
)
def test_passes(changes: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        network().states(batch(**changes))


def one_each(**changes: Any) -> native.Batch:
    own = [rows(rows=1), rows(rows=1, past=0)]
    return batch(tokens=torch.tensor([4, 5]), places=torch.tensor([3, 0]), rows=own)._replace(**changes)


def draws(count: int) -> native.Draws:
    return native.Draws([1.0] * count, [0.0] * count, [0] * count)


def test_passes_that_follow_each_other() -> None:
    ids, features = network().continued(one_each(), head(), draws(10), [])
    assert len(ids) == 10
    assert features is not None
    assert features.shape == (10, 2 * HIDDEN)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({}, 3),
        ({}, 12),  # a cache has room for five more
        ({"places": torch.tensor([3, 5])}, 10),
        ({"rows": [rows(rows=2)]}, 4),
        ({"rows": [rows(rows=2), rows(rows=0)]}, 4),
        ({"tokens": torch.tensor([4, VOCAB])}, 4),
    ],
)
def test_passes_that_cannot_follow_each_other(changes: dict[str, Any], count: int) -> None:
    with pytest.raises((TypeError, ValueError)):
        network().continued(one_each(**changes), head(), draws(count), [])


@pytest.mark.parametrize("scored", [[4], [-1], [0, 7]])
def test_rows_to_score_that_are_not_there(scored: list[int]) -> None:
    with pytest.raises(ValueError, match="row to score"):
        network().scores(batch(), head(), scored)
    with pytest.raises(ValueError, match="row to score"):
        network().states_and_scores(batch(), head(), scored)


def test_a_head_of_another_size() -> None:
    with pytest.raises(ValueError, match="head"):
        network().scores(batch(), head(HIDDEN + 1), [0])


@pytest.mark.parametrize("embedding", [torch.zeros(VOCAB, HIDDEN + 1), torch.zeros(VOCAB, HIDDEN).half()])
def test_embeddings(embedding: torch.Tensor) -> None:
    sizes = native.Sizes(2, INNER, HEADS, KV_HEADS, DIM, 1e-6, KERNEL, GROUPS)
    with pytest.raises((TypeError, ValueError)):
        native.Network(sizes, [weights()] * 2, torch.ones(HIDDEN), embedding)


def test_no_rows() -> None:
    """A pass of nothing is nothing."""
    none = torch.zeros(0, dtype=torch.int64)
    nothing = batch(tokens=none, places=none, rows=[], taps=())
    assert network().states(nothing)[0].shape == (0, HIDDEN)
    assert network().scores(nothing, head(), [])[0].shape == (0, 5)
    assert network().states_and_scores(nothing, head(), [])[0].shape == (0, HIDDEN)


def test_hidden_states_of_other_rows() -> None:
    given = network()
    tokens, places, angles, segments, *rest, _ = batch()
    own = [(each.cache.numpy(), *each[1:]) for each in segments]
    passed = (tokens.numpy(), places.numpy(), *angles, own, *rest, (), None)
    for shape in ((1, HIDDEN), (2, HIDDEN + 1)):
        with pytest.raises(ValueError, match="scored rows, hidden"):
            given._native.score(passed, head().packed, [1, 3], torch.empty(2, 5).numpy(), torch.empty(shape).numpy())
