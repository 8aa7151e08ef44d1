"""`paceline zoo`: what is bundled, and the text it was trained on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from paceline.cli.build import build, show_scores
from paceline.cli.flags import configured
from paceline.cli.options import place, set_threads
from paceline.cli.output import say
from paceline.models.options import Threads
from paceline.settings import Setting

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The bundled models and their training text.")
app.command("build")(build)


@app.command("list")
def list_models() -> None:
    """Show the bundled models; `--model NAME` takes each of them."""
    from paceline.zoo.catalog import bundled_folder, bundled_names

    table = Table("name", "kind", "parameters", "MB", "what it is", box=None, pad_edge=False)
    for name in bundled_names():
        folder = bundled_folder(name)
        assert folder is not None
        table.add_row(name, _kind(folder), *_size(folder), _about(folder))
    if table.row_count:
        Console(highlight=False).print(table)
    else:
        say("This installation bundles no models.")


def _kind(folder: Path) -> str:
    from paceline.models.diffusion_spec import diffusion_of
    from paceline.models.drafter_spec import DRAFTERS

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if set(DRAFTERS) & set(config.get("architectures", ())):
        return "DFlash drafter"
    return "autoregressive" if diffusion_of(config) is None else "diffusion"


def _size(folder: Path) -> tuple[str, str]:
    """Parameters, and megabytes on disk, of all safetensors files."""
    files = sorted(folder.glob("*.safetensors"))
    parameters = sum(math.prod(shape) for file in files for shape in _shapes(file))
    return f"{parameters / 1e6:.1f} M", f"{sum(file.stat().st_size for file in files) / 1e6:.1f}"


def _shapes(file: Path) -> list[list[int]]:
    """Shapes of all tensors, from the header: its length in 8 bytes, then JSON."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return [entry["shape"] for name, entry in header.items() if name != "__metadata__"]


def _about(folder: Path) -> str:
    """The first line of text of the model card."""
    card = folder / "README.md"
    if not card.is_file():
        return ""
    text = card.read_text(encoding="utf-8")
    body = text.split("---\n", 2)[2] if text.startswith("---\n") else text
    return next((line for line in body.splitlines() if line.strip() and not line.startswith("#")), "")


@app.command("corpus")
@configured()
def corpus(
    *,
    out: Annotated[
        Path, typer.Argument(metavar="DIR", callback=place("folder", exists=False), help="Where to write it.")
    ],
    stories: Annotated[int | None, Setting("Generated stories and reports.", least=0)] = None,
    dialogues: Annotated[int | None, Setting("Generated dialogues.", least=0)] = None,
    modules: Annotated[int | None, Setting("Generated Python modules.", least=0)] = None,
    tasks: Annotated[int | None, Setting("Generated tasks with answers; none if left out.", least=0)] = None,
    drills: Annotated[int | None, Setting("Generated sums to practise; none if left out.", least=0)] = None,
    library: Annotated[bool, typer.Option(help="With the text that comes with Python.")] = True,
    tokenizer: Annotated[
        Path | None,
        typer.Option(callback=place("folder", exists=True), help="Use this tokenizer instead of training one."),
    ] = None,
) -> None:
    """Generate the training text: DIR/tokenizer, DIR/train.npz and DIR/heldout.npz. Takes some minutes."""
    from paceline.zoo.corpus import build

    given = {"stories": stories, "dialogues": dialogues, "modules": modules, "tasks": tasks, "drills": drills}
    build(out, tokenizer, library=library, **{name: count for name, count in given.items() if count is not None})


@app.command("score")
@configured()
def score(
    *,
    model: Annotated[str, typer.Option(help="The target: a folder, a hub id or a bundled model.")],
    corpus: Annotated[
        Path, typer.Option(callback=place("folder", exists=True), help="Folder that `paceline zoo corpus` wrote.")
    ],
    threads: Threads = None,
) -> None:
    """Show how well a target predicts held-out text, in bits per byte, beside a 5-gram model of the same corpus."""
    from paceline.models.resolve import resolve
    from paceline.train.heldout import score as held_out

    set_threads(threads)
    show_scores(held_out(resolve(model), corpus))
