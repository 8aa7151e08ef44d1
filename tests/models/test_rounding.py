"""Rounding to int8: the grid, its scale, and groups; codes of whole rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paceline.models.rounding import WHOLE_ROW, coded, rounded


def by_definition(row: list[float], group: int) -> list[float]:
    """Group by group, number by number."""
    found = []
    for start in range(0, len(row), group):
        own = row[start : start + group]
        wanted = torch.tensor(max(map(abs, own))) / 127
        scale = wanted.bfloat16()
        if scale.float() < wanted:
            scale = torch.nextafter(scale, torch.tensor(float("inf"), dtype=torch.bfloat16))
        step = scale.double().item()
        found += [round(number / step) * step if step else 0.0 for number in own]
    return found


def weights(out: int, inputs: int, seed: int = 0) -> Tensor:
    return torch.randn(out, inputs, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("group", [1, 3, 8, 32, WHOLE_ROW])
@pytest.mark.parametrize("inputs", [1, 8, 13, 70])
def test_it_is_its_definition(inputs: int, group: int) -> None:
    weight = weights(5, inputs)
    weight[1] = 0.0
    expected = [by_definition(row, min(group, inputs)) for row in weight.double().tolist()]
    assert rounded(weight, group).tolist() == expected


def test_an_error_is_at_most_half_a_step() -> None:
    weight = weights(7, 64, 1)
    step = weight.abs().amax(1, keepdim=True) / 127 * (1 + 2**-7)
    assert ((rounded(weight, WHOLE_ROW) - weight).abs() <= step / 2).all()


def test_smaller_groups_are_nearer() -> None:
    weight = weights(64, 256, 2)
    errors = [(rounded(weight, group) - weight).square().mean().item() for group in (WHOLE_ROW, 64, 32, 1)]
    assert errors == sorted(errors, reverse=True)


def test_codes_of_rows_are_their_definition() -> None:
    x = weights(6, 37, 3)
    x[1], x[2] = 0.0, x[2] * 1e-39
    codes, scales = coded(x)
    for row, found, scale in zip(x, codes, scales, strict=True):
        largest = row.abs().max()
        factor = torch.tensor(127.0) / largest if largest >= 1e-36 else torch.tensor(0.0)
        assert found.tolist() == [round(float(number * factor)) for number in row]
        assert scale.item() == (largest / 127 if largest >= 1e-36 else 0.0)
    assert codes.abs().max() == 127


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_a_row_that_is_not_sound_has_a_scale_that_is_none(number: float) -> None:
    x = weights(3, 5)
    x[1, 2] = number
    codes, scales = coded(x)
    assert scales.isnan().flatten().tolist() == [False, True, False]
    assert codes[1].tolist() == [0.0] * 5


def test_no_inputs_have_no_codes() -> None:
    codes, scales = coded(torch.zeros(2, 0))
    assert codes.shape == (2, 0)
    assert scales.flatten().tolist() == [0.0, 0.0]
