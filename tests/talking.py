"""Tiny golden models with a tokenizer, so that their answers are texts (of mostly broken bytes); and commands run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import GOLDEN, edit_config
from tiny_tokenizers import CHATML, save
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from paceline.cli import main

PAIR = GOLDEN / "dflash-v1-full"
TARGET, DRAFT = PAIR / "target", PAIR / "draft"
MASK, END = 254, 255

Run = Callable[..., SimpleNamespace]
"""See `run`."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process; gives code, out and err."""

    def call(*arguments: object) -> SimpleNamespace:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=ended.value.code or 0, out=captured.out, err=captured.err)

    return call


def talking_pair(folder: Path, **config: Any) -> tuple[Path, Path]:
    """Copies of target and drafter; the target as `talking` makes it."""
    shutil.copytree(DRAFT, folder / "draft")
    return talking(TARGET, folder / "target", **config), folder / "draft"


def talking(model: Path, folder: Path, **config: Any) -> Path:
    """A copy of a tiny model in `folder`, with a byte-level tokenizer of 256 ids, and `config` in config.json."""
    shutil.copytree(model, folder)
    save(folder, byte_tokenizer(), {"eos_token": "<|im_end|>", "chat_template": CHATML.replace("<|im_start|>", "")})
    edit_config(folder, **config)
    return folder


def byte_tokenizer() -> Tokenizer:
    """All bytes but 0xC0 and 0xC1, which no text contains; then the mask token and the end token."""
    chars = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set("ÀÁ"))
    assert len(chars) == MASK
    backend = Tokenizer(models.BPE({char: index for index, char in enumerate(chars)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|mask|>", "<|im_end|>"])
    return backend
