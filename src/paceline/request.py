"""The nouns of a request: what is asked for. What comes back is in `completion`.

Plain frozen records. This module knows nothing of models, tensors or text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.errors import BadRequest

__all__ = ["Infill", "Message", "Prompt", "Sampling"]

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
