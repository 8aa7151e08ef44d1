"""Masks, and the blocks of rows, against the definition of which key is seen."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from paceline.models import masks
from paceline.models.masks import blocks, visible

CPU = torch.device("cpu")


def sees(query: int, key: int, causal: bool, window: int | None) -> bool:
    """The definition: nothing later where causal, nothing `window` or more away where there is one."""
    return not (causal and key > query) and (window is None or abs(query - key) < window)


def table_of(rows: int, past: int, causal: bool, window: int | None) -> Tensor:
    grid = itertools.product(range(past, past + rows), range(past + rows))
    return torch.tensor([sees(query, key, causal, window) for query, key in grid]).view(rows, past + rows)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3, 5, 100])
@pytest.mark.parametrize(("rows", "past"), [(1, 0), (1, 1), (1, 4), (1, 9), (4, 0), (4, 3), (6, 11)])
def test_the_mask_is_the_definition(rows: int, past: int, causal: bool, window: int | None) -> None:
    mask, table = visible(rows, past, causal, window), table_of(rows, past, causal, window)
    if mask is None:
        assert table.all()
    else:
        assert not table.all(), "a mask that hides nothing costs time"
        assert torch.equal(mask, table)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 2, 3, 5, 9, 100])
@pytest.mark.parametrize("past", [0, 1, 5])
def test_blocks_hold_every_row_once_and_the_keys_in_reach(
    past: int, window: int | None, causal: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 4 rows, segments of 1 to 13; a device without memory stands for any that is not a CPU."""
    monkeypatch.setattr(masks, "_BLOCK_ROWS", 4)
    for rows in range(1, 14):
        table = table_of(rows, past, causal, window)
        if device == "meta" and not (causal or window is None):
            continue  # such masks are made of values
        parts = blocks(rows, past, causal, window, torch.float32, torch.device(device))
        assert [row for part in parts for row in range(part.rows.start, part.rows.stop)] == list(range(rows))
        for part in parts:
            outside = torch.ones(past + rows, dtype=torch.bool)
            outside[part.keys] = False
            assert not table[part.rows][:, outside].any()
            if part.mask is None:
                assert table[part.rows, part.keys].all()
            elif device == "cpu":
                assert torch.equal(part.mask == 0, table[part.rows, part.keys])
                assert torch.equal(part.mask == -torch.inf, ~table[part.rows, part.keys])
            else:
                assert part.mask.shape == table[part.rows, part.keys].shape


@pytest.mark.parametrize("window", [3, 5])
def test_a_block_reaches_no_further_than_its_window(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_BLOCK_ROWS", 4)
    for rows, past in ((1, 20), (4, 20), (13, 20)):
        for part in blocks(rows, past, True, window, torch.float64, CPU):
            assert part.keys.stop - part.keys.start == part.rows.stop - part.rows.start + window - 1


def test_few_rows_are_one_block_and_a_cpu_takes_unmasked_rows_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_BLOCK_ROWS", 4)
    assert [len(blocks(rows, 3, True, None, torch.float64, CPU)) for rows in (1, 4, 5, 9)] == [1, 1, 2, 3]
    assert len(blocks(13, 3, False, None, torch.float64, CPU)) == 1
    asked, elsewhere = (torch.float32, torch.bfloat16), torch.device("meta")
    assert [len(blocks(13, 3, False, None, dtype, elsewhere)) for dtype in asked] == [4, 1]


def test_all_masks_of_a_segment_are_one_piece_of_memory() -> None:
    parts = blocks(3000, 0, True, None, torch.float32, CPU)
    found = [part.mask for part in parts if part.mask is not None]
    assert len(found) == 12
    assert len({mask.untyped_storage().data_ptr() for mask in found}) == 1
    assert found[0].untyped_storage().nbytes() == 256 * (11 * 256 + 256) * 4
