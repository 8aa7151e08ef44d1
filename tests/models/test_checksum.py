"""What tells weights from others."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny import tiny_spec, tiny_transformer, write_checkpoint

from paceline.models.checksum import checksum, weights_checksum


def test_every_bit_and_the_order_count() -> None:
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    assert checksum(one) == checksum(one.clone()) != checksum(other)
    assert checksum(one, other) != checksum(other, one)
    assert checksum(torch.tensor([0.0])) != checksum(torch.tensor([-0.0]))


def test_of_a_checkpoint(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        write_checkpoint(tmp_path / name, tiny_transformer(tiny_spec(), seed, torch.float32))
    one, same, other = (weights_checksum(tmp_path / name) for name in ("one", "same", "other"))
    assert one == same != other


def test_random_weights_have_none() -> None:
    assert weights_checksum(None) == 0
