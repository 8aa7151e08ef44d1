"""What stands together: a small autoregressive model, or a table of n-grams, weighs the drafter's candidates anew.

The drafter gives the probability of every slot on its own. What else knows how tokens follow each other reads the whole
tree in one pass, and the product of both, as in APD (`agree.product`, arXiv 2506.00413), is what a node is worth; the
worthiest stay. It changes what is proposed, never the text. Does not know how candidates came about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.agree import product
from paceline.decode.named import find_rescorer, named_by
from paceline.decode.ngram_table import NgramTable, load_ngram_table
from paceline.decode.processors import widen
from paceline.decode.sampling import is_greedy
from paceline.decode.sequence import Sequence
from paceline.decode.target import Target
from paceline.decode.tree import ROOT, Expand, Proposal
from paceline.models.load import load_transformer, shared_vocabulary
from paceline.models.pairs import usable_tokens
from paceline.models.spec import Spec
from paceline.models.transformer import Transformer
from paceline.text import Tokenizer

__all__ = ["Joint", "SmallModel", "TableOfNgrams", "rescored", "rescorer_for"]

_PROMPT_ROWS = 512
"""Rows of one pass over what a model has not read yet."""


@dataclass(frozen=True, slots=True)
class SmallModel:
    """An autoregressive model of the target's tokens."""

    model: Target

    def read(self, sequences: Many[Sequence], proposals: Many[Proposal]) -> list[Tensor]:
        """Scores of the next token behind the anchor and behind every node: [1 + nodes, vocab] each.

        One pass over all trees, and over what was committed since the last. NaN where its context is too short.
        """
        fits = [self._fits(*each) for each in zip(sequences, proposals, strict=True)]
        pairs = zip(sequences, proposals, fits, strict=True)
        chosen = [(sequence, proposal) for sequence, proposal, whole in pairs if whole]
        read = iter(self._read(*zip(*chosen, strict=True)) if chosen else ())
        vocab = self.model.model.spec.vocab_size
        return [
            next(read) if whole else torch.full((1 + len(proposal.tokens), vocab), torch.nan, device=self.model.device)
            for proposal, whole in zip(proposals, fits, strict=True)
        ]

    def _fits(self, sequence: Sequence, proposal: Proposal) -> bool:
        depth = max(proposal.depths, default=0)
        return len(sequence.tokens) + depth <= self.model.model.spec.context_tokens

    def _read(self, sequences: Many[Sequence], proposals: Many[Proposal]) -> list[Tensor]:
        caches = [self._cache(sequence) for sequence in sequences]
        fresh = [self._caught_up(sequence, cache) for sequence, cache in zip(sequences, caches, strict=True)]
        rows = [[*own, *proposal.tokens] for own, proposal in zip(fresh, proposals, strict=True)]
        shapes = [_behind(len(own) - 1, proposal) for own, proposal in zip(fresh, proposals, strict=True)]
        hidden = torch.split(self.model.forward(rows, caches, shapes).hidden, [len(own) for own in rows])
        for cache, own in zip(caches, fresh, strict=True):
            cache.advance(len(own))
        wanted = [own[len(new) - 1 :] for own, new in zip(hidden, fresh, strict=True)]
        return list(torch.split(self.model.model.head(torch.cat(wanted)), [len(own) for own in wanted]))

    def _cache(self, sequence: Sequence) -> SequenceCache:
        if sequence.joint_cache is None:
            spec = self.model.model.spec
            shape = (spec.num_layers, spec.num_kv_heads, spec.head_dim, len(sequence.tokens) + 256)
            sequence.joint_cache = SequenceCache(*shape, self.model.model.dtype, self.model.device)
        return sequence.joint_cache

    def _caught_up(self, sequence: Sequence, cache: SequenceCache) -> list[int]:
        """Read all but the last few committed tokens, and say which are left; the anchor is one of them."""
        cache.truncate(min(cache.length, len(sequence.tokens) - 1))  # the anchor was read where nothing was committed
        while len(sequence.tokens) - cache.length > _PROMPT_ROWS:
            self.model.forward([sequence.tokens[cache.length : cache.length + _PROMPT_ROWS]], [cache])
            cache.advance(_PROMPT_ROWS)
        return sequence.tokens[cache.length :]


