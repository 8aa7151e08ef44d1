"""What passes cost: measured once, kept on disk, known by what they depend on."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted import drafter_of
from tiny import tiny_spec, tiny_transformer

from paceline import native
from paceline.decode.costs import CostBook, _curve, _runs, _steady, cost_folder
from paceline.decode.drafting import Drafting
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.models.linear import Linear
from paceline.models.transformer import prepare


def book(folder: Path, context_tokens: int = 512, **settings: Any) -> CostBook:
    model = tiny_transformer(tiny_spec(context_tokens=context_tokens), dtype=torch.float32)
    drafter = drafter_of(model)
    target = Target(model, 64, drafter.spec.target_layer_ids)
    return CostBook(Drafting(target, drafter, Speculation(**{"candidate_num": 3, **settings})), (2, 4), folder)


def test_costs_are_measured(tmp_path: Path) -> None:
    costs = book(tmp_path).costs(10, True)
    assert list(costs.read) == [1, 2, 4, 6, 8, 12, 16, 24, 32, 33], "an anchor and 32 nodes"
    assert list(costs.draft) == list(costs.chain) == [2, 4]
    assert book(tmp_path, candidate_num=1).costs(10, True).chain == {}, "it is chains anyway"
    assert all(0.0 < seconds < 5.0 for curve in (costs.read, costs.draft, costs.chain) for seconds in curve.values())
    assert list(book(tmp_path, candidate_num=1).costs(10, True).read) == [1, 2, 4], "an anchor and three drafts"
    assert max(book(tmp_path, max_nodes=70, lookup=9).costs(10, True).read) == 80


def test_less_work_is_never_dearer() -> None:
    assert _curve({1: [5.0, 4.0], 2: [9.0, 3.0], 4: [8.0, 8.0]}) == {1: 3.0, 2: 3.0, 4: 8.0}


def test_sizes_take_turns_and_slow_ones_get_few() -> None:
    """A large model is not to keep its first answer waiting: seven passes, of which the first is not timed."""
    made: list[int] = []
    fast = _runs({size: partial(made.append, size) for size in (1, 2, 4, 8)})
    assert made[:12] == [1, *(1, 8, 4) * 2, 1, 2, 4, 8, 1]
    assert {size: len(seconds) for size, seconds in fast.items()} == {1: 9, 2: 7, 4: 9, 8: 9}
    slow = _runs({size: partial(time.sleep, 0.25) for size in (1, 2, 4, 8)})
    assert {size: len(seconds) for size, seconds in slow.items()} == {1: 2, 4: 2, 8: 2}


def test_restless_measurements_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert _steady({1: [3.0, 1.0, 1.2], 4: [5.0, 5.0]})
    assert not _steady({1: [3.0, 1.0, 1.2], 4: [5.0, 7.0]})
    monkeypatch.setattr("paceline.decode.costs._steady", lambda runs: False)
    assert book(tmp_path).costs(10, True).reading(1) > 0.0
    assert not list(tmp_path.iterdir())


def test_kept_on_disk_and_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("paceline.decode.costs._steady", lambda runs: True)
    first = book(tmp_path).costs(10, True)
    (kept,) = tmp_path.iterdir()
    assert book(tmp_path).costs(90, True) == first, "one bucket"
    told = json.loads(kept.read_text())
    told["read"]["1"] = 77.0
    kept.write_text(json.dumps(told))
    assert book(tmp_path).costs(10, True).reading(1) == 77.0
    assert book(tmp_path, lookup_factor=3.0).costs(10, True).reading(1) == 77.0, "no matter of the passes"
    assert book(tmp_path, max_nodes=5).costs(10, True).reading(1) != 77.0, "other settings are measured anew"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
def test_native_passes_have_costs_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("paceline.decode.costs._steady", lambda runs: True)
    book(tmp_path).costs(10, True)
    monkeypatch.setenv(native.VARIABLE, "off")
    book(tmp_path).costs(10, True)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
def test_what_packs_otherwise_has_costs_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """int8 weights read in half the time, and a later build may be faster."""
    monkeypatch.setattr("paceline.decode.costs._steady", lambda runs: True)
    for arithmetic in (native.EXACT, native.Arithmetic("weights", 32)):
        found = book(tmp_path)
        for linear in found.drafting.target.model.modules():
            if isinstance(linear, Linear):
                linear.arithmetic = arithmetic
        prepare(found.drafting.target.model)
        found.costs(10, True)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(native, "build", lambda: "another")
    replace(found, _known={}).costs(10, True)
    assert len(list(tmp_path.iterdir())) == 3


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
def test_a_broken_file_is_measured_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str) -> None:
    monkeypatch.setattr("paceline.decode.costs._steady", lambda runs: True)
    book(tmp_path).costs(10, True)
    (kept,) = tmp_path.iterdir()
    kept.write_text(broken)
    assert book(tmp_path).costs(10, True).reading(1) > 0.0
    assert json.loads(kept.read_text())["of"]["context"] == 64


def test_a_folder_that_cannot_be_written_to_is_no_fault(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    assert book(place / "below").costs(10, True).reading(1) > 0.0


def test_the_folder_is_where_caches_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cost_folder() == tmp_path / "paceline" / "costs"


def test_in_the_middle_of_an_answer_the_nearest_context_stands_in(tmp_path: Path) -> None:
    it = book(tmp_path, 8000)
    near, far = it.costs(10, True), it.costs(4000, True)
    assert it.costs(300, False) is near, "of 256 nothing is known, and 64 is nearer than 4,096"
    assert it.costs(3000, False) is far
    assert it.costs(300, True) not in (near, far), "before the next answer it is measured"


def test_what_is_on_disk_is_read_in_the_middle_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("paceline.decode.costs._steady", lambda runs: True)
    other = book(tmp_path, 8000).costs(1000, True)
    it = book(tmp_path, 8000)
    it.costs(10, True)
    assert it.costs(1000, False) == other
    assert len(list(tmp_path.iterdir())) == 2


def test_where_nothing_is_known_there_is_no_neighbour(tmp_path: Path) -> None:
    assert book(tmp_path).costs(10, False).reading(2) > 0.0
