"""Memory of tensors that live at once, counted by hand."""

from __future__ import annotations

import torch
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from paceline.bench.footprint import TensorMemory, weight_bytes


def test_the_most_that_lives_at_once() -> None:
    with TensorMemory() as memory:
        first = torch.zeros(100, dtype=torch.float64)  # 800
        second = first + 1  # 1600 together
        del first
        third = second[:50] * 2  # a view, and 400: 1200 together
        del second, third
        torch.ones(3)
    assert memory.peak_bytes == 1600


def test_what_was_there_before_is_not_counted_and_neither_is_a_view_of_it() -> None:
    weight = torch.ones(10, 10)
    with TensorMemory() as memory:
        held = [weight.t(), weight[2:], weight.unbind()]
        weight.add_(1)
        assert memory.peak_bytes == 0
        held.append(torch.cat([weight, weight]))
    assert memory.peak_bytes == 800


def test_packed_weights_show_no_memory_and_their_product_does() -> None:
    packed = torch.ones(4, 4).to_mkldnn()
    with TensorMemory() as memory:
        product = packed.to_dense()
    assert memory.peak_bytes == product.nbytes == 64


def test_shared_weights_count_once() -> None:
    target = tiny_transformer(tiny_spec(num_layers=3))
    drafter = tiny_drafter(tiny_drafter_spec(target.spec), target)
    one = nn.Linear(3, 5)
    assert weight_bytes([one, one]) == 4 * 20
    own = {id(each): each.nbytes for module in (target, drafter) for each in module.parameters()}
    assert weight_bytes([target, drafter]) == sum(own.values())


def test_scores_of_an_attention_that_is_not_fused_are_seen() -> None:
    q = torch.zeros(1, 2, 64, 4)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), TensorMemory() as memory:
        scaled_dot_product_attention(q, q, q)
    assert memory.peak_bytes >= 2 * 64 * 64 * 4
