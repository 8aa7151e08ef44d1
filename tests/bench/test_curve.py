"""The quality-speed curve from end to end, on tiny checkpoints and token ids; speeds are never judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from lying import lying, wrong_token
from rich.console import Console
from tiny import GOLDEN

import paceline.bench.curve as bench_curve_module
from paceline import LLM, Sampling, native
from paceline.bench.curve import bench_curve, best_blocks, sweet_spot
from paceline.bench.curve_report import conclusions, show_curve
from paceline.bench.fidelity import fidelity_of
from paceline.bench.figures import Sample
from paceline.bench.method import Task
from paceline.bench.options import CurveBench
from paceline.bench.report import save_plot
from paceline.errors import ConfigError

TARGET, DRAFT = GOLDEN / "dflash-v1-full" / "target", GOLDEN / "dflash-v1-full" / "draft"
PROMPTS = {"long_text": [[1, 2, 3, 4, 5], [6, 7, 8]], "code": [[9, 10, 11, 12]]}


@pytest.fixture(autouse=True)
def in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Natively half is mixed."""
    monkeypatch.setenv(native.VARIABLE, "off")


@pytest.fixture
def options(tmp_path: Path) -> CurveBench:
    path = tmp_path / "prompts.jsonl"
    lines = [{"scenario": name, "prompt_ids": ids} for name, found in PROMPTS.items() for ids in found]
    path.write_text("\n".join(map(json.dumps, lines)))
    return CurveBench(TARGET, DRAFT, prompts=path, max_tokens=24, repeats=2, block_sizes=(8, 1, 4))


def size_of(decoder: Any) -> int:
    return decoder.settings.block_size if decoder.name == "dflash" else 1


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], list[Sample]]:
    """Every measurement of the run, by precision and block size, warm-up included."""
    taken: dict[tuple[str, int], list[Sample]] = {}
    honest = bench_curve_module.decode_with

    def noted(decoder: Any, llm: LLM, clock: Any, options: CurveBench) -> Any:
        decode = honest(decoder, llm, clock, options)
        assert llm.drafter is not None
        name = str(llm.drafter.fc.weight.dtype), str(llm.model.dtype)
        tier = {"float32float32": "exact", "bfloat16float32": "mixed", "bfloat16bfloat16": "half"}[
            "".join(each.removeprefix("torch.") for each in name)
        ]
        samples = taken.setdefault((tier, size_of(decoder)), [])

        def timed(task: Task) -> Sample:
            samples.append(decode(task))
            return samples[-1]

        return timed

    monkeypatch.setattr(bench_curve_module, "decode_with", noted)
    return taken


def ms_per_token(samples: list[Sample]) -> float:
    """Of two repeats of each prompt, one behind the other."""
    pairs = list(zip(samples[::2], samples[1::2], strict=True))
    seconds = sum(median(sample.total_seconds for sample in pair) for pair in pairs)
    return 1000.0 * seconds / sum(len(first.tokens) for first, _ in pairs)


def test_every_point_is_recomputed(options: CurveBench, clocks: dict[tuple[str, int], list[Sample]]) -> None:
    result = bench_curve(options)
    points = {(point["precision"], point["block_size"]): point for point in result["points"]}
    assert list(points) == [(tier, size) for tier in ("exact", "mixed", "half") for size in (1, 4, 8)]
    assert points.keys() == clocks.keys()
    exact, prompts = LLM(TARGET, method="ar"), [ids for found in PROMPTS.values() for ids in found]
    sampling = Sampling(max_tokens=24, seed=0)
    own = [answer.token_ids for answer in exact.generate(prompts, sampling)]
    for key, point in points.items():
        assert point["identical"] is True, point["mismatches"]
        assert point.keys() - {"prompts", "precision", "block_size"} <= result["definitions"].keys()
        measured, plain = clocks[key][1:], clocks["exact", 1][1:]  # the first is the warm-up
        ratios = [base.ms_per_token / sample.ms_per_token for base, sample in zip(plain, measured, strict=True)]
        assert point["speedup_vs_ar"] == pytest.approx(median(ratios))
        assert point["speedup"] == pytest.approx(ms_per_token(plain) / ms_per_token(measured))
        answers = [list(sample.tokens) for sample in measured[::2]]
        judged = [
            fidelity_of(exact.target, prompt, sampling, 0, own=mine, other=answer)
            for prompt, mine, answer in zip(prompts, own, answers, strict=True)
        ]
        tokens = sum(map(len, answers))
        assert point["tokens"] == tokens
        assert point["same_answers"] == sum(map(list.__eq__, answers, own)) / len(prompts)
        assert point["agreement"] == sum(each.agreed for each in judged) / tokens
        assert point["log_likelihood"] == pytest.approx(sum(each.log_likelihood for each in judged) / tokens)
    assert points["exact", 1]["speedup_vs_ar"] == points["exact", 1]["acceptance_length"] == 1.0
    assert points["exact", 8]["same_answers"] == points["exact", 8]["agreement"] == 1.0
    assert points["half", 8]["acceptance_length"] > 1.0


