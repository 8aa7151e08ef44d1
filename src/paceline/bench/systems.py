"""The models that `bench quality` compares, loaded once, and the decoder of each setting.

Whatever the setting, only ids that all of the models have are drawn. Knows nothing of problems and figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from paceline.bench.configuration import Configuration
from paceline.bench.footprint import weight_bytes
from paceline.bench.quality_options import QualityBench
from paceline.decode.methods import Parts, decoder_of
from paceline.decode.ngram_table import ngrams_for
from paceline.decode.target import Target
from paceline.engine.loop import Decoder
from paceline.errors import ConfigError
from paceline.llm import LLM
from paceline.models.load import check_same_tokens, resolve
from paceline.models.pairs import usable_tokens
from paceline.models.transformer import Transformer
from paceline.text import Tokenizer
from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_TARGET, BUNDLED_VERIFIER

__all__ = ["Models", "System", "named_models", "open_models"]


@dataclass(frozen=True, slots=True)
class System:
    """One setting, ready to decode.

    Attributes:
        llm: whose tokenizer and end tokens hold.
        weight_bytes: of all models that work in it.
    """

    name: str
    decoder: Decoder[Any]
    llm: LLM
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Models:
    """The target with its drafter, if it has one, and the diffusion model with its verifier.

    Attributes:
        verifier_folder: which it was loaded from.
        usable_tokens: ids from here on are not in all of them.
    """

    target: LLM
    dllm: LLM
    verifier: Transformer
    verifier_folder: Path
    usable_tokens: int

    def judge(self) -> Target:
        """The exact target that says how probable an answer is."""
        return Target(self.target.model, self.usable_tokens)

    def systems(self, configurations: Sequence[Configuration]) -> list[System]:
        """A decoder for each.

        Raises:
            ConfigError: dflash, and the target has no drafter.
            CheckpointError: apd with a table of n-grams that cannot be read, or is of another verifier.
        """
        return [self._system(configuration) for configuration in configurations]

    def _system(self, configuration: Configuration) -> System:
        llm = self.target if configuration.method in ("ar", "dflash") else self.dllm
        model = self.verifier if configuration.method == "verifier" else llm.model
        partner = {"dflash": self.target.drafter, "apd": self.verifier}.get(configuration.method)
        if configuration.method == "dflash" and partner is None:
            told = f"setting {configuration.name!r}: the target has no drafter."
            remedy = "Name one with --drafter, or name the settings without dflash."
            raise ConfigError(told, remedy=remedy, param="drafter")
        method = "ar" if configuration.method == "verifier" else configuration.method
        parts = Parts(
            model=model,
            partner=partner,
            usable_tokens=self.usable_tokens,
            end_token_ids=llm.end_token_ids,
            settings=configuration.settings,
            block_size=configuration.block_size,
            ngrams=ngrams_for(configuration.settings, self.verifier_folder, self.verifier),
        )
        working: list[nn.Module] = [model] if partner is None else [model, partner]
        return System(configuration.name, decoder_of(method, parts), llm, weight_bytes(working))


def open_models(options: QualityBench) -> Models:
    """Load all of them, in exact precision.

    Raises:
        CheckpointError: a folder that cannot be loaded. VocabularyMismatch: models of other tokens.
        ConfigError: a model of another kind than its place wants, or without a tokenizer.
    """
    dllm, verifier, target = named_models(options)
    reader = LLM(target, drafter=options.drafter, device=options.device)
    writer = LLM(dllm, verifier=verifier, method="apd", device=options.device)
    assert writer.verifier is not None, "apd has one"
    reads, writes = _tokenizer_of(reader, "target", target), _tokenizer_of(writer, "dllm", dllm)
    check_same_tokens(writes.vocabulary, reads.vocabulary, more=True)
    folder = resolve(verifier)
    shared = usable_tokens(writer.model, writer.verifier, writes, folder)
    return Models(reader, writer, writer.verifier, folder, min(shared, reader.target.usable_tokens))


def _tokenizer_of(llm: LLM, param: str, name: str | Path) -> Tokenizer:
    if llm.tokenizer is None:
        remedy = "Problems are text: give a checkpoint with its tokenizer."
        raise ConfigError(f"{param} is {str(name)!r:.80} and has no tokenizer.", remedy=remedy, param=param)
    return llm.tokenizer


def named_models(options: QualityBench) -> tuple[str | Path, str | Path, str | Path]:
    """Diffusion model, verifier and target: the bundled ones where none is named.

    Raises:
        ConfigError: a diffusion model without its verifier.
    """
    if options.dllm is not None and options.verifier is None:
        remedy = "Name the small autoregressive model that checks it: --verifier."
        raise ConfigError(f"dllm is {str(options.dllm)!r:.80} and has no verifier.", remedy=remedy, param="verifier")
    return options.dllm or BUNDLED_DLLM, options.verifier or BUNDLED_VERIFIER, options.target or BUNDLED_TARGET
