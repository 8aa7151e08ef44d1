"""The benchmark from end to end, on tiny checkpoints and token ids."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lying import lying, wrong_token
from rich.console import Console
from tiny import GOLDEN

import paceline.bench.run as bench_run
from paceline import native
from paceline.bench.figures import Sample, all_identical
from paceline.bench.machine import machine_ceilings, watch_machine
from paceline.bench.method import Task
from paceline.bench.options import DecodeBench
from paceline.bench.report import check_plot, save_json, save_plot, show
from paceline.bench.run import bench_decode
from paceline.bench.titles import measured_models
from paceline.decode.noise import derive_seed
from paceline.errors import BadRequest, ConfigError

PAIR = {"model": GOLDEN / "dflash-v1-full" / "target", "drafter": GOLDEN / "dflash-v1-full" / "draft"}
REQUIRED = {
    "tokens_per_second", "ms_per_token", "acceptance_length", "speedup_vs_ar", "identical",
    "draft_seconds", "verify_seconds", "other_seconds",
}  # fmt: skip


CEILINGS = {"read_gigabytes_per_second": 20.0, "float32_gigaflops": 100.0, "bfloat16_gigaflops": 200.0}


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for each run of these tests is saved."""
    monkeypatch.setattr(bench_run, "machine_ceilings", lambda _: CEILINGS)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    entries = [
        {"scenario": scenario, "prompt_ids": [(7 * number + 3 * place + row) % 250 for row in range(5 + number)]}
        for place, scenario in enumerate(("long_text", "code"))
        for number in range(2)
    ]
    path.write_text("\n".join(map(json.dumps, entries)))
    return path


@pytest.fixture
def options(prompts: Path) -> DecodeBench:
    return DecodeBench(**PAIR, prompts=prompts, max_tokens=24, repeats=2)


def test_result_has_the_promised_keys_and_is_plain_data(options: DecodeBench) -> None:
    result = bench_decode(replace(options, block_sizes=(8,)))
    assert list(result["scenarios"]) == ["long_text", "code"]
    for methods in result["scenarios"].values():
        assert list(methods) == ["ar", "dflash"]
        for figures in methods.values():
            assert figures.keys() >= REQUIRED
            assert figures.keys() - {"prompts"} <= result["definitions"].keys()
            assert figures["identical"] is True
            assert figures["mismatches"] == {}
            assert figures["lossless"] is True
            assert figures["prompts"] == 2
            assert figures["ms_per_token"] == pytest.approx(1000 / figures["tokens_per_second"])
        assert methods["ar"]["acceptance_length"] == methods["ar"]["speedup_vs_ar"] == 1.0
        assert methods["dflash"]["acceptance_length"] > 1.0
        assert methods["dflash"]["tokens"] == methods["ar"]["tokens"]
        ar = methods["ar"]
        rounds = ar["tokens"] - ar["prompts"]
        seconds = ar["verify_seconds"] + ar["other_seconds"]
        share = ar["bytes_per_pass"] * rounds / seconds / 20e9
        assert ar["share_of_bandwidth"] == pytest.approx(share)  # the median of two is their mean, so parts add up
        assert methods["dflash"]["bytes_per_pass"] == ar["bytes_per_pass"]
        assert methods["ar"]["draft_seconds"] == 0.0 < methods["dflash"]["draft_seconds"]
    assert {"cores", "torch", "threads", "cpu", *CEILINGS} <= result["machine"].keys()
    others = {"load_average_before", "load_average_after", "busy_cores_elsewhere"}
    assert result["what_else_ran"].keys() == others
    assert result["settings"]["block_sizes"] == [8]
    assert result["settings"]["dtype"] == "float32"
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_block_sizes_make_a_method_each_and_scenarios_can_be_chosen(options: DecodeBench) -> None:
    result = bench_decode(replace(options, block_sizes=(1, 4), scenarios=("code",), prompts_per_scenario=1))
    assert list(result["scenarios"]) == ["code"]
    methods = result["scenarios"]["code"]
    assert list(methods) == ["ar", "dflash-1", "dflash-4"]
    assert methods["dflash-1"]["acceptance_length"] == 1.0
    assert all(figures["identical"] for figures in methods.values())


def test_inflated_models_say_the_same_and_are_labelled(options: DecodeBench) -> None:
    plain, wide = (bench_decode(replace(options, inflate=factor, block_sizes=(8,))) for factor in (1, 2))
    for name, methods in wide["scenarios"].items():
        for method, figures in methods.items():
            assert figures["identical"] is True
            for figure in ("acceptance_length", "tokens", "distinct_4gram_share"):
                assert figures[figure] == plain["scenarios"][name][method][figure]
    assert wide["settings"]["inflate"] == 2
    assert wide["settings"]["model"] == plain["settings"]["model"]
    assert "inflated 2×" in measured_models(wide["settings"])
    assert "inflated" not in measured_models(plain["settings"])


