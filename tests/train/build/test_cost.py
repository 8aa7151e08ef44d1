"""Formulas of cost against counted operations."""

from __future__ import annotations

import torch
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch.utils.flop_counter import FlopCounterMode

from paceline.models.attention import dense_attention
from paceline.train.blocks import Blocks, predict
from paceline.train.build.cost import drafter_flops, forward_flops, training_flops


def test_a_pass_costs_what_torch_counts() -> None:
    spec = tiny_spec(num_layers=3)
    model = tiny_transformer(spec, dtype=torch.float32)
    tokens = torch.zeros(40, dtype=torch.long)
    with FlopCounterMode(display=False) as counted:
        model.head(model(tokens, torch.arange(40), dense_attention(1, spec.windows)).hidden)
    # torch does not see into the kernel of attention on a CPU; what that adds is the next test's.
    assert counted.get_total_flops() == 40 * forward_flops(spec, 0)


def test_a_key_costs_two_products_in_every_head() -> None:
    spec = tiny_spec(num_layers=3)
    queries = torch.zeros(spec.num_heads, 1, spec.head_dim)
    keys = torch.zeros(spec.num_heads, spec.head_dim, 10)
    with FlopCounterMode(display=False) as counted:
        torch.bmm(torch.bmm(queries, keys), keys.mT)
    assert counted.get_total_flops() * spec.num_layers == forward_flops(spec, 10) - forward_flops(spec, 0)


def test_learning_costs_three_passes_over_half_a_window() -> None:
    assert training_flops(tiny_spec(), 64) == 3 * forward_flops(tiny_spec(), 32)


def test_filling_blocks_costs_what_torch_counts() -> None:
    target = tiny_transformer(tiny_spec(), dtype=torch.float32)
    drafter = tiny_drafter(tiny_drafter_spec(target.spec), target)
    width, slots, blocks = 24, 4, 3
    tapped = torch.zeros(1, width, drafter.fc.weight.shape[1])
    tokens = torch.zeros(1, width, dtype=torch.long)
    batch = Blocks(tokens, tapped, torch.tensor([[2, 7, 11]]), torch.tensor([width]), torch.arange(slots))
    with FlopCounterMode(display=False) as counted:
        predict(drafter, batch)
    rows = slots * blocks
    anchors = 2 * blocks * target.spec.hidden_size * target.spec.vocab_size  # a block's first row needs no head
    spec = drafter.spec.block
    attention = rows * (forward_flops(spec, width + rows) - forward_flops(spec, 0))
    assert counted.get_total_flops() == drafter_flops(drafter.spec, width, rows) - anchors - attention
