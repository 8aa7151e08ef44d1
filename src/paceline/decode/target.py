"""The trusted model: it opens a sequence, reads the prompt, and reads drafts.

What every method shares, so that all of them get the same reference tokens. Does not know who drafted.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.draws import together, turn_by_turn
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts, check_bias
from paceline.decode.sampling import sound
from paceline.decode.sequence import Reading, Sequence, flat, parted
from paceline.decode.tree import EMPTY, ROOT, Proposal
from paceline.errors import BadRequest, ContextOverflow, UnsupportedModel
from paceline.models.attention import Attend, Segment, cached_attention
from paceline.models.transformer import Output, Transformer
from paceline.request import Sampling

__all__ = ["Target", "check_prompt"]

_PREFILL_ROWS = 512
"""Rows of one prompt pass: bounds its memory."""

_READ_AT_ONCE_BYTES, _MOST_PASSES = 1 << 27, 8
"""Of weights, which takes some 5 ms; and passes."""


@dataclass(frozen=True, slots=True)
class Target:
    """An AR model and the ids that are its vocabulary.

    Raises:
        UnsupportedModel: another kind of model.

    Attributes:
        usable_tokens: ids from here on are padding of the embedding table; they are never drawn.
        taps: layers whose output the drafter wants.
        end_token_ids: behind one of them an answer need not go on.
    """

    model: Transformer
    usable_tokens: int
    taps: tuple[int, ...] = ()
    end_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.model.spec.diffusion is not None:
            told = f"This {self.model.spec.family} model is a diffusion language model: it has no next token."
            raise UnsupportedModel(told, remedy="Give an autoregressive one.")

    @property
    def passes_at_once(self) -> int:
        """How many plain passes may follow each other in one call: together they take no longer than one can see."""
        return max(1, min(_MOST_PASSES, _READ_AT_ONCE_BYTES // max(1, self.model.packed_bytes)))

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.model.embed.weight.device

    def banned(self, *more: int) -> Tensor | None:
        """Ids never to be drawn: the padding of the vocabulary, and `more`."""
        return _banned(self.banned_ids(*more), self.device)

    def banned_ids(self, *more: int) -> tuple[int, ...]:
        """The same as plain numbers."""
        return (*range(self.usable_tokens, self.model.spec.vocab_size), *more)

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded: see `check_prompt`, and a hole before a suffix (BadRequest)."""
        if suffix:
            told = "The prompt has a suffix, and an autoregressive model only sees what stands before its answer."
            raise BadRequest(told, remedy="Fill holes with a diffusion language model: Dream or LLaDA.", param="suffix")
        check_prompt(prompt, sampling, self.usable_tokens, self.model.spec.context_tokens)

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, draft_cache: SequenceCache | None) -> Sequence:
        """A new sequence for a request that `check` let pass; nothing has been read yet."""
        spec = self.model.spec
        limit = min(len(prompt) + sampling.max_tokens, spec.context_tokens)
        shape = (spec.num_layers, spec.num_kv_heads, spec.head_dim, min(limit, len(prompt) + 256))
        return Sequence(
            tokens=list(prompt),
            prompt_tokens=len(prompt),
            limit_tokens=limit,
            sampling=sampling,
            seed=seed,
            cache=SequenceCache(*shape, self.model.dtype, self.device),
            draft_cache=draft_cache,
            noise=NoiseCache(seed, spec.vocab_size, device=self.device),
            counts=TokenCounts.of_prompt(prompt, spec.vocab_size, self.device) if sampling.penalised else None,
        )

    def prefill(self, sequences: Many[Sequence]) -> list[Tensor | None]:
        """Read the prompts and commit the first token of each answer.

        Returns:
            The prompts' features, [prompt_tokens, taps * hidden] each; None without taps.
        """
        features = []
        for sequence in sequences:
            parts = [self._prompt_pass(sequence, start) for start in range(0, sequence.prompt_tokens, _PREFILL_ROWS)]
            last = self.model.head(parts[-1][0][-1:])
            sequence.commit(sequence.choose(last, EMPTY, self.banned()))
            tapped = [part for _, part in parts if part is not None]
            features.append(torch.cat(tapped) if tapped else None)
        return features

    def read(self, sequences: Many[Sequence], drafts: Many[Proposal]) -> list[Reading]:
        """Feed each anchor and its drafts in one pass; the target's own token after every one of them.

        The rows lie behind the caches but are not part of them: whoever asked keeps the path that it wants.
        """
        for sequence in sequences:
            sequence.ahead.clear()  # its rows are overwritten
        rows = [[sequence.tokens[-1], *draft.tokens] for sequence, draft in zip(sequences, drafts, strict=True)]
        counts = [len(row) for row in rows]
        placed = self._placed(rows, [sequence.cache for sequence in sequences], drafts)
        own = [sequence.draws(count, draft) for sequence, count, draft in zip(sequences, counts, drafts, strict=True)]
        draws = together(own, self.banned_ids())
        found = None if draws is None else self.model.choose(*placed, draws, self.taps)
        if found is None:
            scored, tapped = self.model.read(*placed, self.taps)
            each = zip(sequences, torch.split(scored, counts), drafts, strict=True)
            chosen = [sequence.choose(logits, draft, self.banned()) for sequence, logits, draft in each]
        else:
            tokens, tapped = found
            chosen = parted(sound(tokens), counts)
        features: Many[Tensor | None] = [None] * len(rows) if tapped is None else parted(tapped, counts)
        return list(map(Reading, chosen, features))

    def read_on(self, sequences: Many[Sequence], passes: int) -> list[list[Reading]]:
        """Feed each anchor, then what the target says after it, …: at least one reading for every sequence, in order.

        As `read` without drafts, again and again, and like there no row is part of a cache yet. No pass follows where
        all answers have ended.
        """
        parts = [sequence.draws(passes, EMPTY) for sequence in sequences]
        known = [part for part in parts if part is not None]
        if passes == 1 or self.model.packed_bytes == 0 or len(known) < len(parts):
            return [[reading] for reading in self.read(sequences, [EMPTY] * len(sequences))]
        rows = [sequence.tokens[-1:] for sequence in sequences]
        placed = self._placed(rows, [sequence.cache for sequence in sequences], None)
        draws = turn_by_turn(known, self.banned_ids())
        found = self.model.go_on(*placed, draws, self.end_token_ids, self.taps)
        assert found is not None, "passes over caches are native, where layers are packed"
        tokens, features, count = sound(found[0]), found[1], len(sequences)
        return [
            [
                Reading(tokens[row : row + 1], None if features is None else features[row : row + 1])
                for row in range(index, len(tokens), count)
            ]
            for index in range(count)
        ]

    def forward(
        self, rows: Many[Many[int]], caches: Many[SequenceCache], drafts: Many[Proposal] | None = None
    ) -> Output:
        """One pass over rows of ids, each behind what its cache holds; they are not part of it yet.

        Args:
            drafts: how the rows hang together behind the first of each; None is one behind the other.
        """
        output: Output = self.model(*self._placed(rows, caches, drafts), self.taps)
        return output

    def _placed(
        self, rows: Many[Many[int]], caches: Many[SequenceCache], drafts: Many[Proposal] | None
    ) -> tuple[Tensor, Tensor, Attend]:
        """Ids and positions of all rows, and what they see."""
        trees = [None] * len(rows) if drafts is None else [None if draft.is_chain else draft for draft in drafts]
        depths = [range(len(row)) if tree is None else (0, *tree.depths) for row, tree in zip(rows, trees, strict=True)]
        places = [[cache.length + depth for depth in own] for cache, own in zip(caches, depths, strict=True)]
        tokens, positions = flat(rows, places, self.device)
        segments = [
            Segment(len(row), cache, None if tree is None else (ROOT, *(parent + 1 for parent in tree.parents)))
            for row, cache, tree in zip(rows, caches, trees, strict=True)
        ]
        spec = self.model.spec
        return tokens, positions, cached_attention(segments, (True,) * spec.num_layers, spec.windows)

    def _prompt_pass(self, sequence: Sequence, start: int) -> tuple[Tensor, Tensor | None]:
        rows = sequence.tokens[start : min(start + _PREFILL_ROWS, sequence.prompt_tokens)]
        output = self.forward([rows], [sequence.cache])
        sequence.cache.advance(len(rows))
        return output.hidden, output.features


@cache
def _banned(ids: tuple[int, ...], device: torch.device) -> Tensor | None:
    return torch.tensor(ids, device=device) if ids else None


def check_prompt(prompt: Many[int], sampling: Sampling, usable_tokens: int, context_tokens: int) -> None:
    """Refuse what no model with such a vocabulary and such a context can decode.

    Raises:
        BadRequest: an empty prompt, or an id outside the vocabulary.
        ContextOverflow: no room for a single new token.
    """
    if not prompt:
        raise BadRequest("The prompt is empty.", remedy="It must have at least one token.", param="prompt")
    for token in prompt:
        if not 0 <= token < usable_tokens:
            remedy = f"Ids of this model are 0 … {usable_tokens - 1}."
            raise BadRequest(f"The prompt contains token id {token}.", remedy=remedy, param="prompt")
    if len(prompt) >= context_tokens:
        raise ContextOverflow(len(prompt), context_tokens)
    check_bias(sampling, usable_tokens)
