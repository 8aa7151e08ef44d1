"""Shapes of diffusion models that begin with random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.errors import ConfigError
from paceline.models.attention import dense_attention
from paceline.models.transformer import Transformer
from paceline.train.shape import ShapeConfig, check_fits, shape_of, shaped
from paceline.train.target import bundled_target_spec

BUNDLED = bundled_target_spec()


def shape(**settings: Any) -> tuple[int, ...]:
    return tuple(shape_of(shaped(BUNDLED, ShapeConfig(**settings))).values())


def test_without_settings_it_is_the_bundled_one() -> None:
    assert shaped(BUNDLED, ShapeConfig()) is BUNDLED
    assert shaped(BUNDLED, ShapeConfig(model_size="pace-13m")) == BUNDLED


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model_size": "DiT-S"}, (12, 384, 6, 3, 64, 960)),
        ({"model_size": "DiT-B"}, (12, 768, 12, 6, 64, 1920)),
        ({"model_size": "DiT-L"}, (24, 1024, 16, 8, 64, 2560)),
        ({"model_size": "DiT-XL"}, (28, 1152, 16, 8, 72, 2880)),
        ({"model_size": "DiT-XL", "hidden_size": 2048, "num_heads": 32}, (28, 2048, 32, 16, 64, 5120)),
        ({"num_layers": 3}, (3, 256, 4, 2, 64, 640)),
        ({"num_heads": 1}, (16, 256, 1, 1, 256, 640)),
        ({"hidden_size": 96, "num_heads": 3}, (16, 96, 3, 3, 32, 240)),
        ({"hidden_size": 100, "num_heads": 3, "head_dim": 8}, (16, 100, 3, 3, 8, 250)),
        ({"num_heads": 6, "num_kv_heads": 2, "head_dim": 4, "intermediate_size": 7}, (16, 256, 6, 2, 4, 7)),
    ],
    ids=str,
)
def test_what_is_left_out_follows_from_the_rest(settings: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert shape(**settings) == expected


def test_such_a_model_runs() -> None:
    spec = shaped(BUNDLED, ShapeConfig(num_layers=2, hidden_size=18, num_heads=3, intermediate_size=5))
    hidden = Transformer(spec)(torch.arange(4), torch.arange(4), dense_attention(1, spec.windows, causal=False)).hidden
    assert hidden.shape == (4, 18)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"model_size": "DiT-H"}, "model_size is 'DiT-H'. It must be 'pace-13m' or 'DiT-S' or 'DiT-B' or 'DiT-L' or"),
        ({"num_heads": 3}, "hidden_size is 256, and num_heads is 3. Give a multiple of the heads, or head_dim."),
        (
            {"num_heads": 6, "num_kv_heads": 4, "head_dim": 8},
            "num_heads is 6, and num_kv_heads is 4. The first must be",
        ),
        ({"head_dim": 9}, "head_dim is 9, of hidden_size 256 and num_heads 4. Rotary positions need an even number."),
        ({"hidden_size": 36}, "head_dim is 9, of hidden_size 36 and num_heads 4."),
        ({"hidden_size": 0}, "hidden_size is 0. It must be an integer of at least 1, or null."),
        ({"num_layers": 5000}, "num_layers is 5000. It must be an integer from 1 to 4096, or null."),
        ({"num_heads": 2.0}, "num_heads is 2.0"),
    ],
)
def test_shapes_that_cannot_be(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        shape(**settings)
    assert told in str(refused.value)
    assert refused.value.param in {*settings, "head_dim", "hidden_size"}


@pytest.mark.parametrize("size", [{}, {"hidden_size": 90, "num_heads": 3}, {"num_heads": 6, "head_dim": 4}])
def test_training_takes_three_numbers_of_four_bytes_for_each_weight(size: dict[str, int]) -> None:
    """As the parameters of the model itself, where norms are left out."""
    spec = shaped(BUNDLED, ShapeConfig(num_layers=2, **size))
    weights = sum(each.numel() for each in Transformer(spec).parameters() if each.dim() > 1)
    check_fits(spec, 12 * weights)
    with pytest.raises(ConfigError, match=r"with num_layers 2, .*; this machine has .* Choose a smaller shape"):
        check_fits(spec, 12 * weights - 1)


def test_a_shape_beyond_all_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"takes at least [\d,]+\.\d GB with num_layers 16, hidden_size 1000000,"):
        check_fits(shaped(BUNDLED, ShapeConfig(hidden_size=1_000_000)), 1 << 40)