def test_sampling_is_identical_too(options: DecodeBench) -> None:
    result = bench_decode(replace(options, temperatures=(1.0,), seed=5, repeats=1))
    assert all(figures["identical"] for methods in result["scenarios"].values() for figures in methods.values())


def test_above_temperature_0_the_drafts_are_judged_by_their_law(options: DecodeBench) -> None:
    """z within 5: a false alarm in 2 million for each of four, and the seed is fixed."""
    result = bench_decode(replace(options, temperatures=(2.0,), seed=5, repeats=2, block_sizes=(1, 4, 8)))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    console = Console(width=100)
    with console.capture() as capture:
        show(result, console)
    for name, methods in result["scenarios"].items():
        assert "law" not in methods["ar"].keys() | methods["dflash-1"].keys()
        for method in ("dflash-4", "dflash-8"):
            law = methods[method]["law"]
            assert {f"law.{figure}" for figure in law} <= result["definitions"].keys()
            assert abs(law["z"]) < 5
            assert 0 < law["accepted"] <= law["checked"]
            assert law["accepted_per_round"] == pytest.approx(methods[method]["acceptance_length"] - 1, abs=0.2)
            said = f"{name}, {method}: {law['accepted_per_round']:.2f} drafts accepted per round, by the law"
            assert said in " ".join(capture.get().split())
    law["z"] = -3.5
    with console.capture() as capture:
        show(result, console)
    assert "code, dflash-8: accepted drafts this far off the law are seen once in 370 runs." in capture.get()


def test_greedy_drafts_have_no_law(options: DecodeBench) -> None:
    result = bench_decode(replace(options, repeats=1, scenarios=("code",)))
    assert all("law" not in figures for figures in result["scenarios"]["code"].values())


