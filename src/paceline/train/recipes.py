"""From a corpus to checkpoints: a target, one that loops less, and a drafter, each a folder that `LLM` opens.

What the commands of `paceline train` do. A folder holds the checkpoint, `run/` (log, curve and what resuming needs) and
the `answers/` learnt from; the same call goes on where it was killed. Of several processes the first one writes. Knows
the order of the steps, nothing of how they are done.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from paceline.decode.target import Target
from paceline.errors import ConfigError, TrainingError
from paceline.files import write_text
from paceline.lock import alone_in
from paceline.models.load import check_same_tokens, load_transformer
from paceline.models.safetensors_file import read_json, read_tensors
from paceline.models.save import save_drafter, save_transformer
from paceline.models.spec import transformer_spec
from paceline.models.transformer import Transformer
from paceline.text import Tokenizer
from paceline.train.data import checksum, target_tokenizer, tokenizer_of
from paceline.train.drafter import bundled_drafter_spec, check_drafter, first_block_size, new_drafter, train_drafter
from paceline.train.fit.checkpoint import differences
from paceline.train.fit.memory import memory_is_set_by
from paceline.train.fit.processes import join
from paceline.train.options import DrafterConfig, Objective, ResponsesConfig, TargetConfig, UnloopConfig
from paceline.train.responses import Responses, generate_responses, load_responses
from paceline.train.target import bundled_target_spec, train_target
from paceline.train.teacher import Teacher, teach
from paceline.train.unloop import train_unloop

if TYPE_CHECKING:
    from accelerate import PartialState

__all__ = ["answers_width", "make_drafter", "make_target", "make_unlooped"]

_SETTINGS = "settings.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def make_target(config: TargetConfig, out: Path) -> None:
    """Train the bundled AR target from random weights.

    Raises:
        TrainingError, ConfigError: as `train_target`, or the corpus has no tokenizer, or as `alone_in`.
    """
    tokenizer = tokenizer_of(config.corpus / "tokenizer")
    with _team_in(out) as team:
        torch.manual_seed(config.fit.seed)
        model = Transformer(bundled_target_spec(tokenizer.size, _end_ids(tokenizer)))
        train_target(model, config, out / "run")
        if team.is_main_process:
            _copy_tokenizer(config.corpus / "tokenizer", out)
            save_transformer(model, out)


def make_unlooped(folder: Path, config: UnloopConfig, answers: ResponsesConfig, turn_start: str, out: Path) -> None:
    """Let the target in `folder` answer, then teach it not to say the same again; warns where no answer loops.

    Raises:
        TrainingError, ConfigError: as `train_unloop` and `alone_in`, or the tokenizer lacks what is named.
        CheckpointError: `folder` holds no target.
    """
    tokenizer = target_tokenizer(folder)
    opening = _opening(tokenizer, turn_start)
    with _team_in(out) as team:
        responses = _answered(folder, tokenizer, config.corpus, answers, opening, out / "answers")
        model = load_transformer(folder, torch.float32, trainable=True)
        unlearned = train_unloop(model, responses, config, out / "run")
        if team.is_main_process:
            if not unlearned:
                told = f"{out}: none of the {len(responses.tokens)} answers loops; the target stays as it is."
                warnings.warn(told, stacklevel=2)
            _copy_tokenizer(folder, out)
            save_transformer(model, out)


def make_drafter(
    folder: Path,
    corpus: Path,
    config: DrafterConfig,
    answers: ResponsesConfig,
    *,
    mask_token: str,
    turn_start: str,
    out: Path,
    answers_folder: Path | None = None,
) -> None:
    """Let the target in `folder` answer, then train a DFlash drafter on that.

    Args:
        answers_folder: the answers of an earlier run with the same target and settings, instead of new ones.

    Raises:
        TrainingError, ConfigError: as `train_drafter`, `teach` and `alone_in`, the tokenizer lacks what is named, or
            the earlier answers are not there, or of another target or other settings.
        CheckpointError: `folder` holds no target; the corpus has another tokenizer.
    """
    tokenizer = target_tokenizer(folder)
    mask = tokenizer.token_id(mask_token)
    if mask is None:
        remedy = "Name the one it has."
        raise ConfigError(f"The target's tokenizer lacks the mask token {mask_token!r}.", remedy=remedy)
    opening = _opening(tokenizer, turn_start)
    check_same_tokens(tokenizer.vocabulary, tokenizer_of(corpus / "tokenizer").vocabulary)
    target = transformer_spec(read_json(folder / "config.json"))
    spec = bundled_drafter_spec(target, mask, config.block_size or first_block_size(target.hidden_size))
    check_drafter(spec, config)  # before the answers, which take long
    place = out / "answers" if answers_folder is None else _earlier(answers_folder)
    with _team_in(out) as team:
        responses = _answered(folder, tokenizer, corpus, answers, opening, place)
        model = load_transformer(folder, torch.float32, trainable=True).requires_grad_(False)
        teacher = _taught(model, responses, config.objective, place)
        drafter = new_drafter(spec, model, config.fit.seed)
        train_drafter(drafter, model, responses, config, out / "run", teacher)
        if team.is_main_process:
            save_drafter(drafter, out)


@contextmanager
def _team_in(out: Path) -> Iterator[PartialState]:
    """The processes that train together, of which the first one keeps others out of the folder."""
    team = join()
    with alone_in(out) if team.is_main_process else nullcontext():
        yield team


def _earlier(answers: Path) -> Path:
    if not (answers / _SETTINGS).is_file():
        raise TrainingError(f"{answers} holds no answers.", remedy="Give the folder answers/ of an earlier run.")
    return answers


def _answered(
    folder: Path, tokenizer: Tokenizer, corpus: Path, config: ResponsesConfig, opening: tuple[int, ...], out: Path
) -> Responses:
    """The answers of the target in `folder`, which the first process generates where they are missing."""
    team = join()
    if team.is_main_process:
        _answer(folder, tokenizer, corpus, out, opening=opening, config=config)
    team.wait_for_everyone()
    return load_responses(out, answers_width(config))


def answers_width(config: ResponsesConfig) -> int:
    """The longest prompt and the longest answer together: turns of a chat may take twice the usual length."""
    return 2 * config.prompt_tokens[1] + config.max_tokens


def _answer(
    folder: Path, tokenizer: Tokenizer, corpus: Path, out: Path, *, opening: tuple[int, ...], config: ResponsesConfig
) -> None:
    """Let the target answer; refuses to mix answers of other settings or of another target."""
    settings = {"target_checksum": _checksum(folder), "turn_start_ids": opening, **asdict(config)}
    known = out / _SETTINGS
    if known.is_file():
        _check_answers(out, read_json(known), json.loads(json.dumps(settings)), folder)
    else:
        write_text(known, json.dumps(settings))
    model = load_transformer(folder, torch.float32)
    ends = frozenset(model.spec.eos_token_ids) | tokenizer.eos_ids
    generate_responses(Target(model, tokenizer.size), corpus / "train.npz", opening, config, ends, out)


def _checksum(folder: Path) -> int:
    """Of all weights of a checkpoint, wherever it lies."""
    return checksum(*(tensor for _, tensor in sorted(read_tensors(folder).items())))


def _check_answers(answers: Path, theirs: dict[str, Any], ours: dict[str, Any], folder: Path) -> None:
    theirs = {"turn_start_ids": ours["turn_start_ids"], **theirs}  # of which older files say nothing
    place = theirs.pop("target", None)  # by which older files know the target
    if place == str(folder.resolve()):
        theirs["target_checksum"] = ours["target_checksum"]
    if theirs.get("target_checksum") != ours["target_checksum"]:
        told = f"{answers} holds answers of another target than {folder}{f': of {place}' if place else ''}."
        raise TrainingError(told, remedy="Give the target that they are of, or another folder for new ones.")
    if told := differences(theirs, ours):
        raise TrainingError(
            f"{answers} holds answers of other settings: {told}.", remedy="Use them, or another folder."
        )


def _taught(model: Transformer, responses: Responses, objective: Objective, out: Path) -> Teacher | None:
    """What the target says along its answers, where a drafter is to learn that; the first process writes it."""
    if objective.distill_share == 0.0:
        return None
    with join().main_process_first(), memory_is_set_by("count"):
        return teach(model, responses, objective.teacher_top_k, out)


def _opening(tokenizer: Tokenizer, turn_start: str) -> tuple[int, ...]:
    """The ids of what opens an assistant's turn."""
    # A tokenizer may begin every text with a start token, which stands nowhere inside a document.
    opening = tuple(tokenizer.encode(turn_start)[len(tokenizer.encode("")) :])
    if not opening:
        raise ConfigError(f"The target's tokenizer lacks the turn start {turn_start!r}.", remedy="Name the one it has.")
    return opening


def _end_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What ends a text, and what ends a turn of a chat."""
    turn_end = tokenizer.token_id("<|im_end|>")
    return tuple(sorted(tokenizer.eos_ids | ({turn_end} if turn_end is not None else set())))


def _copy_tokenizer(folder: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in _TOKENIZER_FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / name)
