"""DFlash: a block-diffusion drafter proposes, the target verifies (arXiv 2602.06036).

    propose   the drafter fills [anchor, MASK, …], conditioned on the target's features: a chain, or a tree (drafting);
              on request, what followed earlier in the text joins it (retrieval)
    read      the target computes its own token after the anchor and after every draft, in one pass
    agree     the longest path of drafts that the target chose too
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

from paceline.completion import Round
from paceline.decode.agree import surviving
from paceline.decode.commit import plain_record, read_and_commit, read_plainly, record
from paceline.decode.controller import Controller
from paceline.decode.draft_context import new_context, remember
from paceline.decode.drafting import Drafting
from paceline.decode.rescoring import Joint
from paceline.decode.retrieval import Budget, Retrieval
from paceline.decode.sequence import Reading, Sequence
from paceline.decode.speculation import Plan, Speculation
from paceline.decode.suffix_index import SuffixIndex
from paceline.decode.target import Target
from paceline.decode.tree import EMPTY, Proposal, merged
from paceline.models.drafter import Drafter
from paceline.request import Sampling

__all__ = ["DFlash"]


@dataclass(frozen=True, slots=True)
class DFlash:
    """Rounds of drafting and reading.

    Attributes:
        settings: what a round proposes; the text is the same with all of them. Of a block of n rows, the anchor among
            them, at most n - 1 drafts are accepted, and a bonus token comes behind.
        controller: chooses blocks, steps and nodes anew in each round, where the block size is auto, and only there.
        joint: weighs candidates anew, and knows how tokens follow each other.
        known: a text that answers may repeat, beside their prompts.
        noisy, selecting, scored: as in `Drafting`.
    """

    target: Target
    drafter: Drafter
    settings: Speculation
    controller: Controller | None = None
    joint: Joint | None = None
    known: SuffixIndex | None = None
    noisy: bool = True
    selecting: bool = True
    scored: bool = False
    name = "dflash"

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded; see `Target.check`."""
        self.target.check(prompt, sampling, suffix)

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Sequence:
        """A new sequence with room for the drafter's context; see `Target.open`."""
        assert not suffix, "`check` refuses holes"
        sequence = self.target.open(prompt, sampling, seed, new_context(self.drafter, len(prompt)))
        if self.settings.lookup:
            sequence.retrieval = Retrieval.of(prompt, self.settings, self.known)
        return sequence

    @torch.inference_mode()
    def prefill(self, sequences: Many[Sequence]) -> list[tuple[int, ...]]:
        """Read the prompts, and commit the first token of each answer."""
        if self.controller is not None:
            self.controller.costs(_longest(sequences), True)  # which may measure, before any token is due
        for sequence, features in zip(sequences, self.target.prefill(sequences), strict=True):
            self._put_aside(sequence, features)
        return [sequence.new_tokens for sequence in sequences]

    @torch.inference_mode()
    def step(self, sequences: Many[Sequence]) -> list[Round]:
        """One round for every sequence."""
        started = time.perf_counter()
        if self._all_rest(sequences):
            return self._rest(sequences, started)
        found = self._look_up(sequences)
        plans = self._plan(sequences, found)
        drafted = self._propose(sequences, plans)
        if self.controller is not None:
            for sequence, plan, draft in zip(sequences, plans, drafted, strict=True):
                self.controller.wait(sequence.pace, plan, draft, len(sequence.tokens))
        grown = self._joined(drafted, found)
        drafts = self._keep(grown, plans, sequences)
        proposed = time.perf_counter()
        readings, paths, kept = read_and_commit(self.target, sequences, drafts)
        for sequence, own in zip(sequences, kept, strict=True):
            self._put_aside(sequence, own.features)
        seconds = (proposed - started) / len(sequences), (time.perf_counter() - proposed) / len(sequences)
        facts = zip(drafts, readings, paths, kept, strict=True)
        rounds = [
            record(*each, seconds, plan=plan, dropped=len(whole.tokens) - len(each[0].tokens))
            for each, plan, whole in zip(facts, plans, grown, strict=True)
        ]
        for each in zip(sequences, plans, found, drafts, readings, paths, rounds, strict=True):
            self._look_back(*each)
        if self.controller is not None:
            self.controller.time(plans, drafts, _longest(sequences), time.perf_counter() - started)
        return rounds

    def _all_rest(self, sequences: Many[Sequence]) -> bool:
        """Whether it is known beforehand that nothing will be proposed."""
        if self.settings.block_size != "auto" or self.settings.lookup:
            return False
        return all(sequence.pace.resting > 1 for sequence in sequences)

    def _rest(self, sequences: Many[Sequence], started: float) -> list[Round]:
        """A round of plain decoding, which takes hardly longer than one of `Autoregressive`."""
        plans = [sequence.pace.pause() for sequence in sequences]
        readings, passes = read_plainly(self.target, sequences, 1 + min(plan.resting for plan in plans))
        for sequence, reading in zip(sequences, readings, strict=True):
            self._put_aside(sequence, reading.features)
        seconds = time.perf_counter() - started
        if self.controller is not None and passes:
            self.controller.time(plans, [EMPTY] * len(plans), _longest(sequences), seconds / passes)
        each = zip(readings, plans, strict=True)
        return [plain_record(reading, seconds / len(sequences), plan) for reading, plan in each]

    def _plan(self, sequences: Many[Sequence], found: list[Proposal]) -> list[Plan]:
        if self.settings.block_size != "auto":
            return [Plan(self.settings.block_size, self.settings.diffusion_steps)] * len(sequences)
        assert self.controller is not None, "block_size auto has a controller"
        return self.controller.plans([sequence.pace for sequence in sequences], _longest(sequences), found)

    def _propose(self, sequences: Many[Sequence], plans: Many[Plan]) -> list[Proposal]:
        drafting = [sequence for sequence, plan in zip(sequences, plans, strict=True) if plan.drafts]
        if not drafting:
            return [EMPTY] * len(sequences)
        remember(self.drafter, drafting)
        parts = self.target, self.drafter, self.settings, self.joint, self.noisy, self.selecting, self.scored
        return Drafting(*parts).propose(sequences, plans)

    def _keep(self, drafts: list[Proposal], plans: Many[Plan], sequences: Many[Sequence]) -> list[Proposal]:
        """What of them is worth reading."""
        if self.controller is None or not any(draft.tokens for draft in drafts):
            return drafts
        return self.controller.keep(drafts, plans, _longest(sequences))

    def _look_up(self, sequences: Many[Sequence]) -> list[Proposal]:
        """What followed earlier in the text of each; nothing where that is not asked for."""
        more = self.settings.lookup
        if not more:
            return [EMPTY] * len(sequences)
        budget = Budget(self.settings.candidates, more, more)
        return [sequence.look_up(budget) for sequence in sequences]

    def _joined(self, drafts: list[Proposal], found: list[Proposal]) -> list[Proposal]:
        """The drafts, and what followed earlier."""
        more = self.settings.lookup
        if not more:
            return drafts
        return [merged(draft, own, len(draft.tokens) + more) for draft, own in zip(drafts, found, strict=True)]

    def _put_aside(self, sequence: Sequence, features: Tensor | None) -> None:
        """Keep features of committed tokens until the drafter needs them; if it ever does."""
        if self.settings.block_size != 1 and features is not None:
            sequence.unread.append(features)

    def _look_back(
        self,
        sequence: Sequence,
        plan: Plan,
        found: Proposal,
        draft: Proposal,
        reading: Reading,
        path: list[int],
        round: Round,
    ) -> None:
        """What a round leaves for the next ones: a branch that survived, and experience."""
        if self.settings.overlap:
            sequence.carried = surviving(draft, reading.tokens, path, self.settings.overlap)
        if self.controller is not None:
            self.controller.judge(sequence.pace, sequence.tokens)
            self.controller.learn(sequence.pace, plan, draft, path, round.checked)
            self.controller.learn_copies(found, round.committed)


def _longest(sequences: Many[Sequence]) -> int:
    return max(len(sequence.tokens) for sequence in sequences)
