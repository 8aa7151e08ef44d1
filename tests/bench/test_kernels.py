"""The benchmark of products and passes: what is measured and how it is told. No test looks at how fast anything is."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer, write_checkpoint
from torch import float32

from paceline import native
from paceline.bench.ceilings import MEMORY_BYTES, Ceilings, measured_bytes
from paceline.bench.kernel_options import PASS_PEERS, KernelBench
from paceline.bench.kernel_report import conclusions, show_kernels, told_ceilings
from paceline.bench.kernels import bench_kernels
from paceline.bench.products import variants
from paceline.bench.report import save_plot
from paceline.errors import ConfigError
from paceline.models.options import Precision

PRECISIONS: tuple[Precision, ...] = ("exact", "mixed", "int8", "w8a8")

LAYER = ["qkv", "out", "gate_up", "down"]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> KernelBench:
    folder = tmp_path_factory.mktemp("pair")
    target = tiny_transformer(tiny_spec(), dtype=float32)
    drafter = tiny_drafter(tiny_drafter_spec(target.spec), target)
    paths = write_checkpoint(folder / "target", target), write_checkpoint(folder / "drafter", drafter)
    return KernelBench(*paths, rows=(1, 3), precisions=PRECISIONS, repeats=2, seconds=0.0)


@pytest.fixture(scope="module")
def result(options: KernelBench) -> dict[str, Any]:
    return bench_kernels(options)


def told(result: dict[str, Any], width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        show_kernels(result, console)
    return capture.get()


def test_every_part_is_measured_in_every_variant(result: dict[str, Any]) -> None:
    parts = {"target": [*LAYER, "head", "pass"], "drafter": ["fc", *LAYER, "head", "pass"]}
    expected = {
        (model, part, rows, variant)
        for model, own in parts.items()
        for part in own
        for rows in (1, 3)
        for variant in variants(PRECISIONS)
    }
    found = [(each["model"], each["part"], each["rows"], each["variant"]) for each in result["points"]]
    assert set(found) == expected
    assert len(found) == len(expected)
    assert all(each["microseconds"] > 0.0 and len(each["quartiles"]) == 2 for each in result["points"])


def test_figures_follow_from_times_and_sizes(result: dict[str, Any]) -> None:
    ceilings = {read["bytes"]: read["gigabytes_per_second"]["median"] for read in result["ceilings"]["read"]}
    for each in result["points"]:
        assert each["gigabytes_per_second"] * each["microseconds"] * 1e3 == pytest.approx(each["weight_bytes"])
        work = each["operations_per_row"] * each["rows"]
        assert each["gigaflops"] * each["microseconds"] * 1e3 == pytest.approx(work)
        reading = each["gigabytes_per_second"] / ceilings[each["ceiling_bytes"]]
        assert each["share_of_reading"] == pytest.approx(reading)
        arithmetic = each["gigaflops"] / result["ceilings"][f"{each['factors']}_gigaflops"]["median"]
        assert each["share_of_arithmetic"] == pytest.approx(arithmetic)
        assert each["share"] == each[f"share_of_{each['roof']}"] == max(reading, each["share_of_arithmetic"])


def test_a_pass_is_all_its_products(result: dict[str, Any]) -> None:
    """Bytes and operations of the parts, but for the drafter's product of features, which another pass makes."""
    for model in ("target", "drafter"):
        for variant in variants(PRECISIONS):
            own = [p for p in result["points"] if (p["model"], p["variant"], p["rows"]) == (model, variant, 1)]
            products = [p for p in own if p["part"] not in ("fc", "pass")]
            whole = next(p for p in own if p["part"] == "pass")
            for key in ("weight_bytes", "operations_per_row"):
                assert whole[key] == sum(p["count"] * p[key] for p in products)
            assert {p["ceiling_bytes"] for p in own} == {measured_bytes(whole["weight_bytes"])}


def test_sizes_are_those_of_the_model(result: dict[str, Any]) -> None:
    plain = {p["part"]: p for p in result["points"] if (p["model"], p["variant"]) == ("target", "F.linear")}
    assert [plain[part]["count"] for part in (*LAYER, "head", "pass")] == [2, 2, 2, 2, 1, 1]
    assert plain["qkv"]["weight_bytes"] == 4 * 32 * (4 + 2 * 2) * 8
    assert plain["gate_up"]["operations_per_row"] == 2 * 32 * 2 * 48


