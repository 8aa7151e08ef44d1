"""DFlash: a block-diffusion drafter proposes, the target verifies (arXiv 2602.06036; one denoising step).

    propose   the drafter fills [anchor, MASK, …] in one pass, conditioned on the target's features
    read      the target computes its own token after the anchor and after every draft, in one pass
    agree     the longest prefix of the drafts that the target chose too
    commit    these and the target's next token; caches and features of exactly these stay

The drafter draws with the target's noise and processors, so its proposals are the target's tokens wherever both
distributions agree; the text is the target's in any case (docs/equality.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.completion import Round
from paceline.decode.agree import longest_prefix
from paceline.decode.sequence import Sequence, flat
from paceline.decode.target import Reading, Target
from paceline.models.attention import Segment
from paceline.models.drafter import Drafter
from paceline.request import Sampling

__all__ = ["DFlash"]


@dataclass(frozen=True, slots=True)
class DFlash:
    """One chain of drafts per round. `block_size` counts the anchor: at most block_size - 1 drafts, one bonus token."""

    target: Target
    drafter: Drafter
    block_size: int
    name = "dflash"

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded; see `Target.check`."""
        self.target.check(prompt, sampling, suffix)

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Sequence:
        """A new sequence with room for the drafter's context; see `Target.open`."""
        assert not suffix, "`check` refuses holes"
        block, weight = self.drafter.spec.block, self.drafter.fc.weight
        shape = (block.num_layers, block.num_kv_heads, block.head_dim, len(prompt) + 256)
        return self.target.open(prompt, sampling, seed, SequenceCache(*shape, weight.dtype, weight.device))

    @torch.inference_mode()
    def prefill(self, sequences: Many[Sequence]) -> list[tuple[int, ...]]:
        """Read the prompts, commit the first token of each answer, and remember the prompts for the drafter."""
        self._remember(sequences, self.target.prefill(sequences))
        return [sequence.new_tokens for sequence in sequences]

    @torch.inference_mode()
    def step(self, sequences: Many[Sequence]) -> list[Round]:
        """One round for every sequence."""
        started = time.perf_counter()
        drafts = self._propose(sequences)
        proposed = time.perf_counter()
        readings = self.target.read(sequences, drafts)
        agreed = [longest_prefix(draft, reading.tokens) for draft, reading in zip(drafts, readings, strict=True)]
        runs = self._commit(sequences, readings, agreed)
        draft_seconds = (proposed - started) / len(sequences)
        verify_seconds = (time.perf_counter() - proposed) / len(sequences)
        return [
            Round(tuple(draft), tuple(reading.tokens), tuple(run), min(count, len(run)), draft_seconds, verify_seconds)
            for draft, reading, run, count in zip(drafts, readings, runs, agreed, strict=True)
        ]

    def _propose(self, sequences: Many[Sequence]) -> list[list[int]]:
        """Drafts for the slots behind each anchor, no more than may still be committed.

        Near its limit an answer gets a shorter block, as in the reference implementation.
        """
        if self.block_size == 1:
            return [[] for _ in sequences]
        mask = self.drafter.spec.mask_token_id
        counts = [min(self.block_size, sequence.remaining_tokens + 1) for sequence in sequences]
        rows = [[sequence.tokens[-1], *[mask] * (count - 1)] for sequence, count in zip(sequences, counts, strict=True)]
        tokens, positions = flat(rows, [len(sequence.tokens) - 1 for sequence in sequences], self.target.device)
        segments = [Segment(count, _context(sequence)) for sequence, count in zip(sequences, counts, strict=True)]
        blocks = torch.split(self.drafter(tokens, positions, self.drafter.attention(segments)), counts)
        logits = self.drafter.logits(torch.cat([block[1:] for block in blocks]))
        banned = self.target.banned(mask)
        assert banned is not None
        logits.index_fill_(-1, banned, -torch.inf)  # in place: a copy takes as long as the choice
        return [
            sequence.choose(scores, (), None, len(sequence.tokens))
            for sequence, scores in zip(sequences, torch.split(logits, [n - 1 for n in counts]), strict=True)
        ]

    def _commit(self, sequences: Many[Sequence], readings: Many[Reading], agreed: Many[int]) -> list[list[int]]:
        """Commit the agreed drafts and the bonus token, no more than may be; both caches cover all but the newest.

        Returns:
            What was committed.
        """
        runs = [
            reading.tokens[: min(count + 1, sequence.remaining_tokens)]
            for sequence, reading, count in zip(sequences, readings, agreed, strict=True)
        ]
        kept: list[Tensor | None] = []
        for sequence, reading, run in zip(sequences, readings, runs, strict=True):
            sequence.cache.advance(len(run))
            kept.append(None if reading.features is None else reading.features[: len(run)])
        self._remember(sequences, kept)
        for sequence, run in zip(sequences, runs, strict=True):
            sequence.commit(run)
        return runs

    def _remember(self, sequences: Many[Sequence], features: Many[Tensor | None]) -> None:
        """Turn features of newly committed tokens into the drafter's context."""
        parts = [part for part in features if part is not None]
        caches = [_context(sequence) for sequence in sequences]
        starts = [cache.length for cache in caches]
        positions = [torch.arange(start, start + len(part)) for start, part in zip(starts, parts, strict=True)]
        keys, values = self.drafter.context(torch.cat(parts), torch.cat(positions).to(self.target.device))
        counts = [len(part) for part in parts]
        for cache, own_keys, own_values in zip(
            caches, torch.split(keys, counts, 1), torch.split(values, counts, 1), strict=True
        ):
            cache.extend(own_keys, own_values)


def _context(sequence: Sequence) -> SequenceCache:
    assert sequence.draft_cache is not None, "the sequence was opened by another method"
    return sequence.draft_cache
