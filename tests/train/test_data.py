"""Windows of a token file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.errors import TrainingError
from paceline.train.data import Windows, load_windows, repeat_tail


def write(path: Path, documents: list[list[int]]) -> Path:
    starts = np.cumsum([0, *map(len, documents)])
    tokens = np.array([token for document in documents for token in document], dtype=np.uint16)
    np.savez(path, tokens=tokens, starts=starts.astype(np.int64), kinds=np.zeros(len(documents), dtype=np.uint8))
    return path


def numbered(count: int) -> Windows:
    return Windows(torch.arange(count).unsqueeze(1) * torch.tensor([1, 1, 1], dtype=torch.int32))


def first_column(windows: Windows, index: int, size: int, seed: int = 0) -> list[int]:
    return windows.batch(seed, index, size)[:, 0].tolist()


def test_a_batch_is_a_function_of_seed_and_index() -> None:
    windows = numbered(50)
    assert first_column(windows, 7, 4) == first_column(numbered(50), 7, 4)
    assert first_column(windows, 7, 4) != first_column(windows, 8, 4)
    assert first_column(windows, 7, 4) != first_column(windows, 7, 4, seed=1)


@pytest.mark.parametrize("size", [1, 3, 7, 10, 25])
def test_every_epoch_visits_every_window_once(size: int) -> None:
    """Also where a batch reaches over the end of an epoch, or over several."""
    windows, count = numbered(10), 10
    batches = -(-3 * count // size)
    visited = [row for index in range(batches) for row in first_column(windows, index, size)]
    epochs = [visited[start : start + count] for start in range(0, 3 * count, count)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_the_order_does_not_depend_on_the_batch_size() -> None:
    windows = numbered(10)
    singly = [first_column(windows, index, 1)[0] for index in range(24)]
    assert [row for index in range(3) for row in first_column(windows, index, 8)] == singly


def test_windows_hold_the_documents_end_to_end_and_the_token_that_follows(tmp_path: Path) -> None:
    documents = [[10, 11, 12], [20, 21], [30, 31, 32, 33], [40]]
    windows = load_windows(write(tmp_path / "train.npz", documents), length=4).tokens
    assert windows.shape == (2, 5)
    flat = [*windows[0].tolist(), *windows[1].tolist()[1:]]
    assert windows[1, 0] == windows[0, -1], "a window begins with the token the last one predicts"
    order = []
    while flat:
        document = next(d for d in documents if d[0] == flat[0])
        assert flat[: len(document)] == document[: len(flat)]
        order.append(document[0])
        flat = flat[len(document) :]
    assert len(order) == len(set(order))
    again = load_windows(tmp_path / "train.npz", length=4, seed=0)
    assert torch.equal(again.tokens, windows)


def test_documents_are_shuffled_by_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "train.npz", [[n] for n in range(100)])
    orders = {tuple(load_windows(path, 99, seed).tokens[0].tolist()) for seed in range(3)}
    assert len(orders) == 3
    assert all(sorted(order) == list(range(100)) for order in orders)


def test_large_ids_survive(tmp_path: Path) -> None:
    """uint16 goes up to 65535: it must not come back negative."""
    path = write(tmp_path / "train.npz", [[65535] * 9])
    assert load_windows(path, 4).batch(0, 0, 1).unique().tolist() == [65535]


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="does not exist"):
        load_windows(tmp_path / "train.npz", 4)


@pytest.mark.parametrize("content", [b"", b"PK half of a file"])
def test_half_a_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train.npz").write_bytes(content)
    with pytest.raises(TrainingError, match="cannot be read"):
        load_windows(tmp_path / "train.npz", 4)


@pytest.mark.parametrize("tokens", [0, 3, 4])
def test_less_than_one_window(tmp_path: Path, tokens: int) -> None:
    path = write(tmp_path / "train.npz", [[1] * tokens])
    with pytest.raises(TrainingError, match=f"{tokens} tokens"):
        load_windows(path, 4)


def test_the_tail_repeats() -> None:
    """Row by row as its definition: a token behind the start is the one a period before it."""
    windows = torch.randint(100, (5, 12), generator=torch.Generator().manual_seed(0))
    starts, periods = torch.tensor([5, 1, 7, 12, 11]), torch.tensor([2, 1, 7, 3, 4])
    for before, after, start, period in zip(
        windows, repeat_tail(windows, starts, periods), starts, periods, strict=True
    ):
        expected = before[:start].tolist()
        while len(expected) < 12:
            expected.append(expected[-int(period)])
        assert after.tolist() == expected