def test_every_prompt_has_a_seed_of_its_own(options: DecodeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has that of the options; all in all those of the answers of one request."""
    honest, seeds = bench_run.decode_with, dict[str, int]()

    def watching(*given: Any) -> Any:
        decode = honest(*given)

        def watched(task: Task) -> Any:
            seeds[task.name] = task.seed
            return decode(task)

        return watched

    monkeypatch.setattr(bench_run, "decode_with", watching)
    bench_decode(replace(options, temperatures=(1.0,), seed=5, repeats=2))
    assert list(seeds.values()) == [derive_seed(5, index) for index in range(4)]


def test_time_outside_the_models_is_what_their_passes_leave(options: DecodeBench) -> None:
    result = bench_decode(replace(options, repeats=1, scenarios=("code",)))
    for method, figures in result["scenarios"]["code"].items():
        parts = [figures[f"{part}_seconds"] for part in ("draft", "verify", "other")]
        assert figures["other_share"] == pytest.approx(parts[2] / sum(parts))
        assert 0.0 < figures["other_share"] < 1.0
        assert (parts[0] > 0.0) == (method == "dflash")


def test_half_precision(options: DecodeBench) -> None:
    result = bench_decode(replace(options, precision="half", repeats=1))
    assert result["settings"]["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("precision", "dtypes", "title"),
    [
        ("exact", ("float32", "float32", "float32"), "float32,"),
        ("mixed", ("bfloat16", "float32", "bfloat16"), "bfloat16 (attention and norms float32),"),
        ("half", ("bfloat16", "bfloat16", "bfloat16"), "bfloat16,"),
    ],
)
def test_the_precision_in_effect_is_told(
    options: DecodeBench, precision: Any, dtypes: tuple[str, ...], title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.VARIABLE, "off")  # natively half is mixed
    result = bench_decode(replace(options, precision=precision, repeats=1))
    settings = result["settings"]
    assert settings["precision"] == precision
    assert tuple(settings[name] for name in ("dtype", "attention_dtype", "draft_dtype")) == dtypes
    assert all(figures["identical"] for methods in result["scenarios"].values() for figures in methods.values())
    console = Console(width=200)
    with console.capture() as capture:
        show(result, console)
    assert title in capture.get()
    del settings["attention_dtype"], settings["draft_dtype"]  # as in a result of an older version
    with console.capture() as capture:
        show(result, console)
    assert f"{dtypes[0]}, temperature" in capture.get()


def test_without_a_drafter_only_plain_decoding_is_measured(options: DecodeBench) -> None:
    result = bench_decode(replace(options, drafter=None, repeats=1))
    assert list(result["scenarios"]["code"]) == ["ar"]
    assert result["settings"]["drafter"] is None


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_lookup_is_a_method_beside_the_others(options: DecodeBench, temperature: float) -> None:
    """Long greedy answers of a tiny model repeat themselves, so that there is something to look up."""
    asked = replace(options, methods=("lookup", "dflash"), block_sizes=(4, 8), temperatures=(temperature,), repeats=1)
    result = bench_decode(replace(asked, max_tokens=100))
    for methods in result["scenarios"].values():
        assert list(methods) == ["ar", "dflash-4", "dflash-8", "lookup"]
        found = methods["lookup"]
        assert found["identical"]
        assert found["draft_seconds"] == 0.0 < found["other_seconds"]
        assert found["bytes_per_pass"] == methods["ar"]["bytes_per_pass"]
        assert "law" not in found
    if temperature == 0.0:
        assert max(methods["lookup"]["acceptance_length"] for methods in result["scenarios"].values()) > 1.0


@pytest.mark.parametrize("drafter", [None, PAIR["drafter"]])
def test_lookup_needs_no_drafter_and_loads_none(options: DecodeBench, drafter: Path | None) -> None:
    result = bench_decode(replace(options, drafter=drafter, methods=("lookup",), repeats=1))
    assert list(result["scenarios"]["code"]) == ["ar", "lookup"]
    assert result["settings"]["draft_dtype"] is None


def test_dflash_asked_for_needs_a_drafter(options: DecodeBench) -> None:
    with pytest.raises(ConfigError, match=r"method is 'dflash', but there is no drafter"):
        bench_decode(replace(options, drafter=None, methods=("dflash",)))


@pytest.mark.parametrize("fault", ["token", "short"])
def test_a_wrong_answer_is_found_and_named(options: DecodeBench, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def lie(decoder: Any, task: Task, sample: Sample) -> Sample:
        if decoder.name == "ar" or len(task.prompt) == 5:
            return sample
        return wrong_token(sample) if fault == "token" else replace(sample, tokens=sample.tokens[:9])

    monkeypatch.setattr(bench_run, "decode_with", lying(bench_run.decode_with, lie))
    result = bench_decode(replace(options, repeats=1))
    for scenario, methods in result["scenarios"].items():
        assert methods["ar"]["identical"]
        assert not methods["dflash"]["identical"]
        assert methods["dflash"]["mismatches"] == {f"{scenario}-{2 if scenario == 'long_text' else 4}": 9}
    console = Console(width=100)
    with console.capture() as capture:
        show(result, console)
    assert "NOT IDENTICAL: code, dflash: code-4 at token 9." in capture.get()
    assert not all_identical(result["scenarios"])


def test_a_method_that_promises_nothing_may_differ(options: DecodeBench) -> None:
    result = bench_decode(replace(options, repeats=1, scenarios=("code",)))
    other = result["scenarios"]["code"]["ar"] | {"lossless": False, "identical": False, "mismatches": {"code-3": 4}}
    result["scenarios"]["code"]["llama.cpp-q8_0"] = other
    assert all_identical(result["scenarios"])
    console = Console(width=120)
    with console.capture() as capture:
        show(result, console)
    assert "Not identical, nor promised (other weights or rounding): code, llama.cpp-q8_0: code-3 at" in capture.get()


def test_a_prompt_that_cannot_be_served_stops_before_the_first_measurement(
    options: DecodeBench, tmp_path: Path
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt_ids": [1, 2]}\n{"prompt_ids": [256]}\n')
    with pytest.raises(BadRequest, match="256"):
        bench_decode(replace(options, prompts=path))


def test_threads_are_set_and_set_back(options: DecodeBench) -> None:
    before = torch.get_num_threads()
    result = bench_decode(replace(options, threads=2, repeats=1, max_tokens=2, scenarios=("code",)))
    assert result["machine"]["threads"] == 2
    assert torch.get_num_threads() == before


def test_report_of_a_run(options: DecodeBench, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = bench_decode(replace(options, block_sizes=(2, 8), repeats=1))
    console = Console(width=80)
    with console.capture() as capture:
        show(result, console)
    table = " ".join(capture.get().split())
    assert all(word in table for word in ("long_text", "dflash-8", "ms/tok", "same", "yes", "20 GB/s", "100 GFLOP/s"))
    for name in CEILINGS:  # as in a result of an older version
        del result["machine"][name]
    with console.capture() as capture:
        show(result, console)
    assert "GB/s" not in capture.get()
    result["machine"] |= CEILINGS
    save_json(result, tmp_path / "new" / "result.json")
    assert json.loads((tmp_path / "new" / "result.json").read_text()) == result
    for name in ("plot.png", "plot.svg"):
        save_plot(result, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "plot.png", "plot.svg", "prompts.jsonl"]


def test_report_refuses_what_it_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="ending"):
        save_plot({}, tmp_path / "plot.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_json({}, tmp_path / "file" / "result.json")
    with pytest.raises(TypeError):
        save_json({"not": object()}, tmp_path / "half.json")
    assert not list(tmp_path.glob("*half*"))
    monkeypatch.setattr("paceline.bench.report.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"paceline\[bench\]"):
        check_plot(tmp_path / "plot.png")


def test_busy_cores_do_not_count_our_own() -> None:
    with watch_machine() as seen:
        torch.rand(400, 400).matmul(torch.rand(400, 400))
    assert seen["busy_cores_elsewhere"] is None or seen["busy_cores_elsewhere"] >= 0.0


def test_ceilings_are_of_this_world() -> None:
    for value in machine_ceilings(torch.device("cpu")).values():
        assert 0.1 < value < 1e6


def test_missing_peer_is_a_clear_error(options: DecodeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"not installed.*paceline\[peers\]"):
        bench_decode(replace(options, peers=("transformers",)))
