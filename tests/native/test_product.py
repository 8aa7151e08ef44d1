"""Products on their own: against float64, row by row, and what they refuse."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from compiled import SETS, needs_native, same, use_set

from paceline import native
from paceline.models.rounding import WHOLE_ROW, coded, rounded
from paceline.native import Arithmetic

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
    product = native.Product(weight, bias, Arithmetic("weights", group) if group else native.EXACT)
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
    assert same(native.Product(weight, None, Arithmetic("weights", group))(torch.eye(30)), rounded(weight, group).T)


SHAPES = [(1, 1), (3, 37), (31, 16), (33, 40), (256, 64), (301, 130), (1000, 16)]


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize(("depth", "outputs"), SHAPES)
def test_factors_of_bfloat16(depth: int, outputs: int, instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_set(monkeypatch, instructions)
    weight, bias, x = random(outputs, depth), random(outputs), random(300, depth)
    x[:, 0] *= 1e3
    product = native.Product(weight, bias, Arithmetic("bfloat16"))
    exact = x.bfloat16().double() @ weight.bfloat16().double().T + bias
    sizes = x.bfloat16().double().abs() @ weight.bfloat16().double().T.abs() + bias.abs()
    whole = product(x)
    assert ((whole - exact).abs() <= 2**-23 * (depth + 2) * sizes).all()
    for rows in (*range(1, 36), 48, 255, 256, 257):
        assert same(product(x[300 - rows :]), whole[300 - rows :]), rows


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize(("depth", "outputs"), SHAPES)
def test_factors_of_int8(depth: int, outputs: int, instructions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, with every instruction set: sums of codes are exact."""
    use_set(monkeypatch, instructions)
    weight, bias, x = random(outputs, depth), random(outputs), random(300, depth)
    weight[outputs // 2], x[7], x[8] = 0.0, 0.0, x[8] * 1e-39
    product = native.Product(weight, bias, Arithmetic("int8"))
    (own, own_scales), (codes, scales) = coded(x), coded(weight)
    whole = product(x)
    assert same(whole, (own.double() @ codes.double().T).float() * (scales.T * own_scales) + bias)
    for rows in (*range(1, 36), 48, 255, 256, 257):
        assert same(product(x[300 - rows :]), whole[300 - rows :]), rows


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("rounding", ["bfloat16", "int8"])
@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_row_that_is_not_sound_stays_so_alone(
    number: float, rounding: Literal["bfloat16", "int8"], instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_set(monkeypatch, instructions)
    product, x = native.Product(random(40, 70).abs() + 0.1, None, Arithmetic(rounding)), random(20, 70)
    sound = product(x)
    x[3, 9] = number
    found = product(x)
    assert not found[3].isfinite().any()
    assert same(found[[0, 1, 2, *range(4, 20)]], sound[[0, 1, 2, *range(4, 20)]])


def test_refuses_sums_that_might_overflow() -> None:
    with pytest.raises(ValueError, match="overflow"):
        native.Product(torch.zeros(1, 66_400), None, Arithmetic("int8"))
    native.Product(torch.zeros(1, 66_300), None, Arithmetic("int8"))


@pytest.mark.parametrize("arithmetic", [("float8", 0), ("weights", 0), ("int8", 3), ("none", -1)])
def test_refuses_other_arithmetics(arithmetic: Any) -> None:
    with pytest.raises(ValueError, match=r"rounding|group"):
        native.Product(torch.zeros(16, 8), None, arithmetic)


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
