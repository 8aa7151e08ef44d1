"""A corpus of three dozen documents and tiny models, in place of those of the zoo: its recipes, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from talking import Run
from tiny import tiny_spec

from paceline.zoo import corpus
from paceline.zoo.documents import Document
from paceline.zoo.tokenizer import train_tokenizer

VOCABULARY = 400


def few_documents() -> list[Document]:
    stories = [corpus.story_document(seed, "train") for seed in range(12)]
    return stories + [corpus.dialogue_document(seed, "train") for seed in range(24)]


def build_small(run: Run, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The corpus in `out`, as `zoo corpus` writes it; models of its recipes are tiny from here on."""
    make_small(monkeypatch)
    assert run("zoo", "corpus", out, "--stories", 12, "--dialogues", 24).code == 0
    return out


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both splits are the same few documents, of which the counts asked for take the first."""
    found = few_documents()
    tokenizer = train_tokenizer(found, VOCABULARY)
    monkeypatch.setattr(corpus, "documents", lambda split, stories, dialogues, *others: found[: stories + dialogues])
    monkeypatch.setattr(corpus, "train_tokenizer", lambda documents: tokenizer)
    for user in ("recipes", "diffusion_recipes", "build.stages", "build.plan"):
        monkeypatch.setattr(f"paceline.train.{user}.bundled_target_spec", tiny_target)


def tiny_target(vocab_size: int = VOCABULARY, eos_token_ids: tuple[int, ...] = (0, 2)) -> Any:
    return tiny_spec(
        vocab_size=vocab_size, eos_token_ids=eos_token_ids, num_layers=4, tied_head=True, context_tokens=1024
    )