def test_the_result_is_plain_data_and_says_what_was_in_effect(options: CurveBench) -> None:
    result = bench_curve(replace(options, repeats=1, temperature=1.0, seed=3))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["bench"] == "curve"
    assert result["settings"]["dtypes"] == {
        "exact": {"dtype": "float32", "attention_dtype": "float32", "draft_dtype": "float32"},
        "mixed": {"dtype": "bfloat16", "attention_dtype": "float32", "draft_dtype": "bfloat16"},
        "half": {"dtype": "bfloat16", "attention_dtype": "bfloat16", "draft_dtype": "bfloat16"},
    }
    assert list(result["scenarios"]) == list(PROMPTS)
    for name, points in result["scenarios"].items():
        assert [point["prompts"] for point in points] == [len(PROMPTS[name])] * 9
        assert all(point["identical"] for point in points)
    assert result["best"] == best_blocks(result["points"])
    assert result["sweet_spot"] == sweet_spot(result["points"])


def test_the_baseline_is_measured_though_nobody_asks_for_it(options: CurveBench) -> None:
    result = bench_curve(replace(options, precisions=("half", "exact"), block_sizes=(4,), repeats=1))
    found = [(point["precision"], point["block_size"]) for point in result["points"]]
    assert found == [("exact", 1), ("exact", 4), ("half", 4)], "by tier, whatever the order of the flags"
    assert all(point["identical"] for point in result["points"])


def test_a_wrong_answer_is_found(options: CurveBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(decoder: Any, _: Task, sample: Sample) -> Sample:
        return wrong_token(sample) if size_of(decoder) == 4 else sample

    monkeypatch.setattr(bench_curve_module, "decode_with", lying(bench_curve_module.decode_with, lie))
    result = bench_curve(replace(options, precisions=("exact",), repeats=1))
    assert [point["identical"] for point in result["points"]] == [True, False, True]
    assert result["points"][1]["same_answers"] == 0.0
    assert result["points"][1]["agreement"] < 1.0
    console = Console(width=120)
    with console.capture() as capture:
        show_curve(result, console)
    assert "NOT ITS OWN: exact, block 4" in capture.get()


def point(precision: str, block_size: int, speed: float, agreement: float = 1.0) -> dict[str, Any]:
    return {"precision": precision, "block_size": block_size, "speedup": speed, "agreement": agreement}


def best(block_size: int, speed: float, loses_from: int | None, agreement: float = 1.0) -> dict[str, Any]:
    figures = {"block_size": block_size, "speedup": speed, "agreement": agreement}
    return {**figures, "loses_from": loses_from}


def test_where_pushing_further_stops_paying() -> None:
    exact = [point("exact", 1, 1.0), point("exact", 8, 3.0), point("exact", 12, 3.5), point("exact", 16, 3.2)]
    half = [point("half", 8, 3.9, 0.995), point("half", 16, 4.4, 0.995)]
    assert best_blocks([*exact, *half]) == {"exact": best(12, 3.5, 16), "half": best(16, 4.4, None, 0.995)}
    assert sweet_spot([*exact, *half]) == {"precision": "half", **best(16, 4.4, None, 0.995)}
    told = conclusions({"best": best_blocks([*exact, *half]), "sweet_spot": sweet_spot(exact)})
    assert "block 12 is as fast as any, 3.50 times" in told[0]
    assert "from block 16 on, blocks lose" in told[0]
    assert "no larger block that was measured loses" in told[1]
    assert told[-1].startswith("Sweet spot: exact, block 12")


def test_what_is_as_good_as_equal_goes_to_the_smaller_block_and_the_exacter_sum() -> None:
    flat = [point("exact", 8, 3.35), point("exact", 10, 3.0), point("exact", 12, 3.5), point("exact", 16, 3.4)]
    assert best_blocks(flat) == {"exact": best(8, 3.35, None)}, "a dip between fast blocks is no loss"
    half = [point("half", 8, 3.5, 0.995), point("half", 12, 3.51, 0.995)]
    assert sweet_spot([*flat, *half]) == {"precision": "exact", **best(8, 3.35, None)}
    falling = [point("exact", 1, 1.0), point("exact", 4, 0.9), point("exact", 8, 0.8)]
    assert best_blocks(falling) == {"exact": best(1, 1.0, 4)}, "all blocks lose"


def test_speed_does_not_make_up_for_quality() -> None:
    exact = [point("exact", 1, 1.0), point("exact", 8, 3.0)]
    wild = [point("half", 8, 3.9, 0.9), point("half", 16, 4.4, 0.98)]
    assert sweet_spot([*exact, *wild]) == {"precision": "exact", **best(8, 3.0, None)}


def test_table_and_picture(options: CurveBench, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = bench_curve(replace(options, repeats=1))
    console = Console(width=80)
    with console.capture() as capture:
        show_curve(result, console)
    table = " ".join(capture.get().split())
    assert all(word in table for word in ("exact", "mixed", "half", "nats", "100.0%", "Sweet spot: ", "yes", "own"))
    for name in ("plot.png", "plot.svg"):
        save_plot(result, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    drawn = (tmp_path / "plot.svg").read_text()
    assert all(f"<!-- {label} -->" in drawn for label in ("exact", "mixed", "half", "sweet spot"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precisions": ("exact", "int3")}, "precision is 'int3'.*exact, mixed, half"),
        ({"precisions": ()}, "precisions is empty"),
        ({"block_sizes": ()}, "block_sizes is empty"),
        ({"block_sizes": (0,)}, r"block_sizes is \(0,\)"),
        ({"repeats": 0}, "repeats is 0"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CurveBench(**settings)


def test_a_curve_needs_a_drafter(options: CurveBench) -> None:
    with pytest.raises(ConfigError, match="needs a drafter"):
        bench_curve(replace(options, drafter=None))
