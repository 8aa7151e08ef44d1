"""Accuracy and speed from end to end, on tiny checkpoints whose answers are broken bytes; speeds are never judged."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from talking import DRAFT, TARGET, talking
from tiny import GOLDEN
from tiny_tokenizers import byte_level, save

import paceline.bench.evaluation as evaluation_module
from paceline import LLM, Completion, Sampling
from paceline.bench.fidelity import log_likelihood_of
from paceline.bench.frontier import bench_frontier, frontier
from paceline.bench.problems import held_out
from paceline.bench.quality import QUALITY_DEFINITIONS, bench_quality
from paceline.bench.quality_options import REFERENCE, FrontierBench, QualityBench
from paceline.bench.quality_report import compared_models, show_quality
from paceline.bench.report import save_plot
from paceline.decode.ngram_table import NgramTable, Owner, save_ngram_table
from paceline.errors import (
    ConfigError,
    ContextOverflow,
    PacelineError,
    UnsupportedModel,
    VocabularyMismatch,
)
from paceline.models.load import load_transformer

DREAM, SMALL = GOLDEN / "apd-tiny" / "dream", GOLDEN / "apd-tiny" / "qwen2"
SETTINGS = ("ar", "dflash,block_size=4", "verifier", "diffusion,threshold=0.9", "apd", "apd,schedule=fixed,window=8")
LENGTH = 12


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("quality")
    folders = {"dllm": DREAM, "verifier": SMALL, "target": TARGET}
    return {name: talking(folder, place / name) for name, folder in folders.items()} | {"drafter": DRAFT}


@pytest.fixture
def options(models: dict[str, Path]) -> QualityBench:
    return QualityBench(**models, problems=4, max_tokens=LENGTH, settings=SETTINGS)


def llm_of(setting: str, models: dict[str, Path]) -> LLM:
    """The same setting by the public API."""
    target, apd = models["target"], {"verifier": models["verifier"]}
    return {
        "ar": lambda: LLM(target),
        "dflash,block_size=4": lambda: LLM(target, drafter=DRAFT, block_size=4),
        "verifier": lambda: LLM(models["verifier"]),
        "diffusion,threshold=0.9": lambda: LLM(models["dllm"], threshold=0.9),
        REFERENCE: lambda: LLM(models["dllm"]),
        "apd": lambda: LLM(models["dllm"], **apd),
        "apd,schedule=fixed,window=8": lambda: LLM(models["dllm"], **apd, schedule="fixed", window=8),
    }[setting]()


def answers_of(setting: str, models: dict[str, Path]) -> list[Completion]:
    prompts = [problem.messages for problem in held_out(4)]
    return llm_of(setting, models).generate(prompts, Sampling(max_tokens=LENGTH, seed=0))


def test_every_point_is_that_of_the_public_api(options: QualityBench, models: dict[str, Path]) -> None:
    result = bench_quality(options)
    points = {point["setting"]: point for point in result["points"]}
    assert list(points) == [*SETTINGS, REFERENCE]
    target = LLM(models["target"]).target
    for setting, point in points.items():
        answers = answers_of(setting, models)
        stats = [answer.stats for answer in answers]
        tokens = sum(len(answer.token_ids) for answer in answers)
        assert point["problems"] == 4
        assert (point["tokens"], point["method"]) == (tokens, stats[0].method)
        assert point["forwards"] == sum(each.forward_passes for each in stats)
        assert point["tokens_per_forward"] == tokens / point["forwards"]
        assert point["tokens_per_second"] == tokens / point["seconds"]
        assert point["first_token_ms"] < 1000.0 * point["seconds"]
        prefix = sum(each.prefix_tokens for each in stats)
        assert point["prefix_hit_rate"] == (sum(each.reused_tokens for each in stats) / prefix if prefix else None)
        total = sum(
            log_likelihood_of(target, prompt_ids(models, index), Sampling(), answer.token_ids)
            for index, answer in enumerate(answers)
        )
        assert point["generative_perplexity"] == pytest.approx(math.exp(-total / tokens), rel=1e-6)
        assert point["working_bytes"] > 0
        by_level = {name for found in point["levels"].values() for name in found}
        assert point.keys() | by_level == QUALITY_DEFINITIONS.keys() == result["definitions"].keys()
    assert points["apd"]["weight_bytes"] == points[REFERENCE]["weight_bytes"] + points["verifier"]["weight_bytes"]
    assert points["dflash,block_size=4"]["weight_bytes"] > points["ar"]["weight_bytes"]
    assert points["apd"]["prefix_hit_rate"] > 0.0


def table_of(folder: Path, verifier: Path) -> Path:
    """A table of n-grams that says 65 behind every token but the last ten."""
    owner, contexts = Owner.of(verifier, load_transformer(verifier)), torch.arange(246).unsqueeze(-1)
    rows = len(contexts)
    table = NgramTable(owner, contexts, torch.full((rows, 1), 65), torch.full((rows, 1), 9.0), torch.zeros(rows))
    save_ngram_table(table, folder)
    return folder


def test_a_table_of_ngrams_works_as_in_the_public_api(
    options: QualityBench, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, honest, found = table_of(tmp_path / "table", models["verifier"]), evaluation_module._decode, []

    def watched(system: Any, jobs: Sequence[Any]) -> Any:
        batch = honest(system, jobs)
        if system.name.startswith("apd"):
            found.append(batch.answers[0])
        return batch

    monkeypatch.setattr(evaluation_module, "_decode", watched)
    bench_quality(replace(options, settings=(f"apd,ngrams={table}",)))
    ours = found[1:]  # behind the warm-up
    llm = LLM(models["dllm"], verifier=models["verifier"], ngrams=table)
    theirs = llm.generate([problem.messages for problem in held_out(4)], Sampling(max_tokens=LENGTH, seed=0))
    assert [each.token_ids for each in ours] == [each.token_ids for each in theirs]
    assert [each.stats.verifier_skips for each in ours] == [each.stats.verifier_skips for each in theirs]
    assert sum(each.stats.verifier_skips for each in ours) > 0
    for place, message in (
        (tmp_path, r"has no ngrams\.npz"),
        (table_of(tmp_path / "other", SMALL), "another verifier"),
    ):
        with pytest.raises(ConfigError, match=message):
            bench_quality(replace(options, settings=(f"apd,ngrams={place}",)))


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        (("ar",), {"target"}),
        (("dflash", "ar"), {"target", "drafter"}),
        (("ar", "diffusion,threshold=0.9"), {"target", "dllm"}),
    ],
)
def test_only_models_that_a_setting_needs_are_loaded(
    models: dict[str, Path], settings: tuple[str, ...], needed: set[str]
) -> None:
    """Of the others there is no bundled one here, or it could not be loaded."""
    named = {name: models[name] if name in needed else "nowhere" for name in models.keys() - {"drafter"}}
    drafter = models["drafter"] if "drafter" in needed else None
    result = bench_quality(QualityBench(**named, drafter=drafter, problems=1, max_tokens=4, settings=settings))
    assert [point["setting"] for point in result["points"]] == [*settings, *([REFERENCE] if "dllm" in needed else [])]
    assert result["settings"]["reference"] == (REFERENCE if "dllm" in needed else settings[0])
    assert {name for name in ("dllm", "verifier", "target") if result["settings"][name]} == needed - {"drafter"}
    title = compared_models(result["settings"])
    assert title == ("dllm beside target" if "dllm" in needed else "target")


@pytest.mark.parametrize("name", ["dllm", "target"])
def test_a_model_without_a_tokenizer_is_named(options: QualityBench, name: str) -> None:
    bare = {"dllm": DREAM, "target": TARGET}[name]
    with pytest.raises(ConfigError, match=f"{name} is '.*{bare.name}' and has no tokenizer") as told:
        bench_quality(replace(options, settings=("ar",), **{name: bare}))
    assert told.value.param == name


def prompt_ids(models: dict[str, Path], index: int) -> list[int]:
    return LLM(models["target"]).encode(held_out(4)[index].messages)


def test_a_batch_and_repeats_change_no_answer(options: QualityBench) -> None:
    alone, together = bench_quality(options), bench_quality(replace(options, batch=3, repeats=2))
    for one, other in zip(alone["points"], together["points"], strict=True):
        for name in ("right", "tokens", "forwards", "levels", "kinds", "pairs"):
            assert one[name] == other[name], (one["setting"], name)
        assert other["working_bytes"] > one["working_bytes"], "three answers at a time"


def test_right_answers_are_counted_and_compared(options: QualityBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is made to know all answers, and APD all but that of the first problem."""
    problems, honest = held_out(4), evaluation_module._decode

    def knowing(system: Any, jobs: Sequence[Any]) -> Any:
        batch = honest(system, jobs)
        known = {REFERENCE: 0, "apd": 1}.get(system.name, 4)
        texts = [problems[job.prompt_index].task.answer if job.prompt_index >= known else "" for job in jobs]
        answers = [replace(answer, text=text) for answer, text in zip(batch.answers, texts, strict=True)]
        return replace(batch, answers=answers)

    monkeypatch.setattr(evaluation_module, "_decode", knowing)
    points = {point["setting"]: point for point in bench_quality(options)["points"]}
    assert points[REFERENCE]["accuracy"] == points[REFERENCE]["kept_share"] == 1.0
    assert points["apd"]["accuracy"] == points["apd"]["kept_share"] == 0.75
    assert points["apd"]["pairs"] == {"both": 3, "only_setting": 0, "only_reference": 1, "neither": 0}
    assert 0.0 < points["apd"]["kept_share_low"] < 0.75
    assert points["ar"]["kept_share"] == 0.0
    first = problems[0].task.kind
    assert [kind for kind, found in points["apd"]["kinds"].items() if found["accuracy"] < 1.0] == [first]


