"""What the recipes share: the folder that a checkpoint is made in, and what is asked of a tokenizer.

Knows nothing of what is trained.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import ConfigError
from paceline.lock import alone_in
from paceline.text import Tokenizer
from paceline.train.fit.processes import join

if TYPE_CHECKING:
    from accelerate import PartialState

__all__ = ["copy_tokenizer", "end_ids_of", "mask_id_of", "opening_of", "team_in"]

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""The last one, as some chat models declare the end of a turn only there."""


@contextmanager
def team_in(out: Path) -> Iterator[PartialState]:
    """The processes that train together, of which the first one keeps others out of the folder."""
    team = join()
    with alone_in(out) if team.is_main_process else nullcontext():
        yield team


def opening_of(tokenizer: Tokenizer, turn_start: str) -> tuple[int, ...]:
    """The ids of what opens an assistant's turn.

    Raises:
        ConfigError: nothing, for this tokenizer.
    """
    # A tokenizer may begin every text with a start token, which stands nowhere inside a document.
    opening = tuple(tokenizer.encode(turn_start)[len(tokenizer.encode("")) :])
    if not opening:
        raise ConfigError(f"The tokenizer lacks the turn start {turn_start!r}.", remedy="Name the one it has.")
    return opening


def end_ids_of(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What ends a text, and what ends a turn of a chat."""
    turn_end = tokenizer.token_id("<|im_end|>")
    return tuple(sorted(tokenizer.eos_ids | ({turn_end} if turn_end is not None else set())))


def copy_tokenizer(folder: Path, out: Path) -> None:
    """Give a checkpoint the tokenizer, the chat template and the end tokens of another one."""
    out.mkdir(parents=True, exist_ok=True)
    for name in _TOKENIZER_FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / name)


def mask_id_of(tokenizer: Tokenizer, name: str) -> int:
    """The id of the token that stands for an empty slot.

    Raises:
        ConfigError: the tokenizer has no such token.
    """
    mask = tokenizer.token_id(name)
    if mask is None:
        raise ConfigError(f"The tokenizer lacks the mask token {name!r}.", remedy="Name the one it has.")
    return mask
