"""Which passes are native: few rows over caches, of a prepared float32 model."""

from __future__ import annotations

import pytest
import torch
from compiled import Piece, filled, needs_native, packed, read
from tiny import tiny_spec, tiny_transformer
from torch import Tensor

from paceline.models.attention import dense_attention
from paceline.models.few_rows import FewRows
from paceline.models.linear import MOST_ROWS
from paceline.models.transformer import Transformer, prepare

pytestmark = needs_native


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every pass whether it was native."""
    found: list[bool] = []
    plain = FewRows.__call__

    def counting(self: FewRows, *arguments: object) -> object:
        output = plain(self, *arguments)  # type: ignore[arg-type]
        found.append(output is not None)
        return output

    monkeypatch.setattr(FewRows, "__call__", counting)
    return found


def run(model: Transformer, rows: int) -> Tensor:
    return read(model, [Piece([1] * rows, 3)], [filled(model, 3)]).hidden


def test_few_rows_are_native_and_many_are_not(asked: list[bool]) -> None:
    model = packed(tiny_spec())
    for rows in (1, MOST_ROWS, MOST_ROWS + 1):
        run(model, rows)
    assert asked == [True, True, False]


def test_attention_without_a_cache_is_not(asked: list[bool]) -> None:
    model = packed(tiny_spec())
    with torch.inference_mode():
        model(torch.tensor([1, 2]), torch.arange(2), dense_attention(1, (None, None)))
    assert asked == [False]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_not(dtype: torch.dtype, asked: list[bool]) -> None:
    model = tiny_transformer(tiny_spec(), dtype=dtype)
    prepare(model)
    run(model, 1)
    assert asked == []
    assert model.packed_bytes == 0


def test_a_plain_model_is_not(asked: list[bool]) -> None:
    run(tiny_transformer(tiny_spec(), dtype=torch.float32), 1)
    assert asked == []
