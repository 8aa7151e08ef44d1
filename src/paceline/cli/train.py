"""`paceline train`: the recipes of train/ from the command line, to a checkpoint that `--model` and `--drafter` take.

Flags are the fields of the configurations in train/options.py, one for one. A command that was killed goes on where it
stopped when it is given again. Knows nothing of how a recipe goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.flags import Layers, configured
from paceline.cli.options import place, set_threads
from paceline.cli.output import resumable, say
from paceline.models.options import Threads
from paceline.train.diffusion_options import DllmConfig, JointConfig, NgramConfig, SamplesConfig, VerifierConfig
from paceline.train.effect import check_training
from paceline.train.options import TURN_START, DrafterConfig, ResponsesConfig, TargetConfig, UnloopConfig
from paceline.train.shape import ShapeConfig

__all__ = ["app", "dllm", "drafter", "joint", "ngram", "target", "unloop", "verifier"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Train a target and its drafter, or a diffusion model and its verifier.",
)

Corpus = Annotated[
    Path, typer.Option(callback=place("folder", exists=True), help="Folder that `paceline zoo corpus` wrote.")
]
Out = Annotated[
    Path, typer.Option(callback=place("folder", exists=False), help="Folder for the checkpoint; the same one resumes.")
]
Trained = Annotated[str, typer.Option(help="The target: a folder, a hub id or a bundled model.")]
MaskToken = Annotated[str, typer.Option(help="The token that stands for an empty slot.")]
Diffusing = Annotated[str, typer.Option(help="The diffusion model: a folder or a hub id.")]
Verifying = Annotated[str, typer.Option(help="Its verifier: a folder or a hub id.")]
TurnStart = Annotated[str, typer.Option(help="What opens an assistant's turn.")]


@app.command("target")
@configured(steps=1400)
@resumable()
def target(*, corpus: Corpus, out: Out, recipe: TargetConfig, threads: Threads = None) -> None:
    """Train the bundled AR target from random weights on a corpus."""
    from paceline.train.recipes import make_target

    set_threads(threads)
    make_target(recipe, out)
    say(f"Wrote {out}.")


@app.command("unloop")
@configured(steps=45, learning_rate=5e-4, warmup_steps=8, max_tokens=112, sampled_share=0.0, batch=64, count=448)
@resumable()
def unloop(
    *,
    target: Trained,
    corpus: Corpus,
    out: Out,
    recipe: UnloopConfig,
    answers: ResponsesConfig,
    turn_start: TurnStart = TURN_START,
    threads: Threads = None,
    layers: Layers,
) -> None:
    """Let a target answer greedily, then teach it not to say the same again; may be repeated on its own result."""
    from paceline.models.resolve import resolve
    from paceline.train.recipes import make_unlooped

    check_training(layers.asked, recipe, answers)
    set_threads(threads)
    make_unlooped(resolve(target, "target"), recipe, answers, turn_start, out)
    say(f"Wrote {out}.")


@app.command("drafter")
@configured(steps=1000)
@resumable()
def drafter(
    *,
    target: Trained,
    corpus: Corpus,
    out: Out,
    recipe: DrafterConfig,
    responses: ResponsesConfig,
    answers: Annotated[
        Path | None,
        typer.Option(
            callback=place("folder", exists=True), help="Folder answers/ of an earlier run, to learn from the same."
        ),
    ] = None,
    start: Annotated[str | None, typer.Option(help="A drafter of this target to go on with, as on other text.")] = None,
    mask_token: MaskToken = "<|mask|>",
    turn_start: TurnStart = TURN_START,
    threads: Threads = None,
    layers: Layers,
) -> None:
    """Let a target generate answers, then train a DFlash drafter on them."""
    from paceline.models.resolve import resolve
    from paceline.train.recipes import make_drafter

    check_training(layers.asked, recipe, responses)
    set_threads(threads)
    names = {"mask_token": mask_token, "turn_start": turn_start}
    begun = None if start is None else resolve(start, "start")
    folder = resolve(target, "target")
    make_drafter(folder, corpus, recipe, responses, **names, out=out, answers_folder=answers, start=begun)
    say(f"Wrote {out}.")


@app.command("dllm")
@configured(steps=1500, learning_rate=2e-3)
@resumable()
def dllm(
    *,
    corpus: Corpus,
    out: Out,
    start: Annotated[
        str | None, typer.Option(help="A model to begin with: autoregressive, then opened to both sides, or diffusion.")
    ] = None,
    shape: ShapeConfig,
    recipe: DllmConfig,
    mask_token: MaskToken = "<|mask|>",
    threads: Threads = None,
    layers: Layers,
) -> None:
    """Train a diffusion language model to find masked tokens."""
    from paceline.models.resolve import resolve
    from paceline.train.diffusion_recipes import make_dllm

    check_training(layers.asked, recipe)
    set_threads(threads)
    make_dllm(None if start is None else resolve(start, "start"), shape, recipe, mask_token, out)
    say(f"Wrote {out}.")


@app.command("verifier")
@configured(steps=1500, max_tokens=128, sampled_share=0.5)
@resumable()
def verifier(
    *,
    dllm: Diffusing,
    corpus: Corpus,
    out: Out,
    start: Annotated[str | None, typer.Option(help="A verifier to go on with, as on the text of a domain.")] = None,
    recipe: VerifierConfig,
    samples: SamplesConfig,
    turn_start: TurnStart = TURN_START,
    threads: Threads = None,
    layers: Layers,
) -> None:
    """Let a diffusion model speak, then train the small autoregressive model that checks it in APD."""
    from paceline.models.resolve import resolve
    from paceline.train.diffusion_recipes import make_verifier

    check_training(layers.asked, recipe, samples)
    set_threads(threads)
    begun = None if start is None else resolve(start, "start")
    make_verifier(resolve(dllm, "dllm"), begun, recipe, samples, turn_start=turn_start, out=out)
    say(f"Wrote {out}.")


@app.command("joint")
@configured(steps=300, learning_rate=5e-4)
@resumable()
def joint(
    *,
    dllm: Diffusing,
    verifier: Verifying,
    corpus: Corpus,
    out: Annotated[
        Path,
        typer.Option(
            callback=place("folder", exists=False), help="Folder for both, dllm/ and verifier/; the same resumes."
        ),
    ],
    recipe: JointConfig,
    threads: Threads = None,
    layers: Layers,
) -> None:
    """Train a diffusion model and its verifier together, so that their product is right."""
    from paceline.models.resolve import resolve
    from paceline.train.diffusion_recipes import make_joint

    check_training(layers.asked, recipe)
    set_threads(threads)
    make_joint(resolve(dllm, "dllm"), resolve(verifier, "verifier"), recipe, out)
    say(f"Wrote {out}.")


@app.command("ngram")
@configured()
def ngram(
    *,
    verifier: Verifying,
    corpus: Corpus,
    out: Annotated[
        Path, typer.Option(callback=place("folder", exists=False), help="Folder for the table, which --ngrams takes.")
    ],
    recipe: NgramConfig,
    threads: Threads = None,
) -> None:
    """Write down what a verifier says behind frequent contexts, for APD to look up instead of asking it."""
    from paceline.models.resolve import resolve
    from paceline.train.diffusion_recipes import make_ngrams

    set_threads(threads)
    contexts = make_ngrams(resolve(verifier, "verifier"), recipe, out)
    say(f"Wrote {out}: {contexts} contexts.")
