"""`paceline bench`: measurements that anybody can repeat. Knows the options; `paceline.bench` measures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from paceline.bench.options import PEERS, DecodeBench
from paceline.cli.options import Device, Drafter, Model, Precision, Threads, check_threads

__all__ = ["app", "decode"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure speed, and check the output.")
_DEFAULTS = DecodeBench()


@app.callback()
def _bench() -> None:
    pass


@app.command("decode")
def decode(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke test: few prompts, short answers.")] = False,
    json: Annotated[Path | None, typer.Option(dir_okay=False, help="Write all figures to a JSON file.")] = None,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="Draw them (needs paceline[bench]).")] = None,
    model: Model = None,
    drafter: Drafter = None,
    block_size: Annotated[list[int] | None, typer.Option(help="May be repeated: a method for each.")] = None,
    max_tokens: Annotated[int, typer.Option(help="Longest answer.")] = _DEFAULTS.max_tokens,
    scenario: Annotated[list[str] | None, typer.Option(help="May be repeated; all if left out.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="JSON lines of your own prompts.")
    ] = None,
    prompts_per_scenario: Annotated[int | None, typer.Option(help="The first so many; all if left out.")] = None,
    repeats: Annotated[int, typer.Option(help="Paired measurements of each prompt.")] = _DEFAULTS.repeats,
    temperature: Annotated[float, typer.Option(help="Of every request.")] = _DEFAULTS.temperature,
    seed: Annotated[int, typer.Option(help="Of every request.")] = _DEFAULTS.seed,
    peer: Annotated[
        list[str] | None,
        typer.Option("--peer", "--peers", metavar="A,B", help=f"Also measure these programs: {', '.join(PEERS)}."),
    ] = None,
    assistant: Annotated[
        str | None, typer.Option(help="The small model of transformers-assisted: a folder or a hub id.")
    ] = None,
    inflate: Annotated[int, typer.Option(help="So many times as wide, computing the same function.")] = 1,
    precision: Precision = _DEFAULTS.precision,
    device: Device = _DEFAULTS.device,
    threads: Threads = None,
) -> None:
    """Plain decoding against DFlash on held-out prompts of long text, dialogue and code.

    Ends with 1 where an answer that should be the plain one is not.
    """
    options = DecodeBench(
        model=model,
        drafter=drafter,
        precision=cast(Any, precision),
        device=device,
        prompts=prompts,
        scenarios=tuple(scenario or ()),
        prompts_per_scenario=prompts_per_scenario,
        quick=quick,
        repeats=repeats,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        block_sizes=tuple(block_size or ()),
        inflate=inflate,
        peers=tuple(name for names in peer or () for name in names.split(",") if name),
        assistant=assistant,
        threads=threads,
    )
    check_threads(threads)
    from paceline.bench.figures import all_identical
    from paceline.bench.report import check_plot, save_json, save_plot, show
    from paceline.bench.run import bench_decode

    if plot is not None:
        check_plot(plot)
    result = bench_decode(options)
    show(result)
    if json is not None:
        save_json(result, json)
    if plot is not None:
        save_plot(result, plot)
    if not all_identical(result["scenarios"]):
        raise typer.Exit(1)
