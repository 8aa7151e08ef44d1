"""From a corpus to the two models of APD: a diffusion language model, and the small verifier that checks it.

As `train.recipes` does for a target and its drafter: a folder holds the checkpoint, `run/`, and for a verifier the
`samples/` learnt from; the same call goes on where it was killed. Knows the order of the steps, nothing of how they are
done.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import torch

from paceline.decode.denoiser import Denoiser, check_diffuses
from paceline.decode.ngram_table import Owner, save_ngram_table
from paceline.errors import ConfigError, TrainingError
from paceline.files import write_text
from paceline.lock import alone_in
from paceline.models.checksum import checksum, weights_checksum
from paceline.models.config_file import model_config
from paceline.models.diffusion_spec import Diffusion
from paceline.models.load import check_same_tokens, load_transformer
from paceline.models.pairs import end_tokens
from paceline.models.precision import dtypes_of
from paceline.models.safetensors_file import read_json
from paceline.models.save import save_transformer
from paceline.models.spec import Spec, transformer_spec
from paceline.models.transformer import Transformer
from paceline.text import Tokenizer
from paceline.train.data import load_documents, target_tokenizer, tokenizer_of
from paceline.train.diffusion_options import DllmConfig, JointConfig, NgramConfig, SamplesConfig, VerifierConfig
from paceline.train.dllm import train_dllm
from paceline.train.fit.checkpoint import differences
from paceline.train.fit.memory import machine_bytes
from paceline.train.folders import copy_tokenizer, end_ids_of, mask_id_of, opening_of, team_in
from paceline.train.joint import train_joint
from paceline.train.ngram_table import ngram_table
from paceline.train.parts import decisive
from paceline.train.samples import generate_samples, load_samples
from paceline.train.shape import ShapeConfig, check_fits, shaped
from paceline.train.target import bundled_target_spec
from paceline.train.verifier import bundled_verifier_spec, train_verifier

__all__ = ["make_dllm", "make_joint", "make_ngrams", "make_verifier"]


def make_dllm(start: Path | None, shape: ShapeConfig, config: DllmConfig, mask_token: str, out: Path) -> None:
    """Train a diffusion language model.

    Args:
        start: an autoregressive checkpoint, whose attention is opened to both sides, or a diffusion model to go on
            with; None begins with random weights.
        shape: of random weights; what it leaves open is as in the bundled target.

    Raises:
        TrainingError, ConfigError: as `train_dllm`, `shaped`, `check_fits` and `alone_in`, the tokenizer lacks the mask
            token, or `start` has another one, or no room for it, or a shape of its own.
        CheckpointError: no such checkpoint; the corpus has another tokenizer.
    """
    tokenizer = tokenizer_of(config.corpus / "tokenizer")
    mask = mask_id_of(tokenizer, mask_token)
    spec = shaped(bundled_target_spec(tokenizer.size, end_ids_of(tokenizer)), shape)
    if start is None:
        check_fits(spec, machine_bytes())
    else:
        _check_own_shape(start, shape)
        check_same_tokens(target_tokenizer(start).vocabulary, tokenizer.vocabulary)
    with team_in(out) as team:
        torch.manual_seed(config.fit.seed)
        model = _opened(start, spec, mask)
        train_dllm(model, config, _text_end(tokenizer), out / "run", weights_checksum(start))
        if team.is_main_process:
            copy_tokenizer(start or config.corpus / "tokenizer", out)
            save_transformer(model, out)


def make_verifier(
    dllm: Path,
    start: Path | None,
    config: VerifierConfig,
    samples: SamplesConfig,
    *,
    turn_start: str,
    out: Path,
) -> None:
    """Let the diffusion model in `dllm` go on with beginnings of the corpus, then train a verifier on what it said.

    Args:
        start: a verifier to go on with, as to adapt it to the corpus of a domain; None begins with random weights.

    Raises:
        TrainingError, ConfigError: as `train_verifier` and `alone_in`, the tokenizer lacks what is named, or `out`
            holds samples of another model or other settings.
        CheckpointError: `dllm` or `start` cannot be loaded; the corpus or `start` has another tokenizer.
        UnsupportedModel: `dllm` is no diffusion model.
    """
    tokenizer = target_tokenizer(dllm)
    opening = opening_of(tokenizer, turn_start)
    for other in (tokenizer_of(config.corpus / "tokenizer"), *([] if start is None else [target_tokenizer(start)])):
        check_same_tokens(tokenizer.vocabulary, other.vocabulary)
    spec = transformer_spec(model_config(dllm))
    check_diffuses(spec)
    if start is not None:
        _check_autoregressive(start)  # before the samples, which take long
    with team_in(out) as team:
        if team.is_main_process:
            _sample(dllm, tokenizer, config.corpus, opening, samples, out / "samples")
        team.wait_for_everyone()
        torch.manual_seed(config.fit.seed)
        verifier = Transformer(bundled_verifier_spec(spec)) if start is None else _autoregressive(start)
        train_verifier(verifier, *load_samples(out / "samples"), config, out / "run", weights_checksum(start))
        if team.is_main_process:
            copy_tokenizer(dllm, out)
            save_transformer(verifier, out)


def make_joint(dllm: Path, verifier: Path, config: JointConfig, out: Path) -> None:
    """Train a diffusion model and its verifier together, into `out`/dllm and `out`/verifier.

    Raises:
        TrainingError, ConfigError: as `train_joint` and `alone_in`, or a model of the other kind.
        CheckpointError: no such checkpoint; the corpus or one of them has another tokenizer.
    """
    tokenizer = tokenizer_of(config.rows.corpus / "tokenizer")
    for folder in (dllm, verifier):
        check_same_tokens(target_tokenizer(folder).vocabulary, tokenizer.vocabulary)
    with team_in(out) as team:
        models = {"dllm": _diffusion(dllm), "verifier": _autoregressive(verifier)}
        starts = weights_checksum(dllm), weights_checksum(verifier)
        train_joint(models["dllm"], models["verifier"], config, _text_end(tokenizer), out / "run", starts)
        if team.is_main_process:
            for (name, model), source in zip(models.items(), (dllm, verifier), strict=True):
                copy_tokenizer(source, out / name)
                save_transformer(model, out / name)


def make_ngrams(verifier: Path, config: NgramConfig, out: Path) -> int:
    """Write what a verifier says behind the frequent contexts of the corpus; how many there are.

    Raises:
        TrainingError, ConfigError: as `ngram_table` and `alone_in`, or a diffusion model.
        CheckpointError: no such checkpoint; the corpus has another tokenizer.
    """
    tokenizer = target_tokenizer(verifier)
    check_same_tokens(tokenizer.vocabulary, tokenizer_of(config.corpus / "tokenizer").vocabulary)
    _check_autoregressive(verifier)
    with alone_in(out):
        model = load_transformer(verifier, torch.float32)
        table = ngram_table(model, config, Owner.of(verifier, model))
        save_ngram_table(table, out)
    return len(table.contexts)


def _opened(start: Path | None, spec: Spec, mask: int) -> Transformer:
    """The model to train: that of `start`, or a new one of `spec`."""
    diffusion = Diffusion(mask, logit_shift=1)  # row i predicts token i + 1, as in an autoregressive model
    if start is None:
        return Transformer(replace(spec, diffusion=diffusion))
    model = load_transformer(start, torch.float32, trainable=True)
    _check_mask(start, model.spec, mask)
    if model.spec.diffusion is not None:
        return model
    if model.spec.family != "qwen3":
        told = f"{start} is a {model.spec.family} model."
        raise ConfigError(told, remedy="A diffusion model is made of Qwen3, or goes on from Dream or LLaDA.")
    opened = Transformer(replace(model.spec, windows=(None,) * model.spec.num_layers, diffusion=diffusion))
    opened.load_state_dict(model.state_dict())
    return opened


def _check_own_shape(start: Path, shape: ShapeConfig) -> None:
    for name, value in shape.given.items():
        told = f"{name} is {value!r}, and training begins with {start}, which has a shape."
        raise ConfigError(told, remedy="Leave one of them out.", param=name)


def _check_mask(start: Path, spec: Spec, mask: int) -> None:
    """Refuse a mask token that is not the model's, or that it has no room for."""
    if spec.diffusion is not None and spec.diffusion.mask_token_id != mask:
        told = f"The mask token has id {mask}, that of {start} has {spec.diffusion.mask_token_id}."
        raise ConfigError(told, remedy="Name its own.", param="mask_token")
    if mask >= spec.vocab_size:
        told = f"The mask token has id {mask}, and {start} has {spec.vocab_size} ids."
        raise ConfigError(told, remedy="Name a token that the model has.", param="mask_token")


