"""What a training document is. Knows nothing of where it comes from or how it is encoded."""

import hashlib
from dataclasses import dataclass
from typing import Literal, TypedDict

Kind = Literal["code", "prose", "story", "dialogue"]
Split = Literal["train", "heldout"]
KINDS: tuple[Kind, ...] = ("code", "prose", "story", "dialogue")
HELDOUT_PER_MILLE = 40
HELDOUT_FIRST_SEED = 1_000_000_000
"""Generated documents of seeds from here on are held out."""


class Message(TypedDict):
    """One turn of a chat; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Document:
    """One document: `text`, or for a dialogue `messages` and an empty text."""

    kind: Kind
    name: str
    split: Split
    text: str = ""
    messages: tuple[Message, ...] = ()

    def plain(self) -> str:
        """All words of the document, without control tokens."""
        return self.text or "\n".join(m["content"] for m in self.messages)


def split_of(name: str) -> Split:
    """The split of everything that comes from one file, or has one name: 4 % are held out, by a stable hash."""
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return "heldout" if digest % 1000 < HELDOUT_PER_MILLE else "train"
