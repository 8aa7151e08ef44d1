"""Masked blocks behind random anchors in finished answers: what a drafter in training sees, and what it says.

A block with anchor a holds [token a, MASK, …]; it sees the target's features strictly before a and its own slots,
never another block. Slot j is to say the token at a + j. Knows nothing of losses or steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.models.attention import Attend
from paceline.models.drafter import Drafter

__all__ = ["Blocks", "Opened", "Predictions", "block_mask", "logits_of", "open_blocks", "predict"]


class Blocks(NamedTuple):
    """A batch of answers, and the blocks to fill in them.

    Attributes:
        tokens: [rows, width], prompts and answers.
        tapped: [rows, width, features], the target's features along them.
        anchors: [rows, blocks], positions.
        lengths: [rows], real tokens of each row.
        slots: [block length], 0, 1, …
    """

    tokens: Tensor
    tapped: Tensor
    anchors: Tensor
    lengths: Tensor
    slots: Tensor


class Predictions(NamedTuple):
    """What the drafter says of the slots behind the anchors, and what is right.

    Attributes:
        logits: [rows, blocks, length - 1, vocab].
        targets: [rows, blocks, length - 1], the tokens that follow the anchors.
        real: the same shape, False behind the end of an answer.
        positions: the same shape, where the tokens stand.
    """

    logits: Tensor
    targets: Tensor
    real: Tensor
    positions: Tensor


class Opened(NamedTuple):
    """Blocks with their context computed, to be filled in one pass or in several.

    Attributes:
        masked: [rows, blocks, length], the anchors and mask tokens behind them.
        targets, real, positions: [rows, blocks, length - 1], as in `Predictions`.
        states: tokens [rows, blocks, length] -> hidden states [rows, blocks, length - 1, hidden].
        fill: the same -> logits [rows, blocks, length - 1, vocab].
        mask_token_id: what stands in an empty slot.
    """

    masked: Tensor
    targets: Tensor
    real: Tensor
    positions: Tensor
    states: Callable[[Tensor], Tensor]
    fill: Callable[[Tensor], Tensor]
    mask_token_id: int


def open_blocks(drafter: Drafter, blocks: Blocks) -> Opened:
    """Compute the context of all blocks."""
    rows, width = blocks.tokens.shape
    positions = blocks.anchors.unsqueeze(-1) + blocks.slots
    inside = positions.clamp_max(width - 1)
    truth = blocks.tokens.gather(1, inside.flatten(1)).view(inside.shape)
    masked = torch.where(blocks.slots == 0, truth, drafter.spec.mask_token_id)
    keys, values = drafter.context(blocks.tapped.flatten(0, 1).float(), torch.arange(width).repeat(rows))
    attend = _block_attention(keys, values, block_mask(blocks.anchors, len(blocks.slots), width), rows)
    behind = positions[:, :, 1:]

    block_rows = [len(blocks.slots)] * blocks.anchors.numel()

    def states(tokens: Tensor) -> Tensor:
        hidden: Tensor = drafter(tokens.flatten(), positions.flatten(), attend, block_rows)
        return hidden.view(*positions.shape, -1)[:, :, 1:]

    def fill(tokens: Tensor) -> Tensor:
        return logits_of(drafter, states(tokens))

    real = behind < blocks.lengths.view(-1, 1, 1)
    return Opened(masked, truth[:, :, 1:], real, behind, states, fill, drafter.spec.mask_token_id)


def logits_of(drafter: Drafter, states: Tensor) -> Tensor:
    """[rows, blocks, slots, hidden] -> [rows, blocks, slots, vocab]."""
    return drafter.logits(states.flatten(0, 2)).view(*states.shape[:3], -1)


def predict(drafter: Drafter, blocks: Blocks) -> Predictions:
    """Fill all blocks in one pass."""
    opened = open_blocks(drafter, blocks)
    return Predictions(opened.fill(opened.masked), opened.targets, opened.real, opened.positions)


def block_mask(anchors: Tensor, length: int, width: int) -> Tensor:
    """What each slot sees, bool [rows, blocks * length, width + blocks * length].

    Keys are the context features at positions 0 … width - 1, then all slots. A slot of a block with anchor a sees
    features before a and the slots of its own block:

                     features 0 1 2 3 | block a=2 | block a=1
        block a=2             x x . . |  x x x    |  . . .
        block a=1             x . . . |  . . .    |  x x x
    """
    rows, blocks = anchors.shape
    owner = torch.arange(blocks).repeat_interleave(length)
    before = torch.arange(width) < anchors[:, owner].unsqueeze(-1)
    own = (owner.unsqueeze(1) == owner.unsqueeze(0)).expand(rows, -1, -1)
    return torch.cat((before, own), -1)


def _block_attention(context_keys: Tensor, context_values: Tensor, mask: Tensor, rows: int) -> Attend:
    """Every answer's slots over its context rows [layers, rows * width, kv_heads, head_dim] and its slots."""

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        def joined(context: Tensor, own: Tensor) -> Tensor:
            both = [part.reshape(rows, -1, *own.shape[1:]).to(context.dtype) for part in (context, own)]
            return torch.cat(both, 1).transpose(1, 2)

        k, v = joined(context_keys[layer], keys), joined(context_values[layer], values)
        q = queries.reshape(rows, -1, *queries.shape[1:]).transpose(1, 2).to(k.dtype)
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.unsqueeze(1), enable_gqa=True)
        return output.transpose(1, 2).flatten(2).flatten(0, 1)

    return attend
