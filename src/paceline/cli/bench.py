"""`paceline bench`: measurements that anybody can repeat. `paceline.bench` measures; its settings are the flags."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from paceline.bench.kernel_options import KernelBench
from paceline.bench.memory_options import MemoryBench
from paceline.bench.options import CurveBench, DecodeBench, Workload
from paceline.bench.quality_options import FrontierBench, QualityBench
from paceline.bench.throughput_options import ThroughputBench
from paceline.cli.flags import configured
from paceline.cli.options import check_threads, place

__all__ = ["app", "curve", "decode", "frontier", "kernels", "memory", "quality", "throughput"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure speed and memory, and check the output.")

Asked = TypeVar("Asked", bound=Workload | QualityBench | KernelBench)
Json = Annotated[
    Path | None, typer.Option(callback=place("file", exists=False), help="Write all figures to a JSON file.")
]
Plot = Annotated[
    Path | None, typer.Option(callback=place("file", exists=False), help="Draw them (needs paceline[bench]).")
]


@app.command("decode")
@configured()
def decode(*, json: Json = None, plot: Plot = None, options: DecodeBench) -> None:
    """Plain decoding against DFlash on held-out prompts of long text, dialogue and code; or against --method lookup.

    With --sweep, what each part of DFlash buys. Ends with 1 where an answer that should be the plain one is not.
    """
    if options.sweep:
        _sweep(options, json, plot)
        return
    from paceline.bench.figures import all_identical
    from paceline.bench.report import show
    from paceline.bench.run import bench_decode

    result = _measured(bench_decode, options, json, plot)
    show(result)
    _save(result, json, plot)
    if not all_identical(result["scenarios"]):
        raise typer.Exit(1)


def _sweep(options: DecodeBench, json: Path | None, plot: Path | None) -> None:
    from paceline.bench.sweep import bench_sweep
    from paceline.bench.sweep_report import show_sweep

    result = _measured(bench_sweep, options, json, plot)
    show_sweep(result)
    _save(result, json, plot)
    if not all(point["identical"] for point in result["points"]):
        raise typer.Exit(1)


@app.command("curve")
@configured(prompts_per_scenario=4, max_tokens=64, repeats=2)
def curve(*, json: Json = None, plot: Plot = None, options: CurveBench) -> None:
    """What speed costs in quality: block sizes and precisions against plain decoding in exact.

    Ends with 1 where an answer is not plain decoding's own in its precision.
    """
    from paceline.bench.curve import bench_curve
    from paceline.bench.curve_report import show_curve

    result = _measured(bench_curve, options, json, plot)
    show_curve(result)
    _save(result, json, plot)
    if not all(point["identical"] for point in result["points"]):
        raise typer.Exit(1)


@app.command("memory")
@configured()
def memory(*, json: Json = None, plot: Plot = None, options: MemoryBench) -> None:
    """Bytes that attention takes in a pass, by the length of the prompt, and the power at which they grow.

    Of plain decoding and APD; counted, not timed, on random models with the attention of those named.
    """
    from paceline.bench.memory import bench_memory
    from paceline.bench.memory_report import show_memory

    _check_places(json, plot)
    result = bench_memory(options)
    show_memory(result)
    _save(result, json, plot)


@app.command("throughput")
@configured(prompts_per_scenario=8, max_tokens=64, repeats=1)
def throughput(*, json: Json = None, plot: Plot = None, options: ThroughputBench) -> None:
    """Many requests at random times: what they wait, and how many are served, one and several at a time."""
    from paceline.bench.throughput import bench_throughput
    from paceline.bench.throughput_report import show_throughput

    result = _measured(bench_throughput, options, json, plot)
    show_throughput(result)
    _save(result, json, plot)


@app.command("kernels")
@configured()
def kernels(*, json: Json = None, plot: Plot = None, options: KernelBench) -> None:
    """How close the products and passes of a model come to what this machine can read and multiply, by rows.

    Native, in torch, and beside llama.cpp; float32 on the CPU.
    """
    from paceline.bench.kernel_report import show_kernels
    from paceline.bench.kernels import bench_kernels

    result = _measured(bench_kernels, options, json, plot)
    show_kernels(result)
    _save(result, json, plot)


@app.command("quality")
@configured()
def quality(*, json: Json = None, plot: Plot = None, options: QualityBench) -> None:
    """Right answers and speed of a diffusion model, with and without its verifier, beside a target of its size."""
    from paceline.bench.quality import bench_quality
    from paceline.bench.quality_report import show_quality

    result = _measured(bench_quality, options, json, plot)
    show_quality(result)
    _save(result, json, plot)


@app.command("frontier")
@configured()
def frontier(*, json: Json = None, plot: Plot = None, options: FrontierBench) -> None:
    """Accuracy against speed over the settings of APD and of the methods beside it: which of them nothing beats."""
    from paceline.bench.frontier import bench_frontier
    from paceline.bench.quality_report import show_quality

    result = _measured(bench_frontier, options, json, plot)
    show_quality(result)
    _save(result, json, plot)


def _measured(
    bench: Callable[[Asked], dict[str, Any]], options: Asked, json: Path | None, plot: Path | None
) -> dict[str, Any]:
    """The result of a benchmark; what could not be served, written or drawn is refused before it."""
    check_threads(options.threads)
    _check_places(json, plot)
    return bench(options)


def _check_places(json: Path | None, plot: Path | None) -> None:
    from paceline.bench.report import check_place, check_plot

    if json is not None:
        check_place(json)
    if plot is not None:
        check_plot(plot)


def _save(result: dict[str, Any], json: Path | None, plot: Path | None) -> None:
    from paceline.bench.report import save_json, save_plot

    if json is not None:
        save_json(result, json)
    if plot is not None:
        save_plot(result, plot)
