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
from paceline.decode.named import check_files
from paceline.decode.ngram_table import ngrams_for
from paceline.decode.rescoring import rescorer_for
from paceline.decode.retrieval import read_known
from paceline.decode.target import Target
from paceline.engine.loop import Decoder
from paceline.errors import ConfigError
from paceline.llm import LLM
from paceline.models.load import check_same_tokens
from paceline.models.options import Method
from paceline.models.pairs import usable_tokens
from paceline.models.resolve import resolve
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
    """The target with its drafter, if it has one, and the diffusion model with its verifier, where they are needed.

    Attributes:
        verifier_folder: which it was loaded from.
        usable_tokens: ids from here on are not in all of them.
    """

    target: LLM
    usable_tokens: int
    dllm: LLM | None = None
    verifier: Transformer | None = None
    verifier_folder: Path | None = None

    @property
    def asked(self) -> LLM:
        """The model whose chat template the problems are put in."""
        return self.dllm or self.target

    def judge(self) -> Target:
        """The exact target that says how probable an answer is."""
        return Target(self.target.model, self.usable_tokens)

    def systems(self, configurations: Sequence[Configuration]) -> list[System]:
        """A decoder for each.

        Raises:
            ConfigError: dflash, and the target has no drafter; apd, and its table of n-grams cannot be read, or is of
                another verifier.
        """
        return [self._system(configuration) for configuration in configurations]

    def _system(self, configuration: Configuration) -> System:
        llm = self.target if configuration.method in ("ar", "dflash") else self.asked
        model = llm.model
        if configuration.method == "verifier":
            assert self.verifier is not None, "named_models names one"
            model = self.verifier
        partner = {"dflash": self.target.drafter, "apd": self.verifier}.get(configuration.method)
        if configuration.method == "dflash" and partner is None:
            told = f"setting {configuration.name!r}: the target has no drafter."
            remedy = "Name one with --drafter, or name the settings without dflash."
            raise ConfigError(told, remedy=remedy, param="drafter")
        method = "ar" if configuration.method == "verifier" else configuration.method
        own, device = configuration.settings, llm.model.embed.weight.device
        parts = Parts(
            model=model,
            partner=partner,
            usable_tokens=self.usable_tokens,
            end_token_ids=llm.end_token_ids,
            settings=own,
            ngrams=ngrams_for(own, self.verifier_folder, self.verifier),
            known=read_known(own, llm.tokenizer, self.usable_tokens),
            rescorer=rescorer_for(own, llm.model.spec, llm.tokenizer, self.usable_tokens, device),
        )
        working = [each for each in (model, partner, parts.rescorer) if isinstance(each, nn.Module)]
        return System(configuration.name, decoder_of(method, parts), llm, weight_bytes(working))


def open_models(options: QualityBench) -> Models:
    """Load those that a setting needs, and the target, which judges; in exact precision.

    Raises:
        ConfigError: a model or a file that is not there, of another kind than its place wants, or without a tokenizer.
        CheckpointError: a folder that cannot be loaded. VocabularyMismatch: models of other tokens.
    """
    named = {param: resolve(name, param) for param, name in named_models(options).items()}
    for each in options.configurations:
        check_files(each.settings)
    target, dllm, verifier = named["target"], named.get("dllm"), named.get("verifier")
    reader = LLM(target, drafter=options.drafter, device=options.device)
    reads, usable = _tokenizer_of(reader, "target", target), reader.target.usable_tokens
    if dllm is None:
        return Models(reader, usable)
    method: Method = "diffusion" if verifier is None else "apd"
    writer = LLM(dllm, verifier=verifier, method=method, device=options.device)
    writes = _tokenizer_of(writer, "dllm", dllm)
    check_same_tokens(writes.vocabulary, reads.vocabulary, more=True)
    partner = None if writer.verifier is None else writer.verifier.spec
    shared = usable_tokens(writer.model.spec, partner, writes, verifier)
    return Models(reader, min(shared, usable), writer, writer.verifier, verifier)


def _tokenizer_of(llm: LLM, param: str, name: str | Path) -> Tokenizer:
    if llm.tokenizer is None:
        remedy = "Problems are text: give a checkpoint with its tokenizer."
        raise ConfigError(f"{param} is {str(name)!r:.80} and has no tokenizer.", remedy=remedy, param=param)
    return llm.tokenizer


def named_models(options: QualityBench) -> dict[str, str | Path]:
    """The models that are needed, by what they are: the bundled ones where none is named.

    Raises:
        ConfigError: a diffusion model without its verifier, and a setting needs that.
    """
    named = {"target": options.target or BUNDLED_TARGET}
    if options.methods <= {"ar", "dflash"}:
        return named
    named["dllm"] = options.dllm or BUNDLED_DLLM
    if options.methods.isdisjoint({"verifier", "apd"}):
        return named
    if options.dllm is not None and options.verifier is None:
        remedy = "Name the small autoregressive model that checks it: --verifier."
        raise ConfigError(f"dllm is {str(options.dllm)!r:.80} and has no verifier.", remedy=remedy, param="verifier")
    return named | {"verifier": options.verifier or BUNDLED_VERIFIER}
