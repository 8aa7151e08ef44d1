"""`paceline zoo build`: a plan, then the stages of train/build/, then figures and model cards.

Knows the order, and how plan and figures look. Knows nothing of training or measuring.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from paceline.cli.flags import configured
from paceline.cli.options import place, set_threads
from paceline.cli.output import resumable, say, say_if_watched
from paceline.files import write_text
from paceline.lock import alone_in
from paceline.models.options import Threads
from paceline.settings import Setting

if TYPE_CHECKING:
    from paceline.train.build.recipe import Recipe
    from paceline.train.build.stages import Stage
    from paceline.train.heldout import Score

__all__ = ["build", "show_scores"]


@configured()
@resumable()
def build(
    *,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", callback=place("folder", exists=False), help="Where to build; the same one resumes."
        ),
    ],
    scale: Annotated[
        float, Setting("Below 1: fewer documents, answers and steps, to try the way.", above=0, most=1)
    ] = 1.0,
    only_plan: Annotated[bool, typer.Option("--plan", help="Show what it would take, and stop.")] = False,
    threads: Threads = None,
) -> None:
    """Make all bundled models again, from Python's own files and generated text; shows a plan first."""
    from paceline.train.build.recipe import bundled_recipe, check_build, open_build
    from paceline.train.build.stages import stages

    set_threads(threads)
    recipe = bundled_recipe(out, scale)
    steps = stages(out, recipe)
    if only_plan:
        check_build(out, recipe)
        _show_plan(steps, recipe)
        return
    with alone_in(out):
        open_build(out, recipe)  # before the trial, so that a folder that will not do is told at once
        _show_plan(steps, recipe)
        for stage in steps:
            say(f"{stage.folder}{' is there' if stage.done else ' …'}")
            stage.complete()
        _finish(out, recipe)


def show_scores(scores: list[Score]) -> None:
    """A line for each kind of text."""
    table = Table("kind", "tokens", "bytes", "bits/byte", "5-gram", box=None, pad_edge=False)
    for each in scores:
        table.add_row(each.kind, f"{each.tokens:,}", f"{each.bytes:,}", f"{each.model:.3f}", f"{each.ngram:.3f}")
    Console(highlight=False).print(table)


def _show_plan(steps: list[Stage], recipe: Recipe) -> None:
    from paceline.train.build.plan import measure_rates, plan

    say("Trying some steps, to say how long it takes: about a minute …")
    rows = plan(steps, measure_rates(recipe, say_if_watched))
    table = Table("stage", "answers", "steps", "done", "tokens", "TFLOP", "minutes left", box=None, pad_edge=False)
    for row in rows:
        counts = [f"{count:,}" if count else "" for count in (row.answers, row.steps, row.steps_done)]
        costs = [f"{row.tokens / 1e6:.2f} M", f"{row.flops / 1e12:.1f}"] if row.tokens else ["", ""]
        table.add_row(row.name, *counts, *costs, "" if row.seconds is None else f"{row.seconds / 60:.1f}")
    total = sum(row.seconds or 0.0 for row in rows)
    table.add_row("all", "", "", "", "", f"{sum(row.flops for row in rows) / 1e12:.1f}", f"{total / 60:.1f}")
    Console(highlight=False).print(table)


def _finish(out: Path, recipe: Recipe) -> None:
    """Measure the models, and write their cards."""
    from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_DRAFTER, BUNDLED_TARGET, BUNDLED_VERIFIER

    runs = {name: out / name / "run" for name in (BUNDLED_DRAFTER, BUNDLED_DLLM, BUNDLED_VERIFIER)}
    runs[BUNDLED_TARGET] = out / "target-0" / "run"
    _finish_pair(out / BUNDLED_TARGET, out / BUNDLED_DRAFTER, recipe)
    _finish_diffusion(out / BUNDLED_DLLM, out / BUNDLED_VERIFIER, recipe)
    for name, run in runs.items():
        if (run / "curve.png").is_file():
            shutil.copyfile(run / "curve.png", out / name / "curve.png")
    say(f"Wrote {', '.join(str(out / name) for name in runs)}.")


def _finish_pair(target: Path, drafter: Path, recipe: Recipe) -> None:
    """How well the target knows its text, and how much of it the drafter guesses."""
    from paceline.bench.options import DecodeBench
    from paceline.bench.run import bench_decode
    from paceline.train.build.cards import drafter_card, target_card
    from paceline.train.heldout import score

    scores = score(target, recipe.target.corpus)
    show_scores(scores)
    say("Decoding held-out prompts …")
    scenarios = bench_decode(DecodeBench(model=target, drafter=drafter, repeats=1))["scenarios"]
    distinct = {name: each["ar"]["distinct_4gram_share"] for name, each in scenarios.items()}
    expected = {name: each["dflash"]["acceptance_length"] for name, each in scenarios.items()}
    write_text(target / "README.md", target_card(target, recipe, scores, distinct))
    write_text(drafter / "README.md", drafter_card(drafter, recipe, expected))


def _finish_diffusion(dllm: Path, verifier: Path, recipe: Recipe) -> None:
    """How many tasks the diffusion model solves, alone and with its verifier."""
    from paceline.bench.quality import bench_quality
    from paceline.bench.quality_options import QualityBench
    from paceline.bench.quality_report import show_quality
    from paceline.train.build.cards import dllm_card, verifier_card
    from paceline.zoo.catalog import BUNDLED_TARGET

    say("Solving held-out tasks …")
    asked = ("diffusion,strategy=left_to_right", "apd")
    models = QualityBench(
        dllm, verifier, dllm.parent / BUNDLED_TARGET, problems=recipe.problems, settings=asked, reference=asked[0]
    )
    result = bench_quality(models)
    show_quality(result)
    write_text(dllm / "README.md", dllm_card(dllm, recipe, result["points"]))
    write_text(verifier / "README.md", verifier_card(verifier, recipe))
