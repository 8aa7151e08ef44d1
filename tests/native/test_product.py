"""Products on their own: against float64, row by row, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from compiled import SETS, needs_native, same, use_set

from paceline import native
from paceline.models.int8 import WHOLE_ROW, rounded

pytestmark = needs_native


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("kept", ["float32", "bfloat16", "int8", "int8-7"])
@pytest.mark.parametrize(("depth", "outputs"), [(1, 1), (3, 37), (256, 64), (301, 130), (1000, 16)])
def test_product(depth: int, outputs: int, kept: str, instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_set(monkeypatch, instructions)
    weight, bias = random(outputs, depth), random(outputs)
    weight = weight.bfloat16().float() if kept == "bfloat16" else weight
    group = {"int8": WHOLE_ROW, "int8-7": 7}.get(kept, 0)
    product = native.Product(weight, bias, group)
    weight = rounded(weight, group) if group else weight
    x = random(40, depth)
    whole = product(x)
    exact = x.double() @ weight.double().T + bias
    torch.testing.assert_close(whole.double(), exact, atol=1e-5 * depth**0.5, rtol=1e-5)
    for rows in range(41):
        assert same(product(x[40 - rows :]), whole[40 - rows :])


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("group", [1, 7, WHOLE_ROW])
def test_int8_holds_the_rounded_weights_to_the_bit(
    group: int, instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the identity read out every weight."""
    use_set(monkeypatch, instructions)
    weight = random(37, 30)
    weight[3], weight[4] = 0.0, weight[4] * 1e-30
    assert same(native.Product(weight, None, group)(torch.eye(30)), rounded(weight, group).T)


def test_half_the_bytes_where_bfloat16_holds_the_weights() -> None:
    weight = random(64, 64)
    assert native.Product(weight, None).nbytes == 2 * native.Product(weight.bfloat16().float(), None).nbytes


def test_a_view_is_taken_as_it_is() -> None:
    weight, x = random(48, 30), random(5, 60)[:, ::2]
    torch.testing.assert_close(native.Product(weight.T.contiguous().T, None)(x), x @ weight.T, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "x", [torch.zeros(2, 7), torch.zeros(8), torch.zeros(2, 8, dtype=torch.float64), torch.zeros(2, 8).int()]
)
def test_refuses_other_rows(x: torch.Tensor) -> None:
    with pytest.raises((TypeError, ValueError)):
        native.Product(torch.zeros(16, 8), None)(x)


@pytest.mark.parametrize("bias", [torch.zeros(15), torch.zeros(16, 1), torch.zeros(16, dtype=torch.float64)])
def test_refuses_other_biases(bias: torch.Tensor) -> None:
    with pytest.raises((TypeError, ValueError)):
        native.Product(torch.zeros(16, 8), bias)
