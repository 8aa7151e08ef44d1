"""The packed matrix product against the plain one."""

from __future__ import annotations

import pytest
import torch

from paceline import native
from paceline.models.linear import Linear, _held_by_half
from paceline.models.rounding import WHOLE_ROW, coded, rounded

SHAPES = ((24, 16), (512, 256), (100, 37), (1, 8), (2048, 160))


@pytest.fixture(params=["torch", "native"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What packs: torch alone, or the native product where it is there."""
    if request.param == "torch":
        monkeypatch.setenv(native.VARIABLE, "off")
    elif native.why_not() is not None:
        pytest.skip(native.why_not())
    return str(request.param)


def filled(out_features: int, in_features: int, bias: bool, dtype: torch.dtype) -> Linear:
    generator = torch.Generator().manual_seed(out_features)
    linear = Linear(out_features=out_features, in_features=in_features, bias=bias)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return linear.to(dtype).requires_grad_(False)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "eps"), [(torch.float32, 2e-6), (torch.bfloat16, 8e-3), (torch.float64, 1e-14)])
def test_prepared_equals_the_definition(shape: tuple[int, int], bias: bool, dtype: torch.dtype, eps: float) -> None:
    """Within rounding of the result: `eps` times the sum of the absolute products."""
    linear = filled(*shape, bias, dtype)
    for rows in (1, 2, 7, 16, 33):
        x = torch.randn(rows, shape[1], generator=torch.Generator().manual_seed(rows)).to(dtype)
        exact = x.double() @ linear.weight.double().T + (0 if linear.bias is None else linear.bias.double())
        scale = x.double().abs() @ linear.weight.double().abs().T + 1.0
        before = linear(x)
        linear.prepare()
        for product in (before, linear(x)):
            assert product.dtype == dtype
            assert ((product.double() - exact).abs() <= eps * scale).all()


def test_float64_is_never_packed() -> None:
    """The precision of the proofs: prepared or not, the very same numbers."""
    linear = filled(40, 24, True, torch.float64)
    x = torch.randn(5, 24, dtype=torch.float64)
    plain = linear(x)
    linear.prepare()
    assert torch.equal(linear(x), plain)


def test_prepare_is_idempotent_and_keeps_the_weight() -> None:
    linear = filled(64, 32, False, torch.float32)
    weight = linear.weight.clone()
    x = torch.randn(4, 32)
    linear.prepare()
    once = linear(x)
    linear.prepare()
    assert torch.equal(linear(x), once)
    assert torch.equal(linear.weight, weight)
    assert list(linear.state_dict()) == ["weight"], "the packed form is never saved"


def test_read_bytes_are_those_of_the_form_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "off")
    plain = filled(64, 32, True, torch.float32)
    assert plain.read_bytes == 4 * (64 * 32 + 64)
    half = filled(64, 32, True, torch.float32)
    half.weight.copy_(half.weight.half())
    half.prepare()
    kept = 2 if _held_by_half(half.weight) else 4  # not on every machine
    assert half.read_bytes == kept * 64 * 32 + 4 * 64
    brain = filled(64, 32, False, torch.bfloat16)
    brain.prepare()
    assert brain.read_bytes == 2 * 64 * 32


@pytest.mark.parametrize("group", [4, 32, WHOLE_ROW])
def test_int8_computes_with_the_rounded_weight(group: int) -> None:
    linear, plain = (filled(40, 70, True, torch.float32) for _ in range(2))
    plain.weight.copy_(rounded(plain.weight, group))
    x = torch.randn(5, 70, generator=torch.Generator().manual_seed(0))
    linear.arithmetic = native.Arithmetic("weights", group) if group else native.EXACT
    linear.prepare()
    torch.testing.assert_close(linear(x), plain(x), atol=2e-5, rtol=0)


def test_w8a8_computes_with_codes_of_both() -> None:
    linear = filled(40, 70, True, torch.float32)
    x = torch.randn(5, 70, generator=torch.Generator().manual_seed(0))
    (own, own_scales), (codes, scales) = coded(x), coded(linear.weight)
    linear.arithmetic = native.Arithmetic("int8")
    linear.prepare()
    product = (own.double() @ codes.double().T).float() * (scales.T * own_scales) + linear.bias
    torch.testing.assert_close(linear(x), product, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("group", "nbytes"), [(0, 4 * 64 * 32), (WHOLE_ROW, 64 * 34), (8, 64 * (32 + 8))])
def test_read_bytes_of_the_native_forms(group: int, nbytes: int, form: str) -> None:
    if form == "torch":
        return
    linear = filled(64, 32, True, torch.float32)
    linear.arithmetic = native.Arithmetic("weights", group) if group else native.EXACT
    linear.prepare()
    assert linear.read_bytes == nbytes + 4 * 64


def test_a_row_hardly_depends_on_how_many_stand_beside_it() -> None:
    """Up to rounding: what near-ties in float32 come from."""
    linear = filled(256, 96, False, torch.float32)
    linear.prepare()
    x = torch.randn(16, 96, generator=torch.Generator().manual_seed(0))
    whole = linear(x)
    for rows in range(1, 17):
        torch.testing.assert_close(linear(x[:rows]), whole[:rows], atol=2e-5, rtol=0)


class TestWeightsKeptAsFloat16:
    """The values of bfloat16 checkpoints, computed in float32."""

    @pytest.mark.parametrize("bias", [False, True])
    def test_the_sums_are_those_of_float32(self, bias: bool) -> None:
        """No further from the exact result than the plain float32 product, up to its own rounding: 2e-6 as above."""
        linear = filled(320, 160, bias, torch.float32)
        linear.weight.data = (0.02 * linear.weight.data).bfloat16().float()
        for rows in (1, 3, 16, 200):
            x = torch.randn(rows, 160, generator=torch.Generator().manual_seed(rows))
            exact = x.double() @ linear.weight.double().T + (0 if linear.bias is None else linear.bias.double())
            scale = x.double().abs() @ linear.weight.double().abs().T + 1.0
            linear.prepare()
            product = linear(x)
            assert product.dtype == torch.float32
            assert ((product.double() - exact).abs() <= 2e-6 * scale).all()

    def test_only_weights_that_float16_holds(self) -> None:
        held = torch.tensor([[1.0, -0.0078125, 65504.0, 2.0**-20, 0.0]])
        assert _held_by_half(held)
        for value in (0.1, 65536.0, float("inf"), float("nan")):
            assert not _held_by_half(torch.tensor([[value]]))
        assert not _held_by_half(held.double())

    def test_a_trained_float32_weight_is_computed_from_all_its_bits(self) -> None:
        linear = filled(64, 32, False, torch.float32)
        x = torch.eye(32)
        linear.prepare()
        assert torch.equal(linear(x), linear.weight.T)
