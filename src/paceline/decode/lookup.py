"""Prompt lookup: decode without a drafter, by what followed earlier where the text stood as it does now (Saxena, 2023).

    propose   what followed the longest suffix of the text that stood before, in prompt, answer or a user's file
    read      the target computes its own token after the newest token and after every one of these, in one pass
    agree     the longest path that the target chose too
    commit    these and the target's next token; its cache keeps exactly these

Where nothing repeats nothing is proposed, and the round is one of plain decoding. The text is plain decoding's in any
case (docs/equality.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import torch

from paceline.completion import Round
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.commit import read_and_commit, record
from paceline.decode.retrieval import Budget, Retrieval
from paceline.decode.sequence import Sequence
from paceline.decode.speculation import Lookup
from paceline.decode.suffix_index import SuffixIndex
from paceline.request import Sampling

__all__ = ["PromptLookup"]


@dataclass(frozen=True, slots=True)
class PromptLookup(Autoregressive):
    """Rounds of looking up and reading; all but these is plain decoding's.

    Attributes:
        settings: what a round proposes; the text is the same with all of them.
        known: a text that answers may repeat, beside their prompts.
    """

    settings: Lookup = field(default_factory=Lookup)
    known: SuffixIndex | None = None
    name = "lookup"

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Sequence:
        """A new sequence whose text can be searched; see `Target.open`."""
        # super() knows the class that `slots` has replaced
        sequence = Autoregressive.open(self, prompt, sampling, seed, suffix)
        sequence.retrieval = Retrieval.of(prompt, self.settings, self.known)
        return sequence

    @torch.inference_mode()
    def step(self, sequences: Many[Sequence]) -> list[Round]:
        """One round for every sequence."""
        started = time.perf_counter()
        own = self.settings
        budget = Budget(own.candidates, own.prompt_lookup_num_tokens, own.max_nodes)
        drafts = [sequence.look_up(budget) for sequence in sequences]
        proposed = time.perf_counter()
        readings, paths, kept = read_and_commit(self.target, sequences, drafts)
        seconds = (proposed - started) / len(sequences), (time.perf_counter() - proposed) / len(sequences)
        return [record(*each, seconds) for each in zip(drafts, readings, paths, kept, strict=True)]
