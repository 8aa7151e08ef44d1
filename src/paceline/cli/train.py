"""`paceline train`: the recipes of train/ from the command line, to a checkpoint that `--model` and `--drafter` take.

Flags are the fields of the configurations in train/, one for one. A command that was killed goes on where it stopped
when it is given again. Layout of the output folder: the checkpoint itself, `run/` (log.jsonl and what resuming needs)
and, for a drafter, `answers/`. Knows the order of the steps, nothing of how they are done.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.options import Threads, set_threads
from paceline.cli.output import say
from paceline.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from paceline.text import Tokenizer
    from paceline.train.responses import ResponsesConfig

__all__ = ["app", "drafter", "target"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Train a target, then a drafter for it.")

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

Corpus = Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder that `paceline zoo corpus` wrote.")]
Out = Annotated[Path, typer.Option(file_okay=False, help="Folder for the checkpoint; the same one resumes.")]
Steps = Annotated[int, typer.Option(min=1, help="Optimiser steps in all.")]
Rate = Annotated[float, typer.Option(min=0.0, help="Peak learning rate.")]
WarmUp = Annotated[int, typer.Option(min=0, help="Steps of linear rise.")]
FinalShare = Annotated[float, typer.Option(min=0.0, max=1.0, help="Last rate, as a share of the peak.")]
Clip = Annotated[float, typer.Option(min=0.0, help="Largest gradient norm.")]
MicroBatches = Annotated[int, typer.Option(min=1, help="Backward passes per step.")]
EvaluateEvery = Annotated[int, typer.Option(min=1, help="Steps between evaluations.")]
SaveEvery = Annotated[int, typer.Option(min=1, help="Steps between savings.")]
Compile = Annotated[bool, typer.Option("--compile", help="torch.compile; needs a C++ compiler.")]
Seed = Annotated[int, typer.Option(help="Of everything that is drawn.")]


@app.command("target")
def target(
    *,
    corpus: Corpus,
    out: Out,
    steps: Steps = 1400,
    learning_rate: Rate = 4e-3,
    warmup_steps: WarmUp = 50,
    final_share: FinalShare = 0.02,
    clip: Clip = 1.0,
    micro_batches: MicroBatches = 1,
    evaluate_every: EvaluateEvery = 100,
    save_every: SaveEvery = 100,
    compile: Compile = False,
    seed: Seed = 0,
    window_tokens: Annotated[int, typer.Option(min=2, help="Length of a training window.")] = 384,
    windows_per_batch: Annotated[int, typer.Option(min=1, help="Windows of a micro batch.")] = 11,
    repeated_windows: Annotated[int, typer.Option(min=0, help="Of these, how many teach it not to loop.")] = 0,
    evaluation_windows: Annotated[int, typer.Option(min=1, help="Held-out windows per evaluation.")] = 33,
    threads: Threads = None,
) -> None:
    """Train the bundled AR target from random weights on a corpus."""
    flags = locals()
    tokenizer = _tokenizer(corpus / "tokenizer")
    import torch

    from paceline.models.save import save_transformer
    from paceline.models.transformer import Transformer
    from paceline.train.loop import FitConfig
    from paceline.train.target import TargetConfig, bundled_target_spec, train_target

    set_threads(threads)
    config = TargetConfig(fit=FitConfig(**_of(FitConfig, flags)), **_of(TargetConfig, flags))
    torch.manual_seed(seed)
    model = Transformer(bundled_target_spec(tokenizer.size, _end_ids(tokenizer)))
    train_target(model, config, out / "run")
    save_transformer(model, out)
    for name in _TOKENIZER_FILES:
        if (corpus / "tokenizer" / name).is_file():
            shutil.copyfile(corpus / "tokenizer" / name, out / name)
    say(f"Wrote {out}.")


@app.command("drafter")
def drafter(
    *,
    target: Annotated[str, typer.Option(help="The target: a folder, a hub id or a bundled model.")],
    corpus: Corpus,
    out: Out,
    steps: Steps = 1000,
    learning_rate: Rate = 4e-3,
    warmup_steps: WarmUp = 50,
    final_share: FinalShare = 0.02,
    clip: Clip = 1.0,
    micro_batches: MicroBatches = 1,
    evaluate_every: EvaluateEvery = 100,
    save_every: SaveEvery = 100,
    compile: Compile = False,
    seed: Seed = 0,
    rows_per_batch: Annotated[int, typer.Option(min=1, help="Answers per step.")] = 32,
    block_rows: Annotated[int, typer.Option(min=1, help="Slots per answer and step, anchors included.")] = 96,
    shortest_block: Annotated[int, typer.Option(min=2, help="Blocks are this long, up to 16.")] = 4,
    weighting: Annotated[str, typer.Option(metavar="decay|pace", help="How slots are weighted.")] = "decay",
    gamma: Annotated[float, typer.Option(min=0.1, help="Decay of the slots' weights.")] = 7.0,
    distill_share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of KL to the target.")] = 0.0,
    heldout_rows: Annotated[int, typer.Option(min=1, help="Answers kept back for evaluation.")] = 128,
    count: Annotated[int, typer.Option(min=8, help="Answers the target generates to learn from.")] = 4800,
    prompt_tokens: Annotated[tuple[int, int], typer.Option(help="Shortest and longest beginning of a text.")] = (
        24,
        80,
    ),
    max_tokens: Annotated[int, typer.Option(min=8, help="Longest answer.")] = 160,
    sampled_share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share drawn at temperature 1.")] = 0.25,
    batch: Annotated[int, typer.Option(min=1, help="Answers decoded together.")] = 48,
    part: Annotated[int, typer.Option(min=1, help="Answers per file; what is lost when killed.")] = 480,
    mask_token: Annotated[str, typer.Option(help="The token that stands for an empty slot.")] = "<|mask|>",
    turn_start: Annotated[str, typer.Option(help="What opens an assistant's turn.")] = "<|im_start|>assistant\n",
    threads: Threads = None,
) -> None:
    """Let a target generate answers, then train a DFlash drafter on them."""
    flags = locals()
    from paceline.models.load import check_same_tokens, load_transformer, resolve

    folder = resolve(target)
    tokenizer = _tokenizer(folder)
    mask, opening = _mask_and_opening(tokenizer, mask_token, turn_start)
    check_same_tokens(tokenizer.vocabulary, _tokenizer(corpus / "tokenizer").vocabulary)
    import torch

    from paceline.models.save import save_drafter
    from paceline.train.drafter import DrafterConfig, Objective, bundled_drafter_spec, new_drafter, train_drafter
    from paceline.train.loop import FitConfig
    from paceline.train.responses import ResponsesConfig, load_responses

    set_threads(threads)
    answers = ResponsesConfig(**_of(ResponsesConfig, flags))
    _answer(folder, tokenizer, corpus, out / "answers", opening=opening, config=answers)
    responses = load_responses(out / "answers", 2 * answers.prompt_tokens[1] + answers.max_tokens)
    model = load_transformer(folder, torch.float32, trainable=True).requires_grad_(False)
    module = new_drafter(bundled_drafter_spec(model.spec, mask), model, seed)
    objective = Objective(**_of(Objective, flags))
    config = DrafterConfig(fit=FitConfig(**_of(FitConfig, flags)), objective=objective, **_of(DrafterConfig, flags))
    train_drafter(module, model, responses, config, out / "run")
    save_drafter(module, out)
    say(f"Wrote {out}.")


def _mask_and_opening(tokenizer: Tokenizer, mask_token: str, turn_start: str) -> tuple[int, tuple[int, ...]]:
    """The ids of the empty slot, and of what opens an assistant's turn."""
    # A tokenizer may begin every text with a start token, which stands nowhere inside a document.
    mask, opening = tokenizer.token_id(mask_token), tuple(tokenizer.encode(turn_start)[len(tokenizer.encode("")) :])
    if mask is None or not opening:
        named = {"mask_token": mask_token, "turn_start": turn_start}
        raise ConfigError(f"The target's tokenizer lacks one of {named}.", remedy="Name the ones it has.")
    return mask, opening