@dataclass(frozen=True, slots=True)
class TableOfNgrams:
    """A table of what some model says behind frequent contexts."""

    table: NgramTable

    def read(self, sequences: Many[Sequence], proposals: Many[Proposal]) -> list[Tensor]:
        """As `SmallModel.read`: a look for every path; NaN where the table has no such context."""
        return [self._rows(sequence, proposal) for sequence, proposal in zip(sequences, proposals, strict=True)]

    def _rows(self, sequence: Sequence, proposal: Proposal) -> Tensor:
        recent = sequence.tokens[-self.table.context_tokens :]
        paths = [[proposal.tokens[each] for each in proposal.path_to(n)] for n in range(ROOT, len(proposal.tokens))]
        places = [self.table.find([*recent, *path], 1)[0] for path in paths]
        known = [place for place in places if place is not None]
        found = self.table.rest.new_full((len(places), self.table.owner.vocab_size), torch.nan)
        if known:
            found[torch.tensor([place is not None for place in places])] = self.table.rows(known)
        return found


Joint = SmallModel | TableOfNgrams
"""What knows how tokens follow each other."""


def rescorer_for(
    settings: object, target: Spec, tokenizer: Tokenizer | None, usable: int, device: torch.device
) -> Transformer | NgramTable | None:
    """What DFlash's settings name, loaded for a target, in float32; None where nothing is named, or nothing to weigh.

    Args:
        settings: of any method.
        usable: ids of the target from here on are never drawn.

    Raises:
        ConfigError: as `find_rescorer`, or a table that is broken. CheckpointError: weights that cannot be loaded.
        VocabularyMismatch: it is of other tokens.
    """
    found = find_rescorer(settings)
    if found is None:
        return None
    with named_by(found.param, found.name):
        if found.spec is None:
            table = load_ngram_table(found.folder, None, device)
            shared_vocabulary(target.vocab_size, table.owner.vocab_size, usable)
            return table
        usable_tokens(target, found.spec, tokenizer, found.folder)
    return load_transformer(found.folder, torch.float32, device, keep_weights=False)


def rescored(
    joint: Joint,
    weight: float,
    sequences: Many[Sequence],
    proposals: Many[Proposal],
    expands: Many[Expand],
    noisy: bool = True,
) -> list[Proposal]:
    """The same trees with new scores: log probabilities of each path under the product of both.

    Args:
        weight: of the drafter, in [0, 1]; 1 leaves its law, but that a node's probability is among its siblings.
        expands: of which the trees were grown.
        noisy: whether the scores of these hold the noise that the target will draw with.
    """
    read = joint.read(sequences, proposals)
    return [_weighed(weight, noisy, *each) for each in zip(sequences, proposals, expands, read, strict=True)]


def _weighed(
    weight: float, noisy: bool, sequence: Sequence, proposal: Proposal, expand: Expand, read: Tensor
) -> Proposal:
    """One tree. Read are [1 + nodes, vocab]; NaN leaves the drafter's law."""
    parents = sorted(set(proposal.parents))
    paths = [tuple(proposal.tokens[node] for node in proposal.path_to(parent)) for parent in parents]
    laws = [expand(path) for path in paths]
    width = max(len(law.tokens) for law in laws)
    ids = torch.tensor([[*law.tokens, *[0] * (width - len(law.tokens))] for law in laws], device=read.device)
    scores = [[*law.scores, *[-math.inf] * (width - len(law.scores))] for law in laws]
    own = torch.tensor(scores, dtype=widen(read).dtype, device=read.device)
    other = widen(read)[torch.tensor(parents, device=read.device) + 1].gather(-1, ids)
    other = other.masked_fill(own == -math.inf, -math.inf)
    if not is_greedy(sequence.sampling):
        other = other / sequence.sampling.temperature
        if noisy:
            places = [len(sequence.tokens) + len(path) for path in paths]
            other = other + sequence.noise.at(places, ids).to(other.dtype)
    known = ~other.isnan().any(-1, keepdim=True)
    mixed = torch.where(known, product(own, other.log_softmax(-1), weight), own).log_softmax(-1).tolist()
    rows = {
        parent: dict(zip(law.tokens, row, strict=False)) for parent, law, row in zip(parents, laws, mixed, strict=True)
    }
    found: list[float] = []
    for parent, token in zip(proposal.parents, proposal.tokens, strict=True):
        found.append(rows[parent][token] + (0.0 if parent == ROOT else found[parent]))
    return Proposal(proposal.tokens, proposal.parents, tuple(found))


def _behind(tokens: int, proposal: Proposal) -> Proposal:
    """A tree whose anchor stands at the end of a chain of so many tokens; the tokens themselves do not matter."""
    parents = (
        *range(-1, tokens - 1),
        *(tokens - 1 if parent == ROOT else parent + tokens for parent in proposal.parents),
    )
    return Proposal((0,) * len(parents), parents)
