"""`paceline train`: the recipes of train/ from the command line, to a checkpoint that `--model` and `--drafter` take.

Flags are the fields of the configurations in train/options.py, one for one. A command that was killed goes on where it
stopped when it is given again. Layout of the output folder: the checkpoint itself, `run/` (log, curve and what resuming
needs) and, for a drafter, `answers/`. Of several processes the first one writes. Knows the order of the steps, nothing
of how they are done.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.flags import configured
from paceline.cli.options import Threads, set_threads
from paceline.cli.output import say
from paceline.errors import ConfigError, TrainingError
from paceline.train.options import DrafterConfig, ResponsesConfig, TargetConfig, UnloopConfig

if TYPE_CHECKING:
    from paceline.text import Tokenizer

__all__ = ["app", "drafter", "target", "unloop"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Train a target, then a drafter for it.")

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

Corpus = Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder that `paceline zoo corpus` wrote.")]
TurnStart = Annotated[str, typer.Option(help="What opens an assistant's turn.")]
Out = Annotated[Path, typer.Option(file_okay=False, help="Folder for the checkpoint; the same one resumes.")]


@app.command("target")
@configured(steps=1400)
def target(*, corpus: Corpus, out: Out, recipe: TargetConfig, threads: Threads = None) -> None:
    """Train the bundled AR target from random weights on a corpus."""
    tokenizer = _tokenizer(corpus / "tokenizer")
    import torch

    from paceline.models.save import save_transformer
    from paceline.models.transformer import Transformer
    from paceline.train.processes import join
    from paceline.train.target import bundled_target_spec, train_target

    team = join()
    set_threads(threads)
    torch.manual_seed(recipe.fit.seed)
    model = Transformer(bundled_target_spec(tokenizer.size, _end_ids(tokenizer)))
    train_target(model, recipe, out / "run")
    if team.is_main_process:
        save_transformer(model, out)
        _copy_tokenizer(corpus / "tokenizer", out)
        say(f"Wrote {out}.")


@app.command("unloop")
@configured(steps=45, learning_rate=5e-4, warmup_steps=8, max_tokens=112, sampled_share=0.0, batch=64, count=448)
def unloop(
    *,
    target: Annotated[str, typer.Option(help="The target: a folder, a hub id or a bundled model.")],
    corpus: Corpus,
    out: Out,
    recipe: UnloopConfig,
    answers: ResponsesConfig,
    turn_start: TurnStart = "<|im_start|>assistant\n",
    threads: Threads = None,
) -> None:
    """Let a target answer greedily, then teach it not to say the same again; may be repeated on its own result."""
    from paceline.models.load import load_transformer, resolve

    folder = resolve(target)
    tokenizer = _tokenizer(folder)
    import torch

    from paceline.models.save import save_transformer
    from paceline.train.processes import join
    from paceline.train.responses import load_responses
    from paceline.train.unloop import train_unloop

    team = join()
    set_threads(threads)
    if team.is_main_process:
        opening = _opening(tokenizer, turn_start)
        _answer(folder, tokenizer, corpus, out / "answers", opening=opening, config=answers)
    team.wait_for_everyone()
    responses = load_responses(out / "answers", 2 * answers.prompt_tokens[1] + answers.max_tokens)
    model = load_transformer(folder, torch.float32, trainable=True)
    train_unloop(model, responses, recipe, out / "run")
    if team.is_main_process:
        save_transformer(model, out)
        _copy_tokenizer(folder, out)
        say(f"Wrote {out}.")


@app.command("drafter")
@configured(steps=1000)
def drafter(
    *,
    target: Annotated[str, typer.Option(help="The target: a folder, a hub id or a bundled model.")],
    corpus: Corpus,
    out: Out,
    recipe: DrafterConfig,
    answers: ResponsesConfig,
    mask_token: Annotated[str, typer.Option(help="The token that stands for an empty slot.")] = "<|mask|>",
    turn_start: TurnStart = "<|im_start|>assistant\n",
    threads: Threads = None,
) -> None:
    """Let a target generate answers, then train a DFlash drafter on them."""
    from paceline.models.load import check_same_tokens, load_transformer, resolve

    folder = resolve(target)
    tokenizer = _tokenizer(folder)
    mask, opening = _mask(tokenizer, mask_token), _opening(tokenizer, turn_start)
    check_same_tokens(tokenizer.vocabulary, _tokenizer(corpus / "tokenizer").vocabulary)
    import torch

    from paceline.models.save import save_drafter
    from paceline.train.drafter import bundled_drafter_spec, new_drafter, train_drafter
    from paceline.train.processes import join
    from paceline.train.responses import load_responses

    team = join()
    set_threads(threads)
    if team.is_main_process:
        _answer(folder, tokenizer, corpus, out / "answers", opening=opening, config=answers)
    team.wait_for_everyone()
    responses = load_responses(out / "answers", 2 * answers.prompt_tokens[1] + answers.max_tokens)
    model = load_transformer(folder, torch.float32, trainable=True).requires_grad_(False)
    module = new_drafter(bundled_drafter_spec(model.spec, mask), model, recipe.fit.seed)
    train_drafter(module, model, responses, recipe, out / "run")
    if team.is_main_process:
        save_drafter(module, out)
        say(f"Wrote {out}.")


def _mask(tokenizer: Tokenizer, token: str) -> int:
    """The id of the empty slot."""
    mask = tokenizer.token_id(token)
    if mask is None:
        raise ConfigError(f"The target's tokenizer lacks the mask token {token!r}.", remedy="Name the one it has.")
    return mask


def _opening(tokenizer: Tokenizer, turn_start: str) -> tuple[int, ...]:
    """The ids of what opens an assistant's turn."""
    # A tokenizer may begin every text with a start token, which stands nowhere inside a document.
    opening = tuple(tokenizer.encode(turn_start)[len(tokenizer.encode("")) :])
    if not opening:
        raise ConfigError(f"The target's tokenizer lacks the turn start {turn_start!r}.", remedy="Name the one it has.")
    return opening


def _copy_tokenizer(folder: Path, out: Path) -> None:
    for name in _TOKENIZER_FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / name)


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
