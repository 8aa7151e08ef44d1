"""What passes cost: measured once, kept on disk, known by what they depend on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scripted import drafter_of
from tiny import tiny_spec, tiny_transformer

from paceline.decode.costs import CostBook, cost_folder
from paceline.decode.drafting import Drafting
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target


def book(folder: Path, **settings: int) -> CostBook:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    drafter = drafter_of(model)
    target = Target(model, 64, drafter.spec.target_layer_ids)
    return CostBook(Drafting(target, drafter, Speculation(**{"candidate_num": 3, **settings})), (2, 4), folder)


def test_costs_are_measured_and_less_work_is_never_dearer(tmp_path: Path) -> None:
    costs = book(tmp_path).costs(1, 10)
    assert sorted(costs.read) == [1, 2, 4, 8, 12, 16, 24, 32, 48, 64]
    assert list(costs.draft) == [2, 4]
    for curve in (costs.read, costs.draft):
        seconds = [curve[size] for size in sorted(curve)]
        assert seconds == sorted(seconds)
        assert seconds[0] > 0.0
        assert seconds[-1] < 5.0
    assert sorted(book(tmp_path).costs(3, 10).read)[:2] == [4, 8], "three sequences are measured as four"


def test_of_slow_passes_few_sizes_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A large model is not to keep its first answer waiting."""
    clock = itertools.count()
    monkeypatch.setattr("paceline.decode.costs.time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    costs = book(tmp_path).costs(1, 10)
    assert sorted(costs.read) == [1, 16, 64]
    assert costs.reading(2) == costs.reading(40) == 1.0


def test_kept_on_disk_and_read_again(tmp_path: Path) -> None:
    first = book(tmp_path).costs(1, 10)
    (kept,) = tmp_path.iterdir()
    assert book(tmp_path).costs(1, 200) == first, "one bucket"
    told = json.loads(kept.read_text())
    told["read"]["1"] = 77.0
    kept.write_text(json.dumps(told))
    assert book(tmp_path).costs(1, 10).reading(1) == 77.0
    assert book(tmp_path, max_nodes=5).costs(1, 10).reading(1) != 77.0, "other settings are measured anew"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "[]",
        '{"read": 3, "draft": {}}',
        '{"read": {"a": 1}, "draft": {}}',
        '{"read": {}, "draft": {}}',
        '{"read": {"1": 0.0}, "draft": {"4": 1.0}}',
    ],
)
def test_a_broken_file_is_measured_anew(tmp_path: Path, broken: str) -> None:
    book(tmp_path).costs(1, 10)
    (kept,) = tmp_path.iterdir()
    kept.write_text(broken)
    assert book(tmp_path).costs(1, 10).reading(1) > 0.0
    assert json.loads(kept.read_text())["of"]["batch"] == 1


def test_a_folder_that_cannot_be_written_to_is_no_fault(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    assert book(place / "below").costs(1, 10).reading(1) > 0.0


def test_the_folder_is_where_caches_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cost_folder() == tmp_path / "paceline" / "costs"


def test_in_the_middle_of_answers_nothing_is_measured(tmp_path: Path) -> None:
    """A batch that shrinks, or a text that grows, into another bucket leans on the nearest known one."""
    it = book(tmp_path)
    known = it.costs(4, 10)
    for batch, context in ((2, 10), (1, 10), (4, 300), (7, 2000)):
        found = it.costs(batch, context, False)
        assert found.read == known.read
        assert len(list(tmp_path.iterdir())) == 1
    assert it.costs(4, 300, False) == known, "as they are, for another length"
    assert it.costs(8, 10, False).drafting(2) == known.drafting(4), "a draft for twice as many costs as twice the rows"
    measured = it.costs(2, 10)
    assert sorted(measured.read)[0] == 2, "before the next answers begin it is measured"
    assert it.costs(2, 10, False) == measured
    assert it.costs(1, 10, False).read == measured.read, "two are nearer to one than four"


def test_what_is_on_disk_is_read_in_the_middle_too(tmp_path: Path) -> None:
    other = book(tmp_path).costs(2, 10)
    it = book(tmp_path)
    it.costs(4, 10)
    assert it.costs(2, 10, False) == other
    assert len(list(tmp_path.iterdir())) == 2


def test_where_nothing_is_known_there_is_no_neighbour(tmp_path: Path) -> None:
    assert book(tmp_path).costs(2, 10, False).reading(2) > 0.0
