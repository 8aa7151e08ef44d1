"""The nouns of an answer: what a round did, and what comes back.

Plain frozen records. This module knows nothing of models, tensors or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from paceline.plan import Plan

__all__ = ["Chunk", "Completion", "FinishReason", "Round", "Stats", "Usage"]

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did for one sequence: the record that stats, --show-blocks and the bench read.

    A round of masked diffusion is one pass. Tokens that it fixes behind a mask are committed by the pass that fixes the
    last mask before them, so a round may commit nothing, or more than it proposed.

    Attributes:
        proposed: drafted tokens in order, without the anchor; empty for plain decoding. For masked diffusion, the
            tokens that the pass fixed, those behind the end of the answer included.
        reference: what the drafts are compared with. The target's own token after the anchor and after each drafted
            token, len(proposed) + 1; for APD the token of both models' product for each draft but the first, which is
            kept in any case, len(proposed) - 1. Empty where nothing is judged.
        committed: the agreed drafts and then the bonus token; for APD, which has none, the first draft and the agreed
            ones. Cut where the answer ended, so the last round may have no bonus token.
        accepted: how many of `committed` were drafted and judged.
        draft_seconds, verify_seconds: share of the batch's time, wall clock; all of a diffusion pass is drafting.
        positions: where in the answer each of `proposed` stands, 0 for its first token; empty where they follow what
            was committed before.
        prefix_tokens, reused_tokens: tokens before the first mask that the pass of a diffusion language model saw / of
            these, whose keys and values were there from earlier passes. 0 for other models.
        contexts_looked_up, contexts_found, verifier_skipped: contexts of its drafts that APD looked up in a table of
            n-grams / of these, those it has / whether they were enough, so that the verifier was not asked.
        parents: of a tree, for each of `proposed` the index of the draft before it, -1 for none; empty for a chain.
        scores: log probability of the path down to each of `proposed`, as far as the drafter knows: not of those that
            were looked up, which are the last; empty for a chain, unless the decoder was told to keep them.
        plan: what it set out to propose; None where the method has no plans.
        dropped: drafts that the drafter had beside `proposed`, and that were not worth reading.
        ended: whether the answer ended with it.
    """

    proposed: tuple[int, ...]
    reference: tuple[int, ...]
    committed: tuple[int, ...]
    accepted: int
    draft_seconds: float
    verify_seconds: float
    positions: tuple[int, ...] = ()
    prefix_tokens: int = 0
    reused_tokens: int = 0
    contexts_looked_up: int = 0
    contexts_found: int = 0
    verifier_skipped: bool = False
    parents: tuple[int, ...] = ()
    ended: bool = False
    scores: tuple[float, ...] = ()
    plan: Plan | None = None
    dropped: int = 0

    @property
    def unjudged(self) -> int:
        """How many of `proposed`, from the first on, are compared with nothing."""
        return max(0, len(self.proposed) - len(self.reference))

    @property
    def drafted(self) -> int:
        """How many of `proposed` were to be judged by another model."""
        return len(self.proposed) - self.unjudged

    @property
    def checked(self) -> int:
        """How many drafts were judged: those up to the first that differs, or up to the end of the answer.

        Drafts of a tree that stand in one place are judged together, and count once.
        """
        if self.parents:
            return min(len(self.committed), self._judged_places())
        differs = self.accepted < self.drafted and (
            self.proposed[self.unjudged + self.accepted] != self.reference[self.accepted]
        )
        judged = self.accepted + differs
        return max(0, min(judged, len(self.committed) - self.unjudged)) if self.ended else judged

    @property
    def agreed(self) -> tuple[int, ...]:
        """Of drafts that a target has read: the indices of the longest path on which it says the same."""
        path, last = [], -1
        parents = self.parents or range(-1, len(self.proposed) - 1)
        for node, (parent, token) in enumerate(zip(parents, self.proposed, strict=True)):
            if parent == last and token == self.reference[last + 1]:
                path.append(node)
                last = node
        return tuple(path)

    def _judged_places(self) -> int:
        """The drafts of a tree that agree, and one more where others stood behind the last of them."""
        path = self.agreed
        return len(path) + ((path[-1] if path else -1) in self.parents)

    def cut(self, tokens: int) -> Round:
        """The round of an answer that ended after so many of `committed`."""
        accepted = max(0, min(self.accepted, tokens - self.unjudged))
        return replace(self, committed=self.committed[:tokens], accepted=accepted, ended=True)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer; the stop token counts as a completion token."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Stats:
    """How an answer came about.

    Attributes:
        method: "ar", "dflash", "lookup", "diffusion" or "apd".
        rounds: forward passes of the target after the prompt pass; all passes of a diffusion language model, which has
            no prompt pass. APD's verifier reads once in each that is not skipped.
        completion_tokens: all new tokens, as in `Usage`.
        accepted_per_round: tokens committed per round, the bonus token included; cut where the answer ended. The first
            token of a target comes from its prompt pass and is not counted, so the sum is completion_tokens - 1; for
            diffusion and APD it is completion_tokens.
        drafted_tokens, checked_tokens, accepted_tokens: proposed by the drafter or looked up / of these, judged (what
            follows the first difference is not) / of these, kept in the answer. The first draft of an APD step is kept
            unjudged and is in none of them. All are 0 where no other model judges: plain decoding and diffusion.
        draft_seconds, verify_seconds, total_seconds: wall clock; total includes the prompt pass. All passes of a
            diffusion language model are drafting.
        prefix_tokens, reused_tokens, contexts_looked_up, contexts_found: as in `Round`, over all rounds.
        verifier_skips: rounds in which APD's table of n-grams was enough; the verifier reads in the others.
    """

    method: str
    rounds: int
    completion_tokens: int
    accepted_per_round: tuple[int, ...]
    drafted_tokens: int
    checked_tokens: int
    accepted_tokens: int
    draft_seconds: float
    verify_seconds: float
    total_seconds: float
    prefix_tokens: int = 0
    reused_tokens: int = 0
    contexts_looked_up: int = 0
    contexts_found: int = 0
    verifier_skips: int = 0

    @classmethod
    def of(cls, method: str, rounds: Sequence[Round], completion_tokens: int, total_seconds: float) -> Stats:
        """The figures of an answer, finished or stopped early."""
        return cls(
            method=method,
            rounds=len(rounds),
            completion_tokens=completion_tokens,
            accepted_per_round=tuple(len(round.committed) for round in rounds),
            drafted_tokens=sum(round.drafted for round in rounds),
            checked_tokens=sum(round.checked for round in rounds),
            accepted_tokens=sum(round.accepted for round in rounds),
            draft_seconds=sum(round.draft_seconds for round in rounds),
            verify_seconds=sum(round.verify_seconds for round in rounds),
            total_seconds=total_seconds,
            prefix_tokens=sum(round.prefix_tokens for round in rounds),
            reused_tokens=sum(round.reused_tokens for round in rounds),
            contexts_looked_up=sum(round.contexts_looked_up for round in rounds),
            contexts_found=sum(round.contexts_found for round in rounds),
            verifier_skips=sum(round.verifier_skipped for round in rounds),
        )

    @property
    def acceptance_length(self) -> float:
        """Mean tokens committed per round, the bonus token included; 0 without a round."""
        return sum(self.accepted_per_round) / self.rounds if self.rounds else 0.0

    @property
    def forward_passes(self) -> int:
        """Passes of the model whose tokens these are: the rounds, and the prompt pass where it gave a token."""
        return self.rounds + (self.completion_tokens > sum(self.accepted_per_round))

    @property
    def tokens_per_forward(self) -> float:
        """New tokens over forward passes; 0 without a pass."""
        return self.completion_tokens / self.forward_passes if self.forward_passes else 0.0

    @property
    def prefix_hit_rate(self) -> float:
        """The share of the tokens before the first mask that a pass of a diffusion model did not compute anew."""
        return self.reused_tokens / self.prefix_tokens if self.prefix_tokens else 0.0

    @property
    def context_hit_rate(self) -> float:
        """The share of the contexts looked up that the table of n-grams has; 0 without one."""
        return self.contexts_found / self.contexts_looked_up if self.contexts_looked_up else 0.0

    @property
    def verifier_skip_rate(self) -> float:
        """The share of the rounds in which the verifier was not asked."""
        return self.verifier_skips / self.rounds if self.rounds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """New tokens, the first included, over total_seconds."""
        return self.completion_tokens / self.total_seconds if self.total_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a streamed answer: what one round released.

    The joined `text` of all chunks equals the completion's text; `token_ids` likewise. Text may lag behind the
    tokens while a character or a possible stop string is incomplete; both are empty where a diffusion pass fixed
    nothing before the first mask.

    Attributes:
        round: what the round did; None for the first token, which the prompt pass gives.
        finish_reason, completion: set on the last chunk only; the completion holds usage, stats and seed.
    """

    text: str
    token_ids: tuple[int, ...]
    round: Round | None
    finish_reason: FinishReason | None = None
    completion: Completion | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished answer.

    Attributes:
        text: the answer without the stop token or stop string; empty where the checkpoint has no tokenizer.
        token_ids: all new tokens, the stop token included.
        finish_reason: "stop" (end token, stop token or stop string) or "length".
        seed: the seed in effect; the same request with it gives the same answer.
        prompt_index, choice_index: which prompt of the call, which of its n answers.
        rounds: one record per round, in order.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    usage: Usage
    stats: Stats
    seed: int
    prompt_index: int = 0
    choice_index: int = 0
    rounds: tuple[Round, ...] = ()
