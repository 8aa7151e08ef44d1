"""From a corpus to checkpoints: a target, one that loops less, and a drafter, each a folder that `LLM` opens.

What the commands of `paceline train` do. A folder holds the checkpoint, `run/` (log, curve and what resuming needs) and
the `answers/` learnt from; the same call goes on where it was killed. Of several processes the first one writes. Knows
the order of the steps, nothing of how they are done.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from paceline.decode.controller import first_block_size
from paceline.decode.target import Target
from paceline.errors import ConfigError, TrainingError
from paceline.files import write_text
from paceline.models.checksum import weights_checksum
from paceline.models.drafter_spec import DrafterSpec, drafter_spec
from paceline.models.load import check_same_tokens, load_drafter, load_transformer
from paceline.models.pairs import end_tokens
from paceline.models.safetensors_file import read_json
from paceline.models.save import save_drafter, save_transformer
from paceline.models.spec import transformer_spec
from paceline.models.transformer import Transformer
from paceline.text import Tokenizer
from paceline.train.data import target_tokenizer, tokenizer_of
from paceline.train.drafter import bundled_drafter_spec, check_drafter, new_drafter, train_drafter
from paceline.train.fit.checkpoint import differences
from paceline.train.fit.memory import memory_is_set_by
from paceline.train.fit.processes import join
from paceline.train.folders import copy_tokenizer, end_ids_of, mask_id_of, opening_of, team_in
from paceline.train.options import DrafterConfig, Objective, ResponsesConfig, TargetConfig, UnloopConfig
from paceline.train.parts import decisive
from paceline.train.responses import Responses, generate_responses, load_responses
from paceline.train.target import bundled_target_spec, train_target
from paceline.train.teacher import Teacher, teach
from paceline.train.unloop import train_unloop

__all__ = ["answers_width", "make_drafter", "make_target", "make_unlooped"]

_SETTINGS = "settings.json"


def make_target(config: TargetConfig, out: Path) -> None:
    """Train the bundled AR target from random weights.

    Raises:
        TrainingError, ConfigError: as `train_target`, or the corpus has no tokenizer, or as `alone_in`.
    """
    tokenizer = tokenizer_of(config.corpus / "tokenizer")
    with team_in(out) as team:
        torch.manual_seed(config.fit.seed)
        model = Transformer(bundled_target_spec(tokenizer.size, end_ids_of(tokenizer)))
        train_target(model, config, out / "run")
        if team.is_main_process:
            copy_tokenizer(config.corpus / "tokenizer", out)
            save_transformer(model, out)


def make_unlooped(folder: Path, config: UnloopConfig, answers: ResponsesConfig, turn_start: str, out: Path) -> None:
    """Let the target in `folder` answer, then teach it not to say the same again; warns where no answer loops.

    Raises:
        TrainingError, ConfigError: as `train_unloop` and `alone_in`, or the tokenizer lacks what is named.
        CheckpointError: `folder` holds no target.
    """
    tokenizer = target_tokenizer(folder)
    opening = opening_of(tokenizer, turn_start)
    with team_in(out) as team:
        responses = _answered(folder, tokenizer, config.corpus, answers, opening, out / "answers")
        model = load_transformer(folder, torch.float32, trainable=True)
        unlearned = train_unloop(model, responses, config, out / "run")
        if team.is_main_process:
            if not unlearned:
                told = f"{out}: none of the {len(responses.tokens)} answers loops; the target stays as it is."
                warnings.warn(told, stacklevel=2)
            copy_tokenizer(folder, out)
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
    start: Path | None = None,
) -> None:
    """Let the target in `folder` answer, then train a DFlash drafter on that.

    Args:
        start: a drafter of this target to go on with, or to make one of version 2 of; its blocks stay as long as they
            are, unless the settings say otherwise. None begins with random weights.
        answers_folder: the answers of an earlier run with the same target and settings, instead of new ones.

    Raises:
        TrainingError, ConfigError: as `train_drafter`, `teach` and `alone_in`, the tokenizer lacks what is named, or
            the earlier answers are not there, or of another target or other settings.
        CheckpointError: `folder` holds no target; the corpus has another tokenizer.
    """
    tokenizer = target_tokenizer(folder)
    mask = mask_id_of(tokenizer, mask_token)
    opening = opening_of(tokenizer, turn_start)
    check_same_tokens(tokenizer.vocabulary, tokenizer_of(corpus / "tokenizer").vocabulary)
    target = transformer_spec(read_json(folder / "config.json"))
    block_size = config.first_block_size or first_block_size(target.hidden_size)
    spec = bundled_drafter_spec(target, mask, block_size, config.version)
    if start is not None:
        spec = _of_the_start(start, spec, config)
    check_drafter(spec, config)  # before the answers, which take long
    place = out / "answers" if answers_folder is None else _earlier(answers_folder)
    with team_in(out) as team:
        responses = _answered(folder, tokenizer, corpus, answers, opening, place)
        model = load_transformer(folder, torch.float32, trainable=True).requires_grad_(False)
        teacher = _taught(model, responses, config.objective, place)
        drafter = new_drafter(spec, model, config.fit.seed)
        if start is not None:
            begun = load_drafter(start, model)
            drafter.load_state_dict(begun.state_dict(), strict=begun.spec.v2 == spec.v2)
        train_drafter(drafter, model, responses, config, out / "run", teacher, weights_checksum(start))
        if team.is_main_process:
            save_drafter(drafter, out)


def _of_the_start(start: Path, new: DrafterSpec, config: DrafterConfig) -> DrafterSpec:
    """The drafter to go on with, its blocks as long as asked for, if that was, and with what version 2 adds, likewise.

    Raises:
        CheckpointError: no drafter. ConfigError: another mask token, width or version.
    """
    begun = drafter_spec({"num_target_layers": new.num_target_layers, **read_json(start / "config.json")})
    if begun.mask_token_id != new.mask_token_id:
        told = f"The mask token has id {new.mask_token_id}, that of {start} has {begun.mask_token_id}."
        raise ConfigError(told, remedy="Name its own.", param="mask_token")
    if begun.block.hidden_size != new.block.hidden_size:
        told = f"{start} is {begun.block.hidden_size} wide, the target {new.block.hidden_size}."
        raise ConfigError(told, remedy="Give a drafter of this target.", param="start")
    if begun.v2 is not None and begun.v2 != new.v2:
        told = f"{start} is of version 2: {begun.v2}; asked for is {new.v2 or 'version 1'}."
        raise ConfigError(told, remedy="Give its own version and sizes.", param="drafter_version")
    block_size = begun.block_size if config.block_size is None else new.block_size
    return replace(begun, block_size=block_size, v2=new.v2)


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
    settings = {"target_checksum": weights_checksum(folder), "turn_start_ids": opening, **asdict(config)}
    known = out / _SETTINGS
    if known.is_file():
        _check_answers(out, read_json(known), json.loads(json.dumps(settings)), folder)
    else:
        write_text(known, json.dumps(settings))
    model = load_transformer(folder, torch.float32)
    ends = end_tokens(folder, model.spec.eos_token_ids, tokenizer)
    generate_responses(Target(model, tokenizer.size), corpus / "train.npz", opening, config, ends, out)


def _check_answers(answers: Path, theirs: dict[str, Any], ours: dict[str, Any], folder: Path) -> None:
    theirs = {"turn_start_ids": ours["turn_start_ids"], **theirs}  # of which older files say nothing
    place = theirs.pop("target", None)  # by which older files know the target
    if place == str(folder.resolve()):
        theirs["target_checksum"] = ours["target_checksum"]
    if theirs.get("target_checksum") != ours["target_checksum"]:
        told = f"{answers} holds answers of another target than {folder}{f': of {place}' if place else ''}."
        raise TrainingError(told, remedy="Give the target that they are of, or another folder for new ones.")
    if told := differences(decisive(theirs), decisive(ours)):
        raise TrainingError(
            f"{answers} holds answers of other settings: {told}.", remedy="Use them, or another folder."
        )


def _taught(model: Transformer, responses: Responses, objective: Objective, out: Path) -> Teacher | None:
    """What the target says along its answers, where a drafter is to learn that; the first process writes it."""
    if objective.distill_share == 0.0:
        return None
    with join().main_process_first(), memory_is_set_by("count"):
        return teach(model, responses, objective.teacher_top_k, out)
