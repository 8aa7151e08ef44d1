"""The convolutions of a DFlash 2 drafter, from their formulas, and what a slot may see through them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scripted import drafter_of
from tiny import tiny_context, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.models.attention import Segment
from paceline.models.convolution import Convolution, convolve, left_neighbours
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import DFlash2
from paceline.models.transformer import Transformer, prepare

V2 = DFlash2(kernel_size=2, group_size=8, selector_rank=4, selector_top_k=5)
MASK = 63
SIZES = [(1,), (4,), (3, 1, 5), (1, 1), (2, 7, 2, 1)]


@pytest.fixture(scope="module")
def target() -> Transformer:
    return tiny_transformer(tiny_spec())


def whole_numbers(*shape: int, seed: int = 0) -> Tensor:
    """Numbers whose sums of products are exact."""
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).double()


def slow_convolution(x: Tensor, kernel: Tensor, block_rows: tuple[int, ...]) -> Tensor:
    """The sum over neighbours of the same block, row by row."""
    rows = []
    start = 0
    for count in block_rows:
        for row in range(start, start + count):
            near = range(min(kernel.shape[1], row - start + 1))
            rows.append(sum((kernel[row, o] * x[row - o] for o in near), torch.zeros(x.shape[1]).double()))
        start += count
    return torch.stack(rows)


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6])
@pytest.mark.parametrize("block_rows", SIZES)
def test_rows_with_those_to_their_left(block_rows: tuple[int, ...], kernel_size: int) -> None:
    rows = sum(block_rows)
    x, kernel = whole_numbers(rows, 6), whole_numbers(rows, kernel_size, 6, seed=1)
    lefts = left_neighbours(block_rows, kernel_size, x.device)
    assert torch.equal(convolve(x, kernel, lefts), slow_convolution(x, kernel, block_rows))


def test_what_another_block_holds_is_never_touched() -> None:
    """Not even multiplied by 0, which infinity would survive."""
    x = torch.tensor([[1.0], [torch.inf], [2.0], [3.0]])
    lefts = left_neighbours((2, 2), 2, x.device)
    assert convolve(x, torch.ones(4, 2, 1), lefts).flatten().tolist() == [1.0, torch.inf, 2.0, 5.0]


def test_kernels() -> None:
    """base + projection, channel by channel: for the input, then for the output; neighbours count up; then groups."""
    module = Convolution(12, DFlash2(3, 4, 1, 1)).double().requires_grad_(False)
    module.base_kernel.copy_(whole_numbers(2, 3, 12))
    module.kernel_projection.weight.copy_(whole_numbers(2 * 3 * 3, 12, seed=1))
    normed = whole_numbers(5, 12, seed=2)
    weight = module.kernel_projection.weight.view(2, 3, 3, 12)
    for part, kernel in enumerate(module(normed)):
        assert kernel.shape == (5, 3, 12)
        for row in range(5):
            for o in range(3):
                for channel in range(12):
                    dynamic = sum((weight[part, o, channel // 4] * normed[row]).tolist())
                    assert float(kernel[row, o, channel]) == float(module.base_kernel[part, o, channel]) + dynamic


def one_pass(drafter: Drafter, blocks: list[list[int]], contexts: list[int]) -> Tensor:
    """Hidden states of blocks behind random contexts of these lengths, in one flat batch."""
    caches = [context_cache(drafter, rows) for rows in contexts]
    counts = [len(block) for block in blocks]
    segments = [Segment(count, cache) for count, cache in zip(counts, caches, strict=True)]
    positions = torch.cat([torch.arange(rows, rows + count) for rows, count in zip(contexts, counts, strict=True)])
    tokens = torch.tensor([token for block in blocks for token in block])
    hidden: Tensor = drafter(tokens, positions, drafter.attention(segments), counts)
    return hidden


def context_cache(drafter: Drafter, rows: int) -> SequenceCache:
    weight = drafter.fc.weight
    features = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(rows)).to(weight.dtype)
    return tiny_context(drafter, features)


def test_blocks_side_by_side_do_not_see_each_other(target: Transformer) -> None:
    """Positions that go on from block to block included: 3 … 5, 6 …"""
    drafter = drafter_of(target, v2=V2)
    blocks, contexts = [[1, MASK, MASK], [2], [3, MASK], [4, MASK, MASK, MASK]], [3, 6, 1, 3]
    alone = [one_pass(drafter, [block], [rows]) for block, rows in zip(blocks, contexts, strict=True)]
    together = one_pass(drafter, blocks, contexts)
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-12, rtol=0)
    other = one_pass(drafter, [[1, MASK, 9], *blocks[1:]], contexts)
    assert not torch.equal(other[:3], together[:3])
    assert torch.equal(other[3:], together[3:])


@pytest.mark.parametrize("kernel_size", [1, 2, 3])
def test_without_attention_a_slot_sees_as_far_left_as_the_kernels_reach(target: Transformer, kernel_size: int) -> None:
    """Two pairs of convolutions in one layer reach 4 (kernel_size - 1) slots; nothing comes from the right."""
    drafter = drafter_of(target, v2=replace(V2, kernel_size=kernel_size))
    drafter.layers[0].out.weight.zero_()
    block = [7, *[MASK] * 11]
    before = one_pass(drafter, [block], [5])
    for slot in range(12):
        after = one_pass(drafter, [[*block[:slot], 11, *block[slot + 1 :]]], [5])
        moved = ((after - before).abs().amax(-1) > 1e-9).nonzero().flatten().tolist()
        # The pair around attention works on its output, which is 0 here.
        assert moved == list(range(slot, min(12, slot + 2 * (kernel_size - 1) + 1)))


def test_the_number_of_rows_has_to_be_told(target: Transformer) -> None:
    drafter = drafter_of(target, v2=V2)
    attend = drafter.attention([Segment(2, context_cache(drafter, 3))])
    for wrong in (None, [1], [2, 1]):
        with pytest.raises(AssertionError, match="another block"):
            drafter(torch.tensor([1, MASK]), torch.tensor([3, 4]), attend, wrong)


def test_kernels_that_pass_on_make_a_drafter_of_version_1(target: Transformer) -> None:
    """`==`: what is new starts as if it were not there."""
    first = drafter_of(target, block=tiny_spec(num_layers=3, tied_head=True), causal=(False,) * 3)
    second = Drafter(replace(first.spec, v2=V2), target).double().requires_grad_(False)
    second.load_state_dict(first.state_dict(), strict=False)
    assert second.couplings is not None
    for module in second.couplings.modules():
        if isinstance(module, Convolution):
            module.kernel_projection.weight.zero_()
    blocks, contexts = [[1, MASK, MASK], [2, MASK]], [4, 9]
    assert torch.equal(one_pass(first, blocks, contexts), one_pass(second, blocks, contexts))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_prepared_is_plain(dtype: torch.dtype) -> None:
    target = tiny_transformer(tiny_spec(), dtype=dtype)
    drafter = drafter_of(target, v2=V2)
    plain = one_pass(drafter, [[1, MASK, MASK]], [6])
    names = list(drafter.state_dict())
    prepare(drafter)
    near = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(one_pass(drafter, [[1, MASK, MASK]], [6]), plain, atol=10 * near, rtol=near)
    assert list(drafter.state_dict()) == names


def test_a_drafter_of_version_1_has_nothing_of_it(target: Transformer) -> None:
    drafter = drafter_of(target)
    assert tiny_drafter_spec(target.spec).v2 is None
    assert drafter.couplings is None
    assert drafter.selector is None
    assert not [name for name in drafter.state_dict() if "coupling" in name or "selector" in name]
