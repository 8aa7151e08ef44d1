"""The nouns of Paceline: what is asked for, what a round did, and what comes back.

Plain frozen records. This module knows nothing of models, tensors or text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from paceline.errors import BadRequest

__all__ = ["Chunk", "Completion", "FinishReason", "Infill", "Message", "Prompt", "Round", "Sampling", "Stats", "Usage"]

Message = Mapping[str, str]
"""One chat message: `{"role": "system" | "user" | "assistant", "content": ...}`."""

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. The output is a function of (weights, prompt, these settings), never of the method.

    That of a diffusion language model depends on the settings of its method, too.

    Order: penalties, logit bias, temperature, then top-k, top-p and min-p on softmax(scores / temperature);
    the token is argmax(scores + temperature * gumbel(seed, position)) over the surviving ids.

    Attributes:
        max_tokens: most new tokens, >= 1; an answer that reaches the model's context also ends as "length". The length
            of the hole of an `Infill`.
        temperature: 0 (or at most 1e-5) is argmax, lowest id on ties.
        top_k: keep the k most probable ids; 0 keeps all.
        top_p: keep ids while the probability mass before them is < top_p, in (0, 1]; 1 keeps all.
        min_p: keep ids with at least min_p times the top probability, in [0, 1].
        seed: None draws one, which the completion reports.
        stop: strings that end the text; they are not part of it.
        stop_token_ids: token ids that end the answer, besides the model's own end tokens.
        repetition_penalty: divides positive and multiplies negative logits of ids seen in prompt or output,
            in [0.01, 100].
        presence_penalty: subtracted once from ids seen in the output, in [-2, 2].
        frequency_penalty: subtracted once per occurrence in the output, in [-2, 2].
        logit_bias: added to the logits of single ids, each in [-100, 100].
        n: independent answers per prompt; answer i uses a seed derived from (seed, i).

    Raises:
        BadRequest: a value out of range; names the setting.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] | list[str] | str = ()
    stop_token_ids: tuple[int, ...] | list[int] = ()
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    n: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        for name, (kind, allowed, rule) in _RULES.items():
            value = getattr(self, name)
            missing_seed = name == "seed" and value is None
            if not missing_seed and not (_is_number(value, kind) and allowed(value)):
                raise BadRequest(f"{name} is {value!r:.80}.", remedy=f"It must be {rule}.", param=name)

    @property
    def penalised(self) -> bool:
        """True where scores depend on the tokens seen so far."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def filtered(self) -> bool:
        """True where some ids may be removed before the draw."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


_INT, _REAL = (int,), (int, float)
_RULES: dict[str, tuple[tuple[type, ...], Callable[[float], bool], str]] = {
    "max_tokens": (_INT, lambda x: 1 <= x <= 2**31, "an integer in [1, 2**31]"),
    "temperature": (_REAL, lambda x: 0 <= x <= 100, "a number in [0, 100]"),
    "top_k": (_INT, lambda x: 0 <= x <= 2**31, "an integer in [0, 2**31]; 0 keeps all"),
    "top_p": (_REAL, lambda x: 0 < x <= 1, "a number in (0, 1]"),
    "min_p": (_REAL, lambda x: 0 <= x <= 1, "a number in [0, 1]"),
    "seed": (_INT, lambda x: -(2**63) <= x < 2**63, "an integer of 64 bits, or None"),
    "repetition_penalty": (_REAL, lambda x: 0.01 <= x <= 100, "in [0.01, 100]"),
    "presence_penalty": (_REAL, lambda x: -2 <= x <= 2, "a number in [-2, 2]"),
    "frequency_penalty": (_REAL, lambda x: -2 <= x <= 2, "a number in [-2, 2]"),
    "n": (_INT, lambda x: 1 <= x <= 128, "an integer in [1, 128]"),
}
"""Setting -> its types, its range, and both in words. NaN is in no range."""


def _is_number(value: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _stop_strings(given: object) -> tuple[str, ...]:
    strings = (given,) if isinstance(given, str) else given
    if not isinstance(strings, tuple | list) or not all(isinstance(string, str) for string in strings):
        raise BadRequest(f"stop is {given!r:.80}.", remedy="It must be a string or a list of strings.", param="stop")
    if "" in strings:
        raise BadRequest("A stop string is empty.", remedy="Leave it out.", param="stop")
    return tuple(strings)


def _token_ids(param: str, given: object) -> tuple[int, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise BadRequest(f"{param} is {given!r:.80}.", remedy="It must be a list of token ids.", param=param)
    ids = tuple(given)
    for token in ids:
        if not _is_number(token, _INT) or token < 0:
            message = f"{param} contains {token!r:.80}, which is not a token id."
            raise BadRequest(message, remedy="Token ids are integers >= 0.", param=param)
    return ids


def _biases(given: object) -> dict[int, float]:
    if not isinstance(given, Mapping):
        remedy = "It must map token ids to numbers."
        raise BadRequest(f"logit_bias is {given!r:.80}.", remedy=remedy, param="logit_bias")
    _token_ids("logit_bias", given)
    for token, bias in given.items():
        if not (_is_number(bias, _REAL) and -100 <= bias <= 100):
            message = f"logit_bias[{token}] is {bias!r:.80}."
            raise BadRequest(message, remedy="It must be a number in [-100, 100].", param="logit_bias")
    return dict(given)


@dataclass(frozen=True, slots=True)
class Infill:
    """A text with a hole of `max_tokens` tokens, which the answer fills; for diffusion language models.

    Attributes:
        prefix: what stands before the hole, as any prompt.
        suffix: what stands behind it, as text or token ids; empty leaves a prompt to go on with.

    Raises:
        BadRequest: a suffix that is neither.
    """

    prefix: str | Sequence[int] | Sequence[Message]
    suffix: str | Sequence[int]

    def __post_init__(self) -> None:
        if not isinstance(self.suffix, str):
            object.__setattr__(self, "suffix", _token_ids("suffix", self.suffix))


Prompt = str | Sequence[int] | Sequence[Message] | Infill
"""Text, token ids, chat messages, or a text with a hole."""


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
        """How many drafts were judged: those up to the first that differs, or up to the end of the answer."""
        differs = self.accepted < self.drafted and (
            self.proposed[self.unjudged + self.accepted] != self.reference[self.accepted]
        )
        return min(len(self.committed), self.accepted + differs)

    def cut(self, tokens: int) -> Round:
        """The round of an answer that ended after so many of `committed`."""
        accepted = max(0, min(self.accepted, tokens - self.unjudged))
        return replace(self, committed=self.committed[:tokens], accepted=accepted)


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
        method: "ar", "dflash", "diffusion" or "apd".
        rounds: forward passes of the target after the prompt pass; all passes of a diffusion language model, which has
            no prompt pass. APD's verifier reads once in each.
        completion_tokens: all new tokens, as in `Usage`.
        accepted_per_round: tokens committed per round, the bonus token included; cut where the answer ended. The first
            token of a target comes from its prompt pass and is not counted, so the sum is completion_tokens - 1; for
            diffusion and APD it is completion_tokens.
        drafted_tokens, checked_tokens, accepted_tokens: proposed by the drafter / of these, judged (what follows the
            first difference is not) / of these, kept in the answer. The first draft of an APD step is kept unjudged
            and is in none of them. All are 0 where no other model judges: plain decoding and diffusion.
        draft_seconds, verify_seconds, total_seconds: wall clock; total includes the prompt pass. All passes of a
            diffusion language model are drafting.
        prefix_tokens, reused_tokens: as in `Round`, over all rounds.
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