def _text_end(tokenizer: Tokenizer) -> int:
    """The token behind the end of a document."""
    if not tokenizer.eos_ids:
        raise ConfigError("The tokenizer of the corpus has no end token.", remedy="Declare eos_token.")
    return min(tokenizer.eos_ids)


def _sample(
    folder: Path,
    tokenizer: Tokenizer,
    corpus: Path,
    opening: tuple[int, ...],
    config: SamplesConfig,
    out: Path,
) -> None:
    """Let the dLLM in `folder` speak; refuses to mix samples of other settings, of other text or of another model."""
    dtypes = dtypes_of(config.precision, model_config(folder), torch.device("cpu"))
    known_by = {"dllm_checksum": weights_checksum(folder), "corpus_checksum": _text_checksum(corpus / "train.npz")}
    settings = {**known_by, "turn_start_ids": opening, **asdict(config)}
    known = out / "settings.json"
    if not known.is_file():
        write_text(known, json.dumps(settings))
    if told := differences(decisive(read_json(known)), decisive(json.loads(json.dumps(settings)))):
        raise TrainingError(f"{out} holds other samples: {told}.", remedy="Use these settings, or another folder.")
    model = load_transformer(folder, dtypes.products, attention_dtype=dtypes.attention)
    dllm = Denoiser(model, tokenizer.size)
    ends = end_tokens(folder, dllm.model.spec.eos_token_ids, tokenizer)
    generate_samples(dllm, corpus / "train.npz", opening, config, ends, out)


def _text_checksum(path: Path) -> int:
    documents = load_documents(path)
    return checksum(torch.from_numpy(documents.tokens), torch.from_numpy(documents.starts))


def _diffusion(folder: Path) -> Transformer:
    model = load_transformer(folder, torch.float32, trainable=True)
    if model.spec.diffusion is None:
        raise ConfigError(f"{folder} is an autoregressive model.", remedy="Give a diffusion language model.")
    return model


def _autoregressive(folder: Path) -> Transformer:
    _check_autoregressive(folder)
    return load_transformer(folder, torch.float32, trainable=True)


def _check_autoregressive(folder: Path) -> None:
    if transformer_spec(model_config(folder)).diffusion is not None:
        raise ConfigError(f"{folder} is a diffusion model.", remedy="A verifier is autoregressive.")
