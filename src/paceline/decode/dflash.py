"""DFlash: a block-diffusion drafter proposes, the target verifies (arXiv 2602.06036).

    propose   the drafter fills [anchor, MASK, …], conditioned on the target's features: a chain, or a tree (drafting)
    read      the target computes its own token after the anchor and after every draft, in one pass
    agree     the longest path of drafts that the target chose too
    commit    these and the target's next token; caches and features of exactly these stay

The drafter draws with the target's noise and processors, so its proposals are the target's tokens wherever both
distributions agree; the text is the target's in any case (docs/equality.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.completion import Round
from paceline.decode.agree import agreed_path, surviving
from paceline.decode.drafting import Drafting, context_of
from paceline.decode.sequence import Sequence
from paceline.decode.speculation import Speculation
from paceline.decode.target import Reading, Target
from paceline.decode.tree import Proposal
from paceline.models.drafter import Drafter
from paceline.request import Sampling

__all__ = ["DFlash"]


@dataclass(frozen=True, slots=True)
class DFlash:
    """Rounds of drafting and reading.

    Attributes:
        block_size: rows of a block, the anchor included: at most block_size - 1 drafts are accepted, and a bonus token.
        settings: what a round proposes; the text is the same with all of them.
    """

    target: Target
    drafter: Drafter
    block_size: int
    settings: Speculation = field(default_factory=Speculation)
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
        paths = [agreed_path(draft, reading.tokens) for draft, reading in zip(drafts, readings, strict=True)]
        runs = self._commit(sequences, readings, paths)
        if self.settings.overlap:
            for sequence, draft, reading, path in zip(sequences, drafts, readings, paths, strict=True):
                sequence.carried = surviving(draft, reading.tokens, path, self.settings.overlap)
        draft_seconds = (proposed - started) / len(sequences)
        verify_seconds = (time.perf_counter() - proposed) / len(sequences)
        return [
            Round(
                draft.tokens,
                tuple(reading.tokens),
                tuple(run),
                min(len(path), len(run)),
                draft_seconds,
                verify_seconds,
                parents=() if draft.is_chain else draft.parents,
            )
            for draft, reading, run, path in zip(drafts, readings, runs, paths, strict=True)
        ]

    def _propose(self, sequences: Many[Sequence]) -> list[Proposal]:
        return Drafting(self.target, self.drafter, self.block_size, self.settings).propose(sequences)

    def _commit(self, sequences: Many[Sequence], readings: Many[Reading], paths: Many[list[int]]) -> list[list[int]]:
        """Commit the agreed drafts and the bonus token, no more than may be; both caches cover all but the newest.

        Returns:
            What was committed.
        """
        runs, kept = list[list[int]](), list[Tensor | None]()
        for sequence, reading, path in zip(sequences, readings, paths, strict=True):
            rows = [0, *(node + 1 for node in path)][: sequence.remaining_tokens]
            runs.append([reading.tokens[row] for row in rows])
            sequence.cache.compact(sequence.cache.length, rows)
            kept.append(None if reading.features is None else _rows(reading.features, rows))
        self._remember(sequences, kept)
        for sequence, run in zip(sequences, runs, strict=True):
            sequence.commit(run)
        return runs

    def _remember(self, sequences: Many[Sequence], features: Many[Tensor | None]) -> None:
        """Turn features of newly committed tokens into the drafter's context."""
        parts = [part for part in features if part is not None]
        caches = [context_of(sequence) for sequence in sequences]
        starts = [cache.length for cache in caches]
        positions = [torch.arange(start, start + len(part)) for start, part in zip(starts, parts, strict=True)]
        keys, values = self.drafter.context(torch.cat(parts), torch.cat(positions).to(self.target.device))
        counts = [len(part) for part in parts]
        for cache, own_keys, own_values in zip(
            caches, torch.split(keys, counts, 1), torch.split(values, counts, 1), strict=True
        ):
            cache.extend(own_keys, own_values)


def _rows(features: Tensor, rows: list[int]) -> Tensor:
    """Some rows, in rising order; the first ones are a view."""
    return features[: len(rows)] if rows[-1] == len(rows) - 1 else features[rows]