def test_ceilings_are_measured_before_between_and_after(options: KernelBench, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr("paceline.bench.kernels.Ceilings.measure", lambda _: order.append("ceilings"))
    monkeypatch.setattr("paceline.bench.kernels.Ceilings.figures", lambda _: {})
    monkeypatch.setattr("paceline.bench.kernels.points", lambda *_: [])
    monkeypatch.setattr("paceline.bench.kernels.call_microseconds", lambda *_: {})
    monkeypatch.setattr(
        "paceline.bench.kernels.Sweep.seconds",
        lambda sweep, _: order.append(f"{sweep.model} {sweep.rows}") or dict.fromkeys(sweep.parts, 1.0),
    )
    bench_kernels(options)
    turn = [name for name in order if name != "ceilings"][: len(order) // 2 - 1]
    assert order == ["ceilings", *turn, "ceilings", *turn, "ceilings"]
    assert turn.count("target 3") == 2 * len(variants(PRECISIONS)), "products and pass"


def test_without_the_extension_torch_alone_is_measured(options: KernelBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "off")
    found = bench_kernels(replace(options, rows=(2,), repeats=1))
    assert {each["variant"] for each in found["points"]} == {"torch", "F.linear"}
    assert found["machine"]["native"] == f"{native.VARIABLE} is off."
    assert found["points"][0]["quartiles"] is None, "of one turn"
    assert f"native (on the CPU): {native.VARIABLE} is off; other" in " ".join(told(found).split())


def test_the_result_is_shown_kept_and_drawn(result: dict[str, Any], tmp_path: Path) -> None:
    assert result == json.loads(json.dumps(result))
    shown = told(result)
    assert all(len(line) <= 80 for line in shown.splitlines())
    for text in ("One product of the target", "A pass of the drafter", "gate_up", "GFLOP", "F.linear", "%"):
        assert text in shown
    pytest.importorskip("matplotlib")
    save_plot(result, tmp_path / "kernels.svg")
    assert "arithmetic, the limit of" in (tmp_path / "kernels.svg").read_text()


def point(rows: int, variant: str, **changes: Any) -> dict[str, Any]:
    figures = {"microseconds": 52311.0, "gigabytes_per_second": 123.0, "gigaflops": 1234.0, "share": 0.834}
    place = {"model": "target", "part": "pass", "rows": rows, "variant": variant, "factors": "float32"}
    shares = {"share_of_reading": 0.834, "share_of_arithmetic": 0.2, "roof": "reading", "ceiling_bytes": 1 << 20}
    return place | figures | shares | changes


@pytest.fixture
def scripted(result: dict[str, Any]) -> dict[str, Any]:
    """Three rows in every variant there can be; memory and a cache."""
    names = ("native", "torch", "F.linear", *PASS_PEERS)
    reads = ((1 << 20, 99.0), (1 << 29, 40.0))
    spreads = [
        {"bytes": size, "gigabytes_per_second": {"median": r, "least": r - 1, "most": r + 1}} for size, r in reads
    ]
    points = [point(rows, name) for rows in (1, 2) for name in names]
    points += [point(1, name, part="gate_up") for name in names[:3]]
    points += [point(64, name, share=0.5, roof="arithmetic") for name in names]
    ceilings = {"read": spreads, "float32_gigaflops": {"median": 166.0, "least": 150.0, "most": 170.0}}
    return result | {"points": points, "ceilings": ceilings, "call_microseconds": {"native": 1.25, "torch": 3.0}}


def test_all_peers_fit_80_columns(scripted: dict[str, Any], tmp_path: Path) -> None:
    shown = told(scripted)
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert shown.count("52311") == 3 * (3 + len(PASS_PEERS)) + 3, "no number is broken"
    pytest.importorskip("matplotlib")
    save_plot(scripted, tmp_path / "kernels.svg")
    assert all(peer in (tmp_path / "kernels.svg").read_text() for peer in PASS_PEERS)


def test_what_is_concluded(scripted: dict[str, Any]) -> None:
    assert conclusions(scripted) == [
        "target, native: at 1 to 2 rows the roof is reading, used to 83%; "
        "at 64 rows the roof is arithmetic, used to 50%.",
        "Microseconds of a call, which every product above has: native 1.2, torch 3.0.",
    ]
    arithmetic, cached, memory = told_ceilings(scripted)
    assert arithmetic.startswith("It multiplies, in GFLOP/s, 166 (150 to 170) in float32 ")
    assert cached.startswith("It reads 1 MiB at 99 (98 to 100) GB/s, in a cache: the ceiling of target native, ")
    assert memory == "It reads 512 MiB at 40 (39 to 41) GB/s."


def test_what_cannot_be_measured_is_refused(options: KernelBench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"peer is 'transformers'.*llama.cpp-f32"):
        KernelBench(peers=("transformers",))
    with pytest.raises(ConfigError, match="rows"):
        KernelBench(rows=())
    with pytest.raises(ConfigError, match="precisions"):
        KernelBench(precisions=())
    with pytest.raises(ConfigError, match="precision is 'int3'"):
        KernelBench(precisions=("int3",))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rows"):
        KernelBench(rows=(65,))
    assert KernelBench(rows=(8, 64, 8), peers=("llama.cpp-f32,llama.cpp-f16",)).rows == (8, 64)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(ConfigError, match=r"llama_cpp.*not installed.*pip install 'paceline\[peers\]'"):
        bench_kernels(replace(options, peers=("llama.cpp-f32",)))


def test_ceilings_are_measured_for_the_bytes_that_are_read() -> None:
    mebibyte = 1 << 20
    sizes = [measured_bytes(each) for each in (0, mebibyte, 26_255_000, MEMORY_BYTES - 1, 1 << 40)]
    assert sizes == [mebibyte, mebibyte, 25 * mebibyte, MEMORY_BYTES, MEMORY_BYTES]
    ceilings = Ceilings((26_255_000, 26_300_000))
    for _ in range(2):
        ceilings.measure()
    figures = ceilings.figures()
    assert [read["bytes"] for read in figures["read"]] == [25 * mebibyte, MEMORY_BYTES]
    for rate in (figures["float32_gigaflops"], *(read["gigabytes_per_second"] for read in figures["read"])):
        assert 0.0 < rate["least"] <= rate["median"] <= rate["most"]
    assert ceilings.read_gigabytes_per_second(26_255_000) == figures["read"][0]["gigabytes_per_second"]["median"]