def test_the_result_is_plain_data_and_says_what_was_in_effect(options: QualityBench, models: dict[str, Path]) -> None:
    result = bench_quality(replace(options, max_tokens=None, settings=("apd",), problems=2, kinds=("sums", "records")))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    settings = result["settings"]
    assert {name: settings[name] for name in ("dllm", "verifier", "target")} == {
        name: str(models[name]) for name in ("dllm", "verifier", "target")
    }
    longest = max(len(problem.task.answer.encode()) for problem in held_out(2, ("sums", "records")))
    assert longest < settings["max_tokens"] <= longest + 8, "a token of these models is a byte"
    assert settings["settings"] == ["apd", REFERENCE]
    assert list(result["points"][0]["kinds"]) == ["sums", "records"] or list(result["points"][0]["kinds"]) == [
        "records",
        "sums",
    ]


def test_tables_and_picture(options: QualityBench, models: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    asked = FrontierBench(**models, problems=3, max_tokens=8, settings=SETTINGS)
    result = bench_frontier(asked)
    assert result["bench"] == "frontier"
    assert result["frontier"] == frontier(result["points"])
    console = Console(width=80)
    with console.capture() as capture:
        show_quality(result, console)
    told = " ".join(capture.get().split())
    for words in ("apd", "AR ", "[42.3]", "[68.1]", "[178.5]", "[22.7 GB]", "[45 ms]", "3 held-out problems",
                  "no right answer", "Nothing is both as right and as fast as: ", "problems tell little"):  # fmt: skip
        assert words in told, words
    assert "functions" not in told, "too narrow for all kinds"
    wide = Console(width=160)
    with wide.capture() as capture:
        show_quality(result, wide)
    assert "functions" in capture.get()
    spread = [point | {"accuracy": index / 10} for index, point in enumerate(result["points"])]
    save_plot(result | {"points": spread}, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    for words in ("DFlash", "masked diffusion", "APD", "APD, fixed", "schedule=fixed,window=8", "threshold=0.9"):
        assert f"<!-- {words} -->" in drawn, words
    save_plot(bench_quality(replace(options, problems=2, settings=("ar",), reference="ar")), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dllm": "target"}, ConfigError, "the model is autoregressive: it has no mask token"),
        ({"verifier": "dllm"}, ConfigError, "a diffusion language model: it has no next token"),
        ({"target": "dllm", "drafter": None, "settings": ("ar",)}, UnsupportedModel, "a diffusion language model"),
        ({"drafter": None}, ConfigError, "setting 'dflash,block_size=4': the target has no drafter. Name one"),
        ({"verifier": None}, ConfigError, "has no verifier. Name the small autoregressive model"),
        ({"target": "nowhere"}, PacelineError, "target is 'nowhere': there is no such model"),
        ({"kinds": ("poems",)}, ConfigError, "kind is 'poems'"),
    ],
)
def test_models_that_do_not_fit_are_refused(
    options: QualityBench, models: dict[str, Path], change: dict[str, Any], error: type[Exception], message: str
) -> None:
    named = {name: models.get(str(value), value) for name, value in change.items()}
    with pytest.raises(error) as told:
        bench_quality(replace(options, **named))
    assert message in str(told.value)


def test_other_tokens_and_prompts_that_do_not_fit_are_refused(options: QualityBench, tmp_path: Path) -> None:
    other = talking(TARGET, tmp_path / "other")
    save(other, byte_level(), {"eos_token": "<|im_end|>"})
    with pytest.raises(VocabularyMismatch):
        bench_quality(replace(options, target=other, drafter=None, settings=("ar",)))
    short = talking(SMALL, tmp_path / "short", max_position_embeddings=20)
    with pytest.raises(ContextOverflow, match="the model's context is 20 tokens"):
        bench_quality(replace(options, verifier=short, settings=("apd",)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"settings": ()}, "settings is empty"),
        ({"settings": ("apd,alpah=1",)}, "Did you mean alpha"),
        ({"reference": "best"}, "There is no method 'best'"),
        ({"problems": 0}, "problems is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        QualityBench(**settings)


def test_the_lists_of_settings_hold_what_they_should() -> None:
    quality, swept = QualityBench(), FrontierBench()
    assert (
        {"ar", "dflash", "verifier", "apd", REFERENCE} <= set(quality.settings) <= {*swept.settings, *quality.settings}
    )
    assert set(quality.settings) - set(swept.settings) == {"diffusion,strategy=left_to_right"}
    assert len(swept.configurations) == len(set(swept.settings))
    assert QualityBench(kinds=("sums,records", "functions")).kinds == ("sums", "records", "functions")


def points_of(*places: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        {"setting": str(index), "tokens_per_second": speed, "accuracy": accuracy}
        for index, (speed, accuracy) in enumerate(places)
    ]


def test_the_frontier_is_what_a_slow_definition_says() -> None:
    places = [(speed, (7 * speed + 3 * speed * speed) % 11 / 11) for speed in range(1, 30)]
    places += [(29, places[-1][1] - 0.01), (5, 1.0), (5, 0.9)]
    points = points_of(*places)

    def beaten(place: tuple[float, float]) -> bool:
        return any(other[0] >= place[0] and other[1] >= place[1] and other != place for other in places)

    assert frontier(points) == [
        points[places.index(place)]["setting"] for place in sorted(set(places)) if not beaten(place)
    ]


def test_names_that_would_cover_each_other_are_left_out(options: QualityBench, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = bench_quality(replace(options, problems=2, settings=("ar", "diffusion,threshold=0.9"), reference="ar"))
    shared = {"tokens_per_second": 9.0, "accuracy": 0.5}
    points = [point | shared for point in result["points"]]
    save_plot(result | {"points": points}, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert sum(f"<!-- {name} -->" in drawn for name in ("ar", "threshold=0.9")) == 1
