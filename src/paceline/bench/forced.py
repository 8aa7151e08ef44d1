"""A finished answer fed through the target once more, in rows of its own choice: teacher forcing.

What a check must not share with decoding is its passes, so the caches and blocks of the answer are not used. Does not
know what is checked.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import torch

from paceline.decode.sequence import Sequence
from paceline.decode.target import Target
from paceline.models.attention import Segment, cached_attention
from paceline.models.transformer import Output

__all__ = ["ROWS", "read_forced"]

ROWS = 128
"""Rows of a pass, and rows that a check scores at a time: bounds the memory."""


@torch.inference_mode()
def read_forced(target: Target, sequence: Sequence, tokens: Many[int]) -> Output:
    """Read the prompt and all tokens of an answer but the last; fills the cache of the sequence.

    Args:
        sequence: opened for the prompt, nothing read or committed.
        tokens: of the answer; not empty.

    Returns:
        `hidden` [tokens, hidden], from which each token of the answer was drawn, and `features`
        [prompt_tokens + tokens - 1, taps * hidden] of everything read, None without taps.
    """
    ids = [*sequence.tokens, *tokens][:-1]
    spec, parts = target.model.spec, list[Output]()
    for start in range(0, len(ids), ROWS):
        rows = torch.tensor(ids[start : start + ROWS], device=target.device)
        positions = torch.arange(start, start + len(rows), device=target.device)
        attend = cached_attention([Segment(len(rows), sequence.cache)], (True,) * spec.num_layers, spec.windows)
        parts.append(target.model(rows, positions, attend, target.taps))
        sequence.cache.advance(len(rows))
    tapped = [part.features for part in parts if part.features is not None]
    hidden = torch.cat([part.hidden for part in parts])[sequence.prompt_tokens - 1 :]
    return Output(hidden, torch.cat(tapped) if tapped else None)
