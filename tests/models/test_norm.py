"""RMSNorm, plain and fast, against its definition in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paceline.models.norm import HeadNorm, RmsNorm

EPS = 1e-6


def defined(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


def rows_of(size: int, scale: float) -> Tensor:
    return scale * torch.randn(9, size, generator=torch.Generator().manual_seed(size))


def weighted(norm: RmsNorm | HeadNorm) -> None:
    generator = torch.Generator().manual_seed(1)
    for parameter in norm.parameters():
        parameter.data = 1 + 0.3 * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e-3, 1e4, 0.0])
@pytest.mark.parametrize("size", [8, 255, 1024])
def test_both_forms_equal_the_definition(size: int, scale: float) -> None:
    """Rows of any length, those of zeros and those far below eps included."""
    norm = RmsNorm(size, EPS)
    weighted(norm)
    x = rows_of(size, scale)
    expected = defined(x, norm.weight.detach()).float()
    torch.testing.assert_close(norm(x).detach(), expected, atol=1e-6, rtol=3e-6)
    norm.prepare()
    torch.testing.assert_close(norm(x), expected, atol=1e-6, rtol=3e-6)


def test_head_norm_of_queries_and_keys_at_once() -> None:
    norm = HeadNorm(8, 4, 2, EPS)
    weighted(norm)
    x = torch.randn(5, 6, 8, generator=torch.Generator().manual_seed(0))
    expected = torch.cat((defined(x[:, :4], norm.q.detach()), defined(x[:, 4:], norm.k.detach())), 1).float()
    torch.testing.assert_close(norm(x).detach(), expected, atol=1e-6, rtol=3e-6)
    norm.prepare()
    torch.testing.assert_close(norm(x), expected, atol=1e-6, rtol=3e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_keep_the_plain_form(dtype: torch.dtype) -> None:
    norm = RmsNorm(16, EPS)
    weighted(norm)
    norm.to(dtype)
    x = rows_of(16, 1.0).to(dtype)
    plain = norm(x)
    norm.prepare()
    assert torch.equal(norm(x), plain)
    assert plain.dtype == dtype


def test_half_precision_is_close_to_the_definition() -> None:
    """The mean of squares is not taken in bfloat16."""
    norm = RmsNorm(4096, EPS).to(torch.bfloat16)
    x = rows_of(4096, 3.0).bfloat16()
    torch.testing.assert_close(norm(x).double(), defined(x, norm.weight.detach()), atol=0.0, rtol=0.012)


def test_huge_rows_do_not_overflow_in_the_fast_form() -> None:
    norm = RmsNorm(16, EPS)
    x = torch.full((1, 16), 3e18)
    norm.prepare()
    torch.testing.assert_close(norm(x), torch.ones(1, 16))
