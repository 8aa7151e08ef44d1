"""The nouns of a request: what is asked for. What comes back is in `completion`.

Plain frozen records. This module knows nothing of models, tensors or text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from paceline.errors import BadRequest, SettingError
from paceline.kinds import fits, is_integer, plain
from paceline.settings import Setting, check_kinds, check_ranges

__all__ = [
    "FrequencyPenalty",
    "Infill",
    "MaxTokens",
    "Message",
    "MinP",
    "PresencePenalty",
    "Prompt",
    "RepetitionPenalty",
    "Sampling",
    "Seed",
    "Temperature",
    "TopK",
    "TopP",
]

MaxTokens = Annotated[int, Setting("Most new tokens.", least=1, most=2**31)]
Temperature = Annotated[float, Setting("0 takes the most probable token.", least=0, most=100)]
TopK = Annotated[int, Setting("Keep so many of the most probable ids; 0 keeps all.", least=0, most=2**31)]
TopP = Annotated[float, Setting("Keep the most probable ids up to this probability mass.", above=0, most=1)]
MinP = Annotated[float, Setting("Keep ids with this share of the best id's probability.", least=0, most=1)]
Seed = Annotated[int | None, Setting("The same seed gives the same text.", least=-(2**63), most=2**63 - 1)]
RepetitionPenalty = Annotated[float, Setting("Over 1 discourages ids of prompt and answer.", least=0.01, most=100)]
PresencePenalty = Annotated[float, Setting("Over 0 discourages ids of the answer, -2 to 2.", least=-2, most=2)]
FrequencyPenalty = Annotated[float, Setting("The same per occurrence, -2 to 2.", least=-2, most=2)]

Message = Mapping[str, str]
"""One chat message: `{"role": "system" | "user" | "assistant", "content": ...}`."""


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

    max_tokens: MaxTokens = 256
    temperature: Temperature = 0.0
    top_k: TopK = 0
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    seed: Seed = None
    stop: tuple[str, ...] | list[str] | str = ()
    stop_token_ids: tuple[int, ...] | list[int] = ()
    repetition_penalty: RepetitionPenalty = 1.0
    presence_penalty: PresencePenalty = 0.0
    frequency_penalty: FrequencyPenalty = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    n: Annotated[int, Setting("Independent answers.", least=1, most=128)] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        try:
            check_kinds(self)
            check_ranges(self)
        except SettingError as error:
            raise BadRequest(error.message, remedy=error.remedy, param=error.param) from error

    @property
    def penalised(self) -> bool:
        """True where scores depend on the tokens seen so far."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def filtered(self) -> bool:
        """True where some ids may be removed before the draw."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


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
        if not is_integer(token) or token < 0:
            message = f"{param} contains {token!r:.80}, which is not a token id."
            raise BadRequest(message, remedy="Token ids are integers >= 0.", param=param)
    return tuple(map(plain, ids))


def _biases(given: object) -> dict[int, float]:
    if not isinstance(given, Mapping):
        remedy = "It must map token ids to numbers."
        raise BadRequest(f"logit_bias is {given!r:.80}.", remedy=remedy, param="logit_bias")
    _token_ids("logit_bias", given)
    for token, bias in given.items():
        if not (fits(bias, float) and -100 <= bias <= 100):
            message = f"logit_bias[{token}] is {bias!r:.80}."
            raise BadRequest(message, remedy="It must be a number in [-100, 100].", param="logit_bias")
    return {plain(token): bias for token, bias in given.items()}


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
