"""The table of n-grams: what it finds, and what it refuses to be read from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from talking import byte_tokenizer
from tiny import tiny_spec, tiny_transformer, write_checkpoint
from tiny_tokenizers import save

from paceline.decode.ngram_table import NGRAMS, NgramTable, Owner, load_ngram_table, save_ngram_table
from paceline.errors import CheckpointError

OWNER = Owner(7, 20, 18)
CPU = torch.device("cpu")


def table(length: int = 2, rows: int = 30, top_k: int = 4) -> NgramTable:
    generator = torch.Generator().manual_seed(length)
    every = torch.cartesian_prod(*[torch.arange(6)] * length).view(-1, length)
    contexts = every[torch.randperm(len(every), generator=generator)[:rows]]
    ids = torch.rand(len(contexts), 20, generator=generator).argsort(-1)[:, :top_k]
    scores = torch.randn(len(contexts), top_k, generator=generator)
    return NgramTable(OWNER, contexts, ids, scores, torch.randn(len(contexts), generator=generator))


@pytest.mark.parametrize("length", [1, 2, 3])
def test_it_finds_what_a_dictionary_finds(length: int) -> None:
    """Every run of a random text, by position."""
    ngrams = table(length)
    rows: dict[tuple[int, ...], list[float]] = {}
    for context, ids, scores, rest in zip(ngrams.contexts, ngrams.ids, ngrams.scores, ngrams.rest, strict=True):
        rows[tuple(context.tolist())] = [float(rest)] * 20
        for token, score in zip(ids.tolist(), scores.tolist(), strict=True):
            rows[tuple(context.tolist())][token] = score
    text = np.random.default_rng(0).integers(0, 7, 200).tolist()
    for count in (1, 5, 200):
        places = ngrams.find(text, count)
        contexts = [tuple(text[:end][-length:]) for end in range(201 - count, 201)]
        assert [place is not None for place in places] == [context in rows for context in contexts]
        known = [place for place in places if place is not None]
        assert ngrams.rows(known).tolist() == [rows[context] for context in contexts if context in rows]
    assert length == 1 or ngrams.find([3], 1) == [None]
    assert ngrams.find([], 1) == [None]


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    ngrams = table()
    save_ngram_table(ngrams, tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == [NGRAMS]
    again = load_ngram_table(tmp_path / "new", OWNER, CPU)
    for name in ("contexts", "ids", "scores", "rest"):
        assert torch.equal(getattr(ngrams, name), getattr(again, name))
    assert again.rows([3, 0]).tolist() == ngrams.rows([3, 0]).tolist()


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        (Owner(8, 20, 18), "is of another verifier: its weights checksum is 7, here it is 8"),
        (Owner(7, 21, 18), "its vocab size is 20, here it is 21"),
        (Owner(7, 20, 17), "its tokenizer size is 18, here it is 17"),
    ],
)
def test_the_table_of_another_verifier_is_refused(owner: Owner, told: str, tmp_path: Path) -> None:
    save_ngram_table(table(), tmp_path)
    with pytest.raises(CheckpointError, match=told):
        load_ngram_table(tmp_path, owner, CPU)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no ngrams.npz. Make it: paceline train ngram"):
        load_ngram_table(tmp_path, OWNER, CPU)
    save_ngram_table(table(), tmp_path)
    whole = (tmp_path / NGRAMS).read_bytes()
    for part in (b"", whole[:40], whole[: len(whole) // 2], b"[]"):
        (tmp_path / NGRAMS).write_bytes(part)
        with pytest.raises(CheckpointError, match="cannot be read"):
            load_ngram_table(tmp_path, OWNER, CPU)


@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        ("owner", lambda it: it[:2], "does not say whose it is"),
        ("owner", None, "cannot be read"),
        ("ids", lambda it: it + 17, "ids that are not among the verifier's 20"),
        ("ids", lambda it: it - 20, "ids that are not among the verifier's 20"),
        ("ids", lambda it: it[:, :2], "do not fit together"),
        ("ids", lambda it: it.astype(np.float32), "do not fit together"),
        ("scores", lambda it: it.astype(np.float64), "do not fit together"),
        ("rest", lambda it: it[1:], "do not fit together"),
        ("rest", lambda it: it[:, None], "do not fit together"),
        ("contexts", lambda it: it[:, :0], "do not fit together"),
        ("rest", lambda it: it * np.nan, "scores that are no numbers"),
        ("scores", lambda it: np.full_like(it, -np.inf), "scores that are no numbers"),
        ("contexts", lambda it: it.astype(object), "cannot be read"),
    ],
)
def test_files_of_other_arrays(name: str, changed: Any, told: str, tmp_path: Path) -> None:
    save_ngram_table(table(), tmp_path)
    with np.load(tmp_path / NGRAMS) as file:
        arrays = dict(file)
    array = arrays.pop(name)
    more = {} if changed is None else {name: changed(array)}
    np.savez(tmp_path / NGRAMS, **arrays, **more)
    with pytest.raises(CheckpointError, match=told):
        load_ngram_table(tmp_path, OWNER, CPU)


def test_its_owner_is_known_by_weights_and_tokens(tmp_path: Path) -> None:
    models = [tiny_transformer(tiny_spec(vocab_size=264), seed, torch.float32) for seed in (0, 1)]
    owners = [Owner.of(write_checkpoint(tmp_path / f"{index}", model), model) for index, model in enumerate(models)]
    save(tmp_path / "0", byte_tokenizer(), {})
    with_tokenizer = Owner.of(tmp_path / "0", models[0])
    assert [owner[1:] for owner in (*owners, with_tokenizer)] == [(264, 0), (264, 0), (264, 256)]
    assert with_tokenizer[0] == owners[0][0] != owners[1][0]
