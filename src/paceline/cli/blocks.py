"""How `--show-blocks` and the demo show rounds: which tokens were drafted and accepted, which are the target's own.

On a colour terminal every round has one of two backgrounds, and the target's own token in it is underlined. Without
colour, ⟦ ⟧ enclose what was drafted: `Once ⟦upon a time⟧ there ⟦was⟧ a`. An APD step keeps its first token in any case:
it is shown as the target's own is, and what the verifier let pass as drafted. Of a masked-diffusion answer, every token
belongs to the pass that fixed it, which may be long before its text is final. Knows chunks, nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from rich.console import Console
from rich.style import Style
from rich.text import Text

from paceline.cli.output import printable, write
from paceline.completion import Chunk
from paceline.text import Detokenizer, Tokenizer

__all__ = ["Blocks", "Part", "plain_marks", "show_answer", "show_blocks", "styled"]

_BACKGROUNDS = ("#1d4e89", "#1b6b4a")
_DRAFTED = tuple(Style(color="#ffffff", bgcolor=background) for background in _BACKGROUNDS)
_OWN = tuple(style + Style(underline=True) for style in _DRAFTED)


class Part(NamedTuple):
    """A piece of text of one round (0: the prompt pass); `drafted` or fixed by it, or the target's own token."""

    text: str
    round: int
    drafted: bool


@dataclass(slots=True)
class Blocks:
    """Splits the text of an answer into parts, chunk by chunk; without a tokenizer the text is the token ids."""

    tokenizer: Tokenizer | None
    rounds: int = 0
    _detokenizer: Detokenizer = field(init=False)
    _owners: list[tuple[int, bool]] = field(default_factory=list, init=False)
    _tokens: int = field(default=0, init=False)
    _fixed: dict[int, int] = field(default_factory=dict, init=False)  # place in the answer -> pass

    def __post_init__(self) -> None:
        self._detokenizer = Detokenizer(self.tokenizer)

    def split(self, chunk: Chunk) -> list[Part]:
        """The parts of what `chunk` shows. Text that was held back still counts to its own round."""
        pieces = [self._piece(token) for token in chunk.token_ids]
        for piece, owner in zip(pieces, self._owned(chunk), strict=True):
            self._owners += [owner] * len(piece)
        text = "".join(pieces) if self.tokenizer is None else chunk.text
        # The end of an answer may show a broken character that no token has completed.
        owners = [self._owners.pop(0) if self._owners else (self.rounds, False) for _ in text]
        grouped = groupby(zip(text, owners, strict=True), key=lambda pair: pair[1])
        return [Part("".join(char for char, _ in pairs), *owner) for owner, pairs in grouped]

    def _owned(self, chunk: Chunk) -> list[tuple[int, bool]]:
        """Whose each token of `chunk` is: its round, and whether it was drafted or fixed there."""
        skipped = drafted = 0
        if chunk.round is not None:
            self.rounds += 1
            skipped, drafted = chunk.round.unjudged, chunk.round.accepted
            self._fixed |= dict.fromkeys(chunk.round.positions, self.rounds)
        first, self._tokens = self._tokens, self._tokens + len(chunk.token_ids)
        kept = range(first + skipped, first + skipped + drafted)
        return [
            (self._fixed[place], True) if place in self._fixed else (self.rounds, place in kept)
            for place in range(first, self._tokens)
        ]

    def _piece(self, token: int) -> str:
        return f"{token} " if self.tokenizer is None else self._detokenizer.push(token)


def styled(part: Part) -> Text:
    """A part in colours."""
    if part.round == 0:
        return Text(printable(part.text), style="underline dim")
    return Text(printable(part.text), style=(_DRAFTED if part.drafted else _OWN)[part.round % 2])


def plain_marks(parts: Iterator[Part]) -> Iterator[str]:
    """Parts as text with ⟦ ⟧ around what was drafted, a pair for each round."""
    opened: int | None = None
    for part in parts:
        if opened is not None and (not part.drafted or part.round != opened):
            yield "⟧"
            opened = None
        if part.drafted and opened is None:
            yield "⟦"
            opened = part.round
        yield part.text
    if opened is not None:
        yield "⟧"


def show_blocks(chunks: Iterable[Chunk], tokenizer: Tokenizer | None, record: Text | None = None) -> None:
    """Stream an answer to stdout with its blocks visible; colours on a colour terminal, else marks.

    Args:
        record: takes the coloured text as well.
    """
    console, blocks = Console(highlight=False), Blocks(tokenizer)

    def parts() -> Iterator[Part]:
        for chunk in chunks:
            for part in blocks.split(chunk):
                if record is not None:
                    record.append_text(styled(part))
                yield part

    if console.color_system is None or console.no_color:
        for text in plain_marks(parts()):
            write(text)
    else:
        for part in parts():
            console.print(styled(part), end="", soft_wrap=True)


def show_answer(chunks: Iterable[Chunk], tokenizer: Tokenizer | None, blocks: bool) -> None:
    """Stream an answer to stdout, on request with its blocks visible; as token ids where there is no tokenizer."""
    if blocks:
        show_blocks(chunks, tokenizer)
        return
    for chunk in chunks:
        write(chunk.text if tokenizer else "".join(f"{token} " for token in chunk.token_ids))
