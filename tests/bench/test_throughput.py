"""Throughput from end to end on tiny checkpoints: everybody gets the same arrivals, and gives the same answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny import GOLDEN

from paceline.bench.report import save_plot
from paceline.bench.throughput import DEFINITIONS, _arrivals, bench_throughput, goodput
from paceline.bench.throughput_options import ThroughputBench
from paceline.bench.throughput_report import show_throughput
from paceline.errors import ConfigError
from paceline.request import Sampling

CASE = GOLDEN / "dflash-v1-full"


@pytest.fixture(autouse=True)
def costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a controller measures is not kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def options(tmp_path: Path) -> ThroughputBench:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt_ids": ids}) for ids in ([1, 2, 3], [4, 5], [7, 8, 9, 10])))
    return ThroughputBench(
        CASE / "target",
        CASE / "draft",
        prompts=path,
        max_tokens=6,
        repeats=2,
        seconds=0.2,
        loads=(0.2, 1.0),
        running=(1, 3),
    )


def test_every_load_is_served_by_everybody(options: ThroughputBench, tmp_path: Path) -> None:
    result = bench_throughput(options)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    asked = [(point["load"], point["method"], point["running"]) for point in result["points"]]
    assert asked == [(load, name, most) for load in (0.2, 1.0) for name in ("ar", "dflash") for most in (1, 3)]
    for load in (0.2, 1.0):
        own = [point for point in result["points"] if point["load"] == load]
        assert len({point["requests"] for point in own}) == 1
        assert all(point["same"] for point in own)
    for point in result["points"]:
        assert 0.0 < point["first_token"]["mean"] <= point["latency"]["mean"] <= point["latency"]["p99"]
        assert point["requests_per_second"] > 0.0
    assert {good["method"] for good in result["goodput"]} == {"ar", "dflash"}
    assert result["definitions"] == DEFINITIONS


def test_arrivals_are_those_of_the_seed(options: ThroughputBench) -> None:
    prompts = [(1, 2), (3,)]
    first, again = (_arrivals(50.0, prompts, Sampling(), options, 1.0) for _ in range(2))
    other = _arrivals(50.0, prompts, Sampling(), replace(options, seed=1), 1.0)
    assert first == again != other
    assert len(first) == options.repeats
    assert first[0] != first[1]
    for own in first:
        assert own[0].due == 0.0
        assert all(each.due < options.seconds for each in own)


def point(method: str, running: int, load: float, served: float, mean: float) -> dict[str, Any]:
    return {
        "method": method,
        "running": running,
        "load": load,
        "requests": 9,
        "requests_per_second": served,
        "tokens_per_second": 90.0,
        "latency": {"mean": mean, "p50": mean, "p99": 2 * mean},
        "first_token": {"mean": mean / 2, "p50": mean / 2, "p99": mean},
        "per_token": None,
        "same": True,
    }


POINTS = [
    point("ar", 1, 0.1, 1.0, 1.0),
    point("ar", 8, 0.1, 1.1, 1.1),
    point("ar", 1, 0.8, 7.0, 3.0),
    point("ar", 8, 0.8, 8.0, 1.14),
    point("dflash", 8, 0.1, 1.0, 0.5),
    point("dflash", 8, 0.8, 8.0, 0.6),
]


def test_goodput_is_what_is_served_while_nobody_waits_longer() -> None:
    found = [(good["method"], good["running"], good["requests_per_second"]) for good in goodput(POINTS)]
    assert found == [("ar", 1, 1.0), ("ar", 8, 8.0), ("dflash", 8, 1.0)]


RESULT: dict[str, Any] = {
    "bench": "throughput",
    "settings": {"model": "m", "drafter": "d", "inflate": 1, "seconds": 3.0},
    "machine": {"cpu": "c", "cores": 2, "threads": 2, "torch": "2", "native": "avx2"},
    "what_else_ran": {"busy_cores_elsewhere": 1.0},
    "plain_requests_per_second": 8.0,
    "points": POINTS,
    "goodput": goodput(POINTS),
}


def test_the_table_fits_and_says_what_was_served() -> None:
    console = Console(width=80, record=True)
    show_throughput(RESULT, console)
    told = console.export_text()
    assert "…" not in told
    assert "ar, 8 at a time: 8.0 requests/s" in told
    assert "1.0 cores busy" in told


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    save_plot(RESULT, tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("changes", "told"), [({"running": (0,)}, "running"), ({"loads": (0.0,)}, "loads"), ({"seconds": 0.0}, "seconds")]
)
def test_what_is_refused(options: ThroughputBench, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        replace(options, **changes)