def _of(config: type, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are fields of `config`."""
    return {field.name: flags[field.name] for field in fields(config) if field.name in flags}


def _tokenizer(folder: Path) -> Tokenizer:
    from paceline.text import load_tokenizer

    found = load_tokenizer(folder)
    if found is None:
        raise TrainingError(f"{folder} has no tokenizer.", remedy="paceline zoo corpus DIR makes a corpus with one.")
    return found


def _end_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What ends a text, and what ends a turn of a chat."""
    turn_end = tokenizer.token_id("<|im_end|>")
    return tuple(sorted(tokenizer.eos_ids | ({turn_end} if turn_end is not None else set())))


def _answer(
    folder: Path, tokenizer: Tokenizer, corpus: Path, out: Path, *, opening: tuple[int, ...], config: ResponsesConfig
) -> None:
    """Let the target answer; refuses to mix answers of other settings."""
    import torch

    from paceline.decode.target import Target
    from paceline.models.load import load_transformer
    from paceline.train.responses import generate_responses

    settings = json.dumps({"target": str(folder.resolve()), **asdict(config)})
    known = out / "settings.json"
    if known.is_file() and known.read_text(encoding="utf-8") != settings:
        remedy = "Use them, or another folder."
        raise TrainingError(
            f"{out} holds answers of other settings: {known.read_text(encoding='utf-8')}.", remedy=remedy
        )
    out.mkdir(parents=True, exist_ok=True)
    known.write_text(settings, encoding="utf-8")
    model = load_transformer(folder, torch.float32)
    ends = frozenset(model.spec.eos_token_ids) | tokenizer.eos_ids
    generate_responses(Target(model, tokenizer.size), corpus / "train.npz", opening, config, ends, out)
