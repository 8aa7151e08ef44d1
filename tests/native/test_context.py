"""A drafter's context, natively: against torch in float64, by itself and beside others, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiled import SETS, needs_native, same, use_set
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import Tensor

from paceline import native
from paceline.decode.draft_context import new_context
from paceline.models.drafter import Drafter
from paceline.models.rounding import rounded
from paceline.models.transformer import prepare

pytestmark = needs_native

HIDDEN, KV_HEADS, DIM, PLACES = 12, 2, 6, 7


def drafters(seed: int, bias: bool = False) -> tuple[Drafter, Drafter]:
    """One that computes natively, and its oracle."""
    sizes: dict[str, Any] = [{}, {"hidden_size": 17, "head_dim": 6}, {"num_layers": 3, "head_dim": 20}][seed]
    found = []
    for dtype in (torch.float32, torch.float64):
        target = tiny_transformer(tiny_spec(hidden_size=sizes.get("hidden_size", 32), context_tokens=2048), dtype=dtype)
        layers = sizes.get("num_layers", 2)
        block = tiny_spec(**sizes, tied_head=True, qkv_bias=bias, out_bias=bias, windows=(None,) * layers)
        found.append(tiny_drafter(tiny_drafter_spec(target.spec, block=block, causal=(False,) * layers), target))
    prepare(found[0])
    return found[0], found[1]


def features_of(drafter: Drafter, rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, drafter.fc.weight.shape[1], generator=generator).to(drafter.fc.weight.dtype)


def context(drafter: Drafter, *sequences: list[Tensor]) -> list[Tensor]:
    """The caches of sequences after parts of features, all in one call: [layers, 2, kv_heads, rows, head_dim]."""
    caches = [new_context(drafter, 0) for _ in sequences]
    drafter.context.extend(list(zip(sequences, caches, strict=True)))
    return [cache.room(0)[..., : cache.length, :].clone() for cache in caches]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_that_of_torch(seed: int, bias: bool) -> None:
    ours, oracle = drafters(seed, bias)
    rows = features_of(ours, 9)
    torch.testing.assert_close(
        context(ours, [rows])[0].double(), context(oracle, [rows.double()])[0], atol=5e-5, rtol=0
    )


@pytest.mark.parametrize("instructions", SETS)
def test_every_instruction_set(instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_set(monkeypatch, instructions)
    test_it_is_that_of_torch(1, True)


def test_a_row_is_the_same_beside_others_and_in_parts() -> None:
    drafter, _ = drafters(2)
    rows, others = features_of(drafter, 1030), features_of(drafter, 3, seed=1)
    whole = context(drafter, [rows])[0]
    assert whole.shape[3] == 1030, "more than go through at a time"
    one_by_one = context(drafter, [rows[i : i + 1] for i in range(20)])[0]
    assert same(one_by_one, whole[..., :20, :])
    beside = context(drafter, [others], [rows[:5], rows[5:600], rows[600:]])
    assert same(beside[1], whole)
    assert same(beside[0], context(drafter, [others])[0])


def test_rounded_weights_are_those_of_the_layers() -> None:
    ours, oracle = (drafters(0)[1].float() for _ in range(2))
    for linear in (ours.fc, *(layer.qkv for layer in ours.layers)):
        linear.arithmetic = native.Arithmetic("weights", 16)
    for linear in (oracle.fc, *(layer.qkv for layer in oracle.layers)):
        linear.weight.data = rounded(linear.weight.detach(), 16)
    prepare(ours)
    rows = features_of(ours, 9)
    torch.testing.assert_close(context(ours, [rows])[0], context(oracle, [rows])[0], atol=5e-5, rtol=0)


def plain(**changes: Any) -> native.Context:
    tensors = native.ContextWeights(
        fc=torch.ones(HIDDEN, 2 * HIDDEN),
        fc_bias=None,
        norm=torch.ones(HIDDEN),
        key_value=torch.ones(2 * 2 * KV_HEADS * DIM, HIDDEN),
        key_value_bias=torch.ones(2 * 2 * KV_HEADS * DIM),
        key_norms=torch.ones(2, DIM),
    )
    angles = torch.zeros(PLACES, 1, DIM)
    return native.Context((2, KV_HEADS, 1e-6), tensors._replace(**changes), native.turn_of((angles, angles)))


@pytest.mark.parametrize(
    "changes",
    [
        {"fc": torch.ones(HIDDEN, 0)},
        {"fc": torch.ones(HIDDEN - 1, 2 * HIDDEN)},
        {"fc_bias": torch.ones(HIDDEN - 1)},
        {"norm": torch.ones(HIDDEN + 1)},
        {"key_value": torch.ones(2 * 2 * KV_HEADS * DIM - 1, HIDDEN)},
        {"key_value_bias": torch.ones(3)},
        {"key_norms": torch.ones(3, DIM)},
        {"key_norms": torch.ones(2, DIM + 2)},
        {"key_norms": torch.ones(2, DIM - 1)},
    ],
)
def test_weights_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        plain(**changes)


PARTS = [torch.zeros(1, 2 * HIDDEN), torch.zeros(2, 2 * HIDDEN)]


@pytest.mark.parametrize(
    ("parts", "cache", "past"),
    [
        ([torch.zeros(1, HIDDEN)], torch.zeros(2, 2, KV_HEADS, 8, DIM), 0),
        (PARTS, torch.zeros(2, 2, KV_HEADS, 8, DIM), 5),  # one more than there are angles
        (PARTS, torch.zeros(2, 2, KV_HEADS, 6, DIM), 4),
        (PARTS, torch.zeros(2, 2, KV_HEADS, 8, DIM), -1),
        (PARTS, torch.zeros(2, 2, KV_HEADS, 8, DIM), 2**62),
        (PARTS, torch.zeros(1, 2, KV_HEADS, 8, DIM), 0),
        (PARTS, torch.zeros(2, 2, KV_HEADS, 8, DIM).double(), 0),
    ],
)
def test_rows_that_do_not_fit_are_refused(parts: list[Tensor], cache: Tensor, past: int) -> None:
    made = plain()
    made.extend([(PARTS, torch.zeros(2, 2, KV_HEADS, 8, DIM), 4)])
    made.extend([])
    with pytest.raises((TypeError, ValueError)):
        made.extend([(parts, cache, past)])
