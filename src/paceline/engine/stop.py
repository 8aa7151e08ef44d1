"""Where an answer ends: each accepted run is cut once, before anything is streamed, counted or cached.

Walks the run token by token, so the outcome is that of one-token-at-a-time decoding, whatever the block size.
Text that may be the beginning of a stop string is held back until it is decided (Knuth, Morris and Pratt, 1977:
linear in the text, also for hostile stop strings). Knows nothing of models, tensors, batches or prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.completion import FinishReason
from paceline.request import Sampling
from paceline.text import Detokenizer

__all__ = ["Cut", "Stopper"]


@dataclass(frozen=True, slots=True)
class Cut:
    """What remains of one accepted run.

    Attributes:
        kept: how many tokens of the run belong to the answer; counts the end token, and the token that completed a
            stop string. Tokens after it must not be streamed, counted or cached.
        text: what may be sent now; never any part of a stop string.
        finish_reason: None while the answer goes on.
    """

    kept: int
    text: str
    finish_reason: FinishReason | None = None


class Stopper:
    """Decides where one answer ends, and which of its text may be sent.

    The first condition in token order wins: an end token, a stop string completed, `max_tokens` reached; at the same
    token an end token or stop string wins over the length. Of several stop strings completed by the same token, the
    one that starts first in the text cuts it. Joined texts do not depend on how the tokens are grouped into runs.

    Args:
        sampling: gives `stop` and `stop_token_ids`; its max_tokens is not read.
        end_token_ids: the model's own end tokens.
        max_tokens: most tokens of the answer, >= 1, already clipped to the context.
        detokenizer: a fresh one; `Detokenizer(None)` gives no text, so that stop strings never match.
    """

    def __init__(
        self, sampling: Sampling, end_token_ids: frozenset[int], max_tokens: int, detokenizer: Detokenizer
    ) -> None:
        assert max_tokens >= 1
        self._ends = end_token_ids.union(sampling.stop_token_ids)
        self._left_tokens = max_tokens
        self._detokenizer = detokenizer
        self._matchers = [_Matcher(stop) for stop in dict.fromkeys(sampling.stop)]
        self._held = ""
        self._finished = False

    @property
    def finished(self) -> bool:
        """True once a cut had a finish reason; nothing may be fed after that."""
        return self._finished

    def feed(self, tokens: Sequence[int]) -> Cut:
        """Take one accepted run, in order; may be empty. Asserts that the answer is not finished."""
        assert not self._finished, "fed after the answer ended"
        texts: list[str] = []
        for kept, token in enumerate(tokens, start=1):
            text, reason = self._take(token)
            texts.append(text)
            if reason is not None:
                self._finished = True
                return Cut(kept, "".join(texts), reason)
        return Cut(len(tokens), "".join(texts))

    def _take(self, token: int) -> tuple[str, FinishReason | None]:
        self._left_tokens -= 1
        if token in self._ends:
            return self._close()[0], "stop"
        text, matched = self._scan(self._detokenizer.push(token))
        if matched:
            return text, "stop"
        if self._left_tokens == 0:
            rest, matched = self._close()
            return text + rest, "stop" if matched else "length"
        return text, None

    def _close(self) -> tuple[str, bool]:
        """All text that is left, up to a stop string that the leftover bytes may complete."""
        text, matched = self._scan(self._detokenizer.finish())
        return (text, True) if matched else (text + self._held, False)

    def _scan(self, new: str) -> tuple[str, bool]:
        """Text to release after `new`, and whether a stop string was completed (then nothing stays held)."""
        if not self._matchers:
            return new, False
        text = self._held + new
        starts = [len(self._held) + start for m in self._matchers if (start := m.advance(new)) is not None]
        if starts:
            return text[: min(starts)], True
        safe = len(text) - max(m.length for m in self._matchers)
        self._held = text[safe:]
        return text[:safe], False


class _Matcher:
    """How much of one stop string the text so far ends with: `length` characters, always the most possible."""

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._borders = _borders(stop)
        self.length = 0

    def advance(self, new: str) -> int | None:
        """Where the first match starts, relative to the start of `new` (may be negative); None without one."""
        for end, char in enumerate(new, start=1):
            while self.length and self._stop[self.length] != char:
                self.length = self._borders[self.length - 1]
            self.length += self._stop[self.length] == char
            if self.length == len(self._stop):
                return end - len(self._stop)
        return None


def _borders(word: str) -> list[int]:
    """For each prefix of `word`: the longest proper prefix that is also its suffix, in characters."""
    borders = [0] * len(word)
    length = 0
    for end in range(1, len(word)):
        while length and word[length] != word[end]:
            length = borders[length - 1]
        length += word[length] == word[end]
        borders[end] = length
    return borders
