"""What a sequence may copy: continuations from its own text, and from a text that its user knows answers to repeat.

Knows numbers and one file; nothing of models, and not what becomes of a proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from paceline.decode.named import find_lookup_file
from paceline.decode.speculation import Lookup, Speculation
from paceline.decode.suffix_index import Reach, SuffixIndex
from paceline.decode.tree import EMPTY, Proposal, chain, merged
from paceline.errors import ConfigError
from paceline.text import Tokenizer

__all__ = ["Budget", "Retrieval", "read_known"]


class Budget(NamedTuple):
    """How much is proposed at most: candidates, tokens of each, and tokens of their tree."""

    candidates: int
    tokens: int
    nodes: int


@dataclass(slots=True)
class Retrieval:
    """The text of one sequence, to be searched.

    Attributes:
        own: what stands in the sequence.
        known: a text beside it that all sequences share; it does not grow.
        shortest: how many tokens must stand as they stood there.
        factor: tokens of a candidate for each that did, at most.
    """

    own: SuffixIndex
    known: SuffixIndex | None
    shortest: int
    factor: float

    @classmethod
    def of(cls, text: Sequence[int], settings: Lookup | Speculation, known: SuffixIndex | None) -> Retrieval:
        """For a sequence that begins with `text`."""
        own = SuffixIndex(text, settings.prompt_lookup_max)
        return cls(own, known, settings.prompt_lookup_min, settings.lookup_factor)

    def extend(self, tokens: Sequence[int]) -> None:
        """The sequence goes on."""
        self.own.extend(tokens)

    def propose(self, text: Sequence[int], budget: Budget) -> Proposal:
        """What followed the longest suffix of `text` in each: first where it is longer, else in the sequence.

        Args:
            text: the sequence.
        """
        indices = [index for index in (self.own, self.known) if index is not None]
        reach = Reach(budget.tokens, self.factor)
        found = [index.find(text, self.shortest, reach, budget.candidates) for index in indices]
        found.sort(key=lambda each: -each.matched)
        chains = [chain(tokens) for each in found for tokens in each.continuations]
        return reduce(lambda tree, more: merged(tree, more, budget.nodes), chains[: budget.candidates], EMPTY)


def read_known(settings: object, tokenizer: Tokenizer | None, usable_tokens: int) -> SuffixIndex | None:
    """The text of the file that settings name, for all sequences; None where none is named, or nothing is looked up.

    Args:
        settings: of any method.
        usable_tokens: ids from here on are never drawn, and are left out.

    Raises:
        ConfigError: a file that cannot be read or is not UTF-8 text, or no tokenizer.
    """
    path = find_lookup_file(settings)
    if path is None:
        return None
    assert isinstance(settings, Lookup | Speculation)
    if tokenizer is None:
        told = f"lookup_file is {str(path)!r:.80}, and the checkpoint has no tokenizer to read it with."
        raise ConfigError(told, remedy="Leave it out.", param="lookup_file")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        told = f"lookup_file is {str(path)!r:.200}: it cannot be read: {error}."
        raise ConfigError(told, remedy="Name a file of UTF-8 text.", param="lookup_file") from error
    tokens = [token for token in tokenizer.encode(text, whole=False) if token < usable_tokens]
    return SuffixIndex(tokens, settings.prompt_lookup_max)
