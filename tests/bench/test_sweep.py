"""The sweep from end to end, on tiny checkpoints and token ids; speeds are never judged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lying import lying, wrong_token
from rich.console import Console
from tiny import GOLDEN

import paceline.bench.sweep as sweep_module
from paceline import LLM, Sampling
from paceline.bench.figures import Sample
from paceline.bench.method import Task
from paceline.bench.options import DecodeBench
from paceline.bench.report import save_plot
from paceline.bench.sweep import bench_sweep
from paceline.bench.sweep_report import sentences, show_sweep
from paceline.bench.variants import sweep_variants
from paceline.decode.noise import derive_seed
from paceline.decode.slots import Slots
from paceline.errors import ConfigError

TARGET, DRAFT = GOLDEN / "dflash-v1-full" / "target", GOLDEN / "dflash-v1-full" / "draft"
PROMPTS = {"long_text": [[1, 2, 3, 4, 5], [6, 7, 8]], "code": [[9, 10, 11, 12]]}
FEW = (
    "dflash,block_size=8,candidate_num=6,max_nodes=12",
    "dflash,block_size=8,diffusion_steps=3,overlap=2",
    "dflash,block_size=auto",
)


@pytest.fixture(autouse=True)
def costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a controller measures is not kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def options(tmp_path: Path) -> DecodeBench:
    path = tmp_path / "prompts.jsonl"
    lines = [{"scenario": name, "prompt_ids": ids} for name, found in PROMPTS.items() for ids in found]
    path.write_text("\n".join(map(json.dumps, lines)))
    return DecodeBench(TARGET, DRAFT, prompts=path, max_tokens=16, repeats=1, sweep=True)


def counted(settings: dict[str, Any], temperature: float) -> tuple[int, int, int, int]:
    """Tokens, rounds, drafts and passes of the drafter of all prompts, answered one by one without the benchmark."""
    llm = LLM(TARGET, drafter=DRAFT, **{"block_size": 8} | settings)
    assert llm.drafter is not None
    passes: list[object] = []
    placed = Slots._placed  # once in a pass, natively and in torch

    def counting(self: Slots, *given: Any) -> Any:
        passes.append(1)
        return placed(self, *given)

    rounds = []
    for number, prompt in enumerate(ids for found in PROMPTS.values() for ids in found):
        sampling = Sampling(max_tokens=16, temperature=temperature, seed=derive_seed(0, number))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Slots, "_placed", counting)
            rounds += llm.generate(prompt, sampling)[0].rounds
    tokens = sum(len(each.committed) for each in rounds)
    return tokens, len(rounds), sum(len(each.proposed) for each in rounds), len(passes)


def test_every_point_is_recomputed(options: DecodeBench) -> None:
    result = bench_sweep(replace(options, settings=FEW[:2], temperatures=(0.0, 2.0)))
    points = {(point["temperature"], point["setting"]): point for point in result["points"]}
    assert list(points) == [(heat, name) for heat in (0.0, 2.0) for name in ("ar", "chain 8", *FEW[:2])]
    given: dict[str, dict[str, Any]] = {
        "ar": {"block_size": 1},
        "chain 8": {},
        FEW[0]: {"candidate_num": 6, "max_nodes": 12},
        FEW[1]: {"diffusion_steps": 3, "overlap": 2},
    }
    for (heat, name), point in points.items():
        tokens, rounds, nodes, passes = counted(given[name], heat)
        chain_tokens, chain_rounds, _, _ = counted({}, heat)
        assert point["acceptance_length"] == tokens / rounds
        assert (point["nodes_per_round"], point["passes_per_round"]) == (nodes / rounds, passes / rounds)
        if name == "ar":
            assert (point["gain"], point["gain_interval"], point["speedup"]) == (None, None, 1.0)
        else:
            assert point["gain"] == pytest.approx(tokens / rounds / (chain_tokens / chain_rounds) - 1.0)
            low, high = point["gain_interval"]
            assert low - 1e-12 <= point["gain"] <= high + 1e-12
        assert point["identical"] is True, point["mismatches"]
        plain = points[heat, "ar"]
        assert point["speedup"] == pytest.approx(plain["ms_per_token"] / point["ms_per_token"])
    assert points[0.0, "chain 8"]["gain"] == 0.0


def test_the_whole_list_is_plain_decodings_text_at_both_temperatures(options: DecodeBench, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = bench_sweep(replace(options, max_tokens=8))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["settings"]["temperatures"] == [0.0, 1.0]
    assert result["chain"] == "chain 8"
    names = ["ar", *(variant.name for variant in sweep_variants(8, False, None))]
    assert [point["setting"] for point in result["points"]] == 2 * names
    for points in (result["points"], *result["scenarios"].values()):
        assert all(point["identical"] for point in points)
        known = result["definitions"].keys() | {"prompts", "temperature", "part", "setting"}
        assert all(point.keys() <= known for point in points)
    assert {name: points[0]["prompts"] for name, points in result["scenarios"].items()} == {"long_text": 2, "code": 1}
    assert result["scenarios"]["code"][1]["gain_interval"] is None, "one prompt says nothing of others"
    console = Console(width=130)
    with console.capture() as capture:
        show_sweep(result, console)
    assert all(name in capture.get() for name in names)
    assert all(line in " ".join(capture.get().split()) for line in sentences(result))
    save_plot(result, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert all(f"<!-- {label} -->" in drawn for label in (*names[1:], "temperature 0", "temperature 1"))


def test_a_drafter_with_a_selector_and_a_model_that_weighs_anew(options: DecodeBench) -> None:
    folder = GOLDEN / "dflash-v2"
    pair = {"model": folder / "target", "drafter": folder / "draft", "rescorer": folder / "target"}
    result = bench_sweep(replace(options, **pair, max_tokens=6, scenarios=("code",), temperatures=(1.0,)))
    parts = {point["setting"]: point["part"] for point in result["points"]}
    assert parts["tree 32, without selector"] == "selector"
    assert parts["tree 32, re-scored 0.5"] == "re-scoring"
    assert all(point["identical"] for point in result["points"])


def test_the_controller_measures_its_machine_before_the_clock_runs(
    options: DecodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.decode.costs._RESTLESS", math.inf)  # what a busy machine measures is kept, too
    known: list[bool] = []
    honest = sweep_module.decode_with

    def watching(decoder: Any, *rest: Any) -> Any:
        if getattr(decoder, "controller", None) is not None:
            known.append(bool(list((Path(options.prompts or "").parent / "paceline" / "costs").glob("*.json"))))
        return honest(decoder, *rest)

    monkeypatch.setattr(sweep_module, "decode_with", watching)
    bench_sweep(replace(options, settings=FEW[2:], temperatures=(0.0,)))
    assert known == [True]


def test_a_wrong_answer_is_found(options: DecodeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(decoder: Any, _: Task, sample: Sample) -> Sample:
        tree = decoder.name == "dflash" and decoder.settings.candidate_num == 6
        return wrong_token(sample) if tree else sample

    monkeypatch.setattr(sweep_module, "decode_with", lying(sweep_module.decode_with, lie))
    result = bench_sweep(replace(options, settings=FEW[:2]))
    assert [point["identical"] for point in result["points"]] == 2 * [True, True, False, True]
    console = Console(width=100)
    with console.capture() as capture:
        show_sweep(result, console)
    told = " ".join(capture.get().split())
    assert f"NOT IDENTICAL: temperature 1, {FEW[0]}" in told


def test_a_sweep_needs_a_drafter(options: DecodeBench) -> None:
    with pytest.raises(ConfigError, match="needs a drafter"):
        bench_sweep(replace(options, drafter=None))
