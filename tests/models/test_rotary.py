"""Rotary positions against their definition in complex numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from paceline.models.rotary import Rotary, inverse_frequencies, rotate
from paceline.models.spec import Rope

DIM = 6
LLAMA31 = Rope(theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_tokens=8192)


def random_rows(count: int, heads: int, seed: int) -> Tensor:
    return torch.randn(count, heads, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_rotation_is_a_product_of_complex_numbers() -> None:
    """Element i and i + dim / 2 are one complex number, turned by position x frequency."""
    heads, positions = random_rows(7, 3, 5), torch.tensor([0, 1, 2, 3, 500, 8191, 100_000])
    turned = rotate(heads, Rotary(Rope(10000.0), DIM)(positions, torch.float64))
    numbers = torch.complex(heads[..., : DIM // 2], heads[..., DIM // 2 :])
    steps = torch.tensor([10000.0 ** (-2 * i / DIM) for i in range(DIM // 2)], dtype=torch.float64)
    angles = positions.double().unsqueeze(-1) * steps
    expected = numbers * torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
    torch.testing.assert_close(turned, torch.cat((expected.real, expected.imag), -1), atol=1e-11, rtol=0)


def test_scores_depend_on_the_distance_only() -> None:
    rotary = Rotary(LLAMA31, DIM)
    query, key = random_rows(1, 1, 1), random_rows(1, 1, 2)

    def score(q: int, k: int) -> float:
        at = [rotate(x, rotary(torch.tensor([p]), torch.float64)) for x, p in ((query, q), (key, k))]
        return float((at[0] * at[1]).sum())

    assert score(9, 4) == pytest.approx(score(70_009, 70_004), abs=1e-9)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


def test_angles_are_exact_in_half_precision() -> None:
    """cos and sin are rounded once, after an angle in float64: no position in bfloat16."""
    cos, _ = Rotary(Rope(10000.0), 2)(torch.tensor([100_001]), torch.bfloat16)
    assert float(cos[0, 0, 0]) == pytest.approx(math.cos(100_001), abs=2e-3)


@pytest.mark.parametrize("rope", [LLAMA31, Rope(10000.0, 32.0, 1.0, 4.0, 64), Rope(1e6, 4.0, 0.5, 2.0, 1024)])
def test_llama3_scaling(rope: Rope) -> None:
    """The formula as Meta's reference code states it, one frequency at a time."""
    head_dim = 64
    for index, ours in enumerate(inverse_frequencies(rope, head_dim).tolist()):
        frequency = rope.theta ** (-2 * index / head_dim)
        wavelength = 2 * math.pi / frequency
        if wavelength < rope.original_context_tokens / rope.high_freq_factor:
            expected = frequency
        elif wavelength > rope.original_context_tokens / rope.low_freq_factor:
            expected = frequency / rope.factor
        else:
            smooth = (rope.original_context_tokens / wavelength - rope.low_freq_factor) / (
                rope.high_freq_factor - rope.low_freq_factor
            )
            expected = (1 - smooth) * frequency / rope.factor + smooth * frequency
        assert ours == pytest.approx(expected, rel=1e-12)


def test_llama3_scaling_keeps_short_waves_and_stretches_long_ones() -> None:
    """Llama 3.1, head_dim 128: pair 5 turns in 17 tokens, pair 60 in 1.4 million, pair 32 in 4443."""
    frequencies = inverse_frequencies(LLAMA31, 128)
    kept, stretched = 500000.0 ** (-2 * 5 / 128), 500000.0 ** (-2 * 60 / 128) / 8
    assert float(frequencies[5]) == pytest.approx(kept, rel=1e-12)
    assert float(frequencies[60]) == pytest.approx(stretched, rel=1e-12)
    assert 500000.0 ** (-2 * 32 / 128) / 8 < float(frequencies[32]) < 500000.0 ** (-2 * 32 / 128)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_table_holds_the_very_same_numbers(dtype: torch.dtype) -> None:
    rotary, positions = Rotary(LLAMA31, 64), torch.tensor([0, 1, 77, 511, 3])
    computed = rotary(positions, dtype)
    rotary.tabulate(512, torch.empty(0, dtype=dtype))
    for one, other in zip(rotary(positions, dtype), computed, strict=True):
        assert torch.equal(one, other)
    with pytest.raises(IndexError):
        rotary(torch.tensor([512]), dtype)


def test_a_long_context_gets_no_table() -> None:
    rotary = Rotary(LLAMA31, 128)
    rotary.tabulate(131_072, torch.empty(0))
    assert rotary(torch.tensor([131_071]), torch.float32)[0].shape == (1, 1, 128)
