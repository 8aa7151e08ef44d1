"""The training text: library documents and generated ones, and the arrays a trainer reads.

`paceline zoo corpus DIR` calls `build`. Knows nothing of models or of training.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from paceline.errors import ConfigError
from paceline.files import write_atomically
from paceline.zoo.dialogues import dialogue
from paceline.zoo.documents import HELDOUT_FIRST_SEED, HELDOUT_PER_MILLE, KINDS, Document, Message, Split
from paceline.zoo.modules import module
from paceline.zoo.reports import report
from paceline.zoo.sources import library_documents
from paceline.zoo.stories import story
from paceline.zoo.tasks import drill, task_of
from paceline.zoo.tokenizer import encode_document, load, save, train_tokenizer

STORIES, DIALOGUES, MODULES = 14_000, 22_000, 1_500
COPIED_SHARE, PAIR_CHARS = 0.25, 40
REPORT_EVERY = 4  # of the "story" documents, each fourth is a report


def documents(
    split: Split,
    story_count: int = STORIES,
    dialogue_count: int = DIALOGUES,
    module_count: int = MODULES,
    task_count: int = 0,
    drill_count: int = 0,
    library: bool = True,
) -> Iterator[Document]:
    """The documents of a split in a fixed order, without doubles.

    The counts are those of the training split; the held-out one has 4 % as many generated
    documents, from seeds that training never sees.
    """
    seen: set[str] = set()
    for document in _all_documents(split, story_count, dialogue_count, module_count, task_count, drill_count, library):
        text = document.plain()
        if document.split == split and text not in seen:
            seen.add(text)
            yield document


def _all_documents(
    split: Split,
    story_count: int,
    dialogue_count: int,
    module_count: int,
    task_count: int,
    drill_count: int,
    library: bool,
) -> Iterator[Document]:
    yield from _without_copies(list(library_documents())) if library else ()
    yield from (module_document(seed, split) for seed in _seeds(split, module_count))
    yield from (story_document(seed, split) for seed in _seeds(split, story_count))
    yield from (dialogue_document(seed, split) for seed in _seeds(split, dialogue_count))
    yield from (task_document(seed, split) for seed in _seeds(split, task_count))
    yield from (drill_document(seed, split) for seed in _seeds(split, drill_count))


def _without_copies(library: list[Document]) -> Iterator[Document]:
    """The documents, without training ones that say again what a held-out one says, as vendored copies do."""
    heldout = {pair for document in library if document.split == "heldout" for pair in _line_pairs(document.text)}
    for document in library:
        pairs = _line_pairs(document.text)
        copied = sum(pair in heldout for pair in pairs)
        if document.split == "heldout" or copied <= COPIED_SHARE * len(pairs):
            yield document


def _line_pairs(text: str) -> list[str]:
    """Two lines in a row that are not blank, where they are long enough to say something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pairs = [f"{first}\n{second}" for first, second in pairwise(lines)]
    return [pair for pair in pairs if len(pair) >= PAIR_CHARS]


def _seeds(split: Split, train_count: int) -> range:
    if split == "train":
        return range(train_count)
    count = train_count * HELDOUT_PER_MILLE // 1000
    return range(HELDOUT_FIRST_SEED, HELDOUT_FIRST_SEED + count)


def module_document(seed: int, split: Split) -> Document:
    """The Python module of a seed."""
    return Document("code", f"module:{seed}", split, module(seed))


def story_document(seed: int, split: Split) -> Document:
    """The story or report of a seed."""
    write: Callable[[int], str] = report if seed % REPORT_EVERY == 0 else story
    return Document("story", f"{write.__name__}:{seed}", split, write(seed))


def dialogue_document(seed: int, split: Split) -> Document:
    """The dialogue of a seed."""
    return Document("dialogue", f"dialogue:{seed}", split, messages=tuple(dialogue(seed)))


def task_document(seed: int, split: Split) -> Document:
    """The task of a seed, the kinds in turn, with its answer."""
    found = task_of(seed)
    return Document("dialogue", f"task:{seed}", split, messages=_turns(found.question, found.answer))


def drill_document(seed: int, split: Split) -> Document:
    """The sums of a seed, worked out."""
    return Document("dialogue", f"drill:{seed}", split, messages=_turns(*drill(seed)))


def _turns(question: str, answer: str) -> tuple[Message, ...]:
    return {"role": "user", "content": question}, {"role": "assistant", "content": answer}


def write_arrays(tokenizer: Tokenizer, chosen: list[Document], path: Path) -> None:
    """Write tokens (uint16 or uint32), starts (int64, documents + 1) and kinds (uint8); print the totals."""
    encoded = [encode_document(tokenizer, document) for document in chosen]
    starts = np.cumsum([0, *(len(ids) for ids in encoded)], dtype=np.int64)
    width = np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32
    tokens = np.fromiter((i for ids in encoded for i in ids), dtype=width, count=int(starts[-1]))
    kinds = np.array([KINDS.index(document.kind) for document in chosen], dtype=np.uint8)
    write_atomically(path, lambda draft: np.savez(draft, tokens=tokens, starts=starts, kinds=kinds))
    for index, kind in enumerate(KINDS):
        total_bytes = sum(len(d.plain().encode()) for d in chosen if d.kind == kind)
        total_tokens = int(np.diff(starts)[kinds == index].sum())
        print(
            f"{path.stem:8} {kind:9} {int((kinds == index).sum()):7,} documents"
            f" {total_bytes:11,} bytes {total_tokens:10,} tokens"
            f" {total_bytes / max(total_tokens, 1):5.2f} bytes/token"
        )


def build(
    out: Path,
    tokenizer: Path | None = None,
    stories: int = STORIES,
    dialogues: int = DIALOGUES,
    modules: int = MODULES,
    tasks: int = 0,
    drills: int = 0,
    library: bool = True,
) -> None:
    """Write `out`/tokenizer, train.npz and heldout.npz.

    Args:
        tokenizer: folder of a trained tokenizer to use instead of a new one.
        stories, dialogues, modules, tasks, drills: generated documents of the training split.
        library: whether the text that comes with Python is in it.

    Raises:
        ConfigError: the tokenizer cannot be read, or there is too little text to train one.
        OSError: `out` cannot be written; told before anything is generated.
    """
    out.mkdir(parents=True, exist_ok=True)  # before the work: a folder that cannot be written is told at once
    counts = (stories, dialogues, modules, tasks, drills, library)
    train = list(documents("train", *counts))
    try:
        encoder = load(tokenizer) if tokenizer else train_tokenizer(train)
    except Exception as error:  # `tokenizers` raises plain Exception, and too little text a ValueError
        raise ConfigError(f"There is no tokenizer: {error}.") from error
    for stale in ("train.npz", "heldout.npz"):  # ids of another tokenizer, should this be killed before the new ones
        (out / stale).unlink(missing_ok=True)
    save(encoder, out / "tokenizer")
    write_arrays(encoder, train, out / "train.npz")
    write_arrays(encoder, list(documents("heldout", *counts)), out / "heldout.npz")
