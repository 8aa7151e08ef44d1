"""A table of n-grams against its definition: counted with dictionaries, and read window by window."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny_spec, tiny_transformer

from paceline.decode.ngram_table import Owner
from paceline.errors import ConfigError, TrainingError
from paceline.models.attention import dense_attention
from paceline.train.data import load_windows
from paceline.train.diffusion_options import NgramConfig
from paceline.train.ngram_table import frequent_contexts, ngram_table

Context = tuple[int, ...]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """40 documents of 30 tokens out of 6, some more frequent than others."""
    tokens = (np.random.default_rng(0).integers(0, 36, 1200) ** 0.5).astype(np.uint16)
    offsets, kinds = np.arange(0, 1201, 30), np.zeros(40, dtype=np.uint8)
    np.savez(tmp_path / "train.npz", tokens=tokens, starts=offsets, kinds=kinds)
    return tmp_path


def counted(windows: list[list[int]], length: int) -> dict[Context, list[tuple[int, int]]]:
    """Where each context ends, the most frequent first: window and place."""
    found: dict[Context, list[tuple[int, int]]] = defaultdict(list)
    for index, window in enumerate(windows):
        for end in range(length - 1, len(window)):
            found[tuple(window[end - length + 1 : end + 1])].append((index, end))
    return {context: found[context] for context in sorted(found, key=lambda each: (-len(found[each]), each))}


@pytest.mark.parametrize("most", [7, 10_000])
@pytest.mark.parametrize(("length", "places"), [(1, 3), (2, 1), (3, 4), (30, 2)])
def test_contexts_are_counted_inside_windows(length: int, places: int, most: int) -> None:
    windows = np.random.default_rng(1).integers(0, 5, (7, 30))
    found = frequent_contexts(windows, length, most, places)
    expected = list(counted(windows.tolist(), length).items())[:most]
    assert found.contexts.tolist() == [list(context) for context, _ in expected]
    stand = [(owner, *end) for owner, (_, ends) in enumerate(expected) for end in ends[:places]]
    assert list(zip(*(each.tolist() for each in (found.owners, found.windows, found.ends)), strict=True)) == stand


@pytest.mark.parametrize(("length", "places", "most"), [(1, 5, 100), (2, 3, 20), (3, 1, 150)])
def test_rows_are_the_mean_of_what_the_verifier_says(corpus: Path, length: int, places: int, most: int) -> None:
    """150 contexts are three parts. float64; a mean of one to five numbers may round differently."""
    model = tiny_transformer(tiny_spec())
    config = NgramConfig(corpus, length, most, places, top_k=6, window_tokens=16, windows_per_batch=3)
    found = ngram_table(model, config, Owner(1, 64, 0))
    windows = load_windows(corpus / "train.npz", 16).tokens[:, :-1].long()
    attend = dense_attention(1, model.spec.windows)
    logits = [model.head(model(window, torch.arange(16), attend).hidden) for window in windows]
    expected = list(counted(windows.tolist(), length).items())[:most]
    assert found.contexts.tolist() == [list(context) for context, _ in expected]
    for row, (_, ends) in enumerate(expected):
        told = torch.stack([logits[window][end] for window, end in ends[:places]])
        law, level = told.softmax(-1).mean(0), told.logsumexp(-1).mean()
        values, ids = law.sort(descending=True, stable=True)
        assert found.ids[row].tolist() == ids[:6].tolist()
        assert torch.allclose(found.scores[row], values[:6].log() + level, rtol=0, atol=1e-12)
        rest = (values[6:].sum() / 58).log() + level
        assert float(found.rest[row]) == pytest.approx(float(rest), abs=1e-11)


def test_the_mass_of_a_row_is_one_and_no_id_is_ruled_out(corpus: Path) -> None:
    """Also where the verifier is so sure that all others round to 0."""
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    model.head.weight.mul_(1000)
    config = NgramConfig(corpus, 2, places=1, top_k=6, window_tokens=16)
    found = ngram_table(model, config, Owner(1, 64, 0))
    rows = found.rows(range(len(found.contexts)))
    assert bool(rows.isfinite().all())
    assert torch.equal(rows.argmax(-1), found.ids[:, 0])
    assert bool((found.scores >= found.rest.unsqueeze(-1)).all())
    assert float(rows.softmax(-1).amax(-1).min()) > 0.5


def test_what_cannot_be_done(corpus: Path, tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec())
    with pytest.raises(ConfigError, match="context_tokens is 9, window_tokens is 8"):
        ngram_table(model, NgramConfig(corpus, 9, window_tokens=8), Owner(1, 64, 0))
    with pytest.raises(ConfigError, match="top_k is 64, of 64 tokens"):
        ngram_table(model, NgramConfig(corpus, top_k=64, window_tokens=8), Owner(1, 64, 0))
    with pytest.raises(TrainingError, match="does not exist"):
        ngram_table(model, NgramConfig(tmp_path / "nothing"), Owner(1, 64, 0))
