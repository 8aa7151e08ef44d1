"""What a drafter knows of the text: keys and values that it makes of the target's features, token by token.

Features of committed tokens wait at their sequence until drafts are wanted, and become context then, all at once.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import torch

from paceline.cache.store import SequenceCache
from paceline.decode.sequence import Sequence
from paceline.models.drafter import Drafter

__all__ = ["context_of", "new_context", "remember"]

_ROOM = 256
"""Tokens of an answer that fit in before the cache has to grow."""


def new_context(drafter: Drafter, prompt_tokens: int) -> SequenceCache:
    """An empty one."""
    block, weight = drafter.spec.block, drafter.norm.weight
    shape = (block.num_layers, block.num_kv_heads, block.head_dim, prompt_tokens + _ROOM)
    return SequenceCache(*shape, weight.dtype, weight.device)


def context_of(sequence: Sequence) -> SequenceCache:
    """The drafter's keys and values for the committed tokens."""
    assert sequence.draft_cache is not None, "the sequence was opened by another method"
    return sequence.draft_cache


@torch.inference_mode()
def remember(drafter: Drafter, sequences: Many[Sequence]) -> None:
    """Turn the features of tokens that were committed since into context."""
    behind = [sequence for sequence in sequences if sequence.unread]
    if behind:
        drafter.context.extend([(sequence.unread, context_of(sequence)) for sequence in behind])
    for sequence in behind:
        sequence.unread.clear()
