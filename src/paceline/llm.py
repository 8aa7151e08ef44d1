"""The Python API: five lines from a model to text.

    from paceline import LLM, Sampling

    llm = LLM()                                       # the bundled pair; or a folder, a hub id, a zoo name
    prompt = [{"role": "user", "content": "Write a short mail: ask for two days of leave."}]
    answer = llm.generate(prompt, Sampling(max_tokens=100))[0]
    print(answer.text, answer.stats.acceptance_length)

Puts together what the other rooms hold: loading, tokens, a decode method, the loop. Knows no details of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast, get_args

import torch

from paceline.completion import Chunk, Completion
from paceline.decode.choice import Asked, choose
from paceline.decode.methods import Parts, decoder_of, target_of
from paceline.decode.named import Partner, check_files, find_partner, named_by
from paceline.decode.ngram_table import ngrams_for
from paceline.decode.noise import derive_seed, draw_seed
from paceline.decode.profiles import Profile, profile_of
from paceline.decode.rescoring import rescorer_for
from paceline.decode.retrieval import read_known
from paceline.decode.settings import MethodSettings, settings_of
from paceline.decode.target import Target
from paceline.engine.loop import Decoder, Job, run
from paceline.errors import BadRequest, ConfigError
from paceline.kinds import is_integer, plain
from paceline.models.config_file import model_config
from paceline.models.device import device_named
from paceline.models.json_file import read_json
from paceline.models.load import load_drafter, load_transformer
from paceline.models.options import MaxBatch, Method, Precision
from paceline.models.pairs import end_tokens, usable_tokens
from paceline.models.precision import dtypes_of
from paceline.models.spec import Spec, transformer_spec
from paceline.models.transformer import Transformer
from paceline.request import Infill, Message, Prompt, Sampling
from paceline.settings import Field, refusal, suits
from paceline.text import Tokenizer, load_tokenizer

__all__ = ["LLM"]


class LLM:
    """A model, and the method that decodes it.

    Args:
        model: a checkpoint folder, a hub id, or the name of a bundled model; None is the bundled target, or for
            "apd" and "diffusion" the bundled diffusion model.
        drafter: the same for a DFlash drafter of `model`; None is its own where `model` is the bundled target.
        verifier: the same for APD's verifier, a small autoregressive model with the tokenizer of the diffusion model;
            None is its own where `model` is the bundled diffusion model.
        method: "dflash" needs a drafter, "lookup" drafts what followed earlier in the text, "ar" decodes plainly,
            "diffusion" needs a diffusion language model, "apd" such a model and a verifier; "auto" is apd where there
            is a verifier, else diffusion for a diffusion language model, dflash where there is a drafter, and else ar.
        device: "auto" is CUDA where there is one, else the CPU.
        precision: "exact" computes in float32: DFlash and plain decoding give the same text, except after a
            certified near-tie. "mixed" has products and drafter in bfloat16, the target's attention and norms in
            float32; "half" has all in bfloat16: both give plain decoding's text in the same precision, up to the
            rounding of close calls (docs/equality.md). On CUDA a checkpoint that declares float16 gets that instead.
            "int8" and "int8-32" round the weights of products to int8, a scale for each output or for every 32
            weights, on a CPU: half the memory to read, and the text of a model with these weights.
            None is the profile's, else "exact".
        max_batch: answers decoded together; None is the profile's, else 8.
        profile: "edge" or "cloud": settings for a small machine or a server, where nothing else is given.
        explain: rounds hold the drafter's probabilities of a chain, too, which takes a little longer.
        settings: what only the method has; docs/trees.md, docs/lookup.md, docs/apd.md and docs/diffusion.md list
            it. What is left out has the method's default; a `window` or `kv_window` of None is all. `dflash_params`,
            `lookup_params`, `apd_params` and `diffusion_params` are mappings of such settings, and count for their
            method alone, as in a file (docs/configuration.md).

    Raises:
        ConfigError: settings that cannot be used together, or that are of another method; a model, a drafter or a file
            that is not there, or not what its setting wants.
        CheckpointError: a folder that cannot be loaded. VocabularyMismatch: two models of other tokens.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        drafter: str | Path | None = None,
        verifier: str | Path | None = None,
        method: Method = "auto",
        device: str = "auto",
        precision: Precision | None = None,
        max_batch: int | None = None,
        profile: Profile | None = None,
        explain: bool = False,
        **settings: Unpack[MethodSettings],
    ) -> None:
        below = {"precision": "exact", "max_batch": 8, **profile_of(profile)}
        precision = below["precision"] if precision is None else precision
        max_batch = below["max_batch"] if max_batch is None else max_batch
        max_batch = _whole(max_batch)
        _check_switch("explain", explain)
        choice = choose(Asked(method, drafter, verifier), model)
        own = settings_of(choice.method, settings, below, f" in profile {profile}")
        place = device_named(device)
        # Whatever can be told to be wrong is told before weights are read, which takes long.
        config = model_config(choice.folder)
        spec = transformer_spec(config)
        beside = find_partner(choice, spec)
        check_files(own)
        self.max_batch, self.tokenizer = max_batch, load_tokenizer(choice.folder)
        self._usable_tokens = usable = _shared_tokens(spec, beside, self.tokenizer)
        known = read_known(own, self.tokenizer, usable)
        rescorer = rescorer_for(own, spec, self.tokenizer, usable, place)
        self.model = _load_target(choice.folder, precision, place)
        self.drafter = self.verifier = None
        if beside is not None and choice.method == "dflash":
            dtypes = dtypes_of(precision, config, place)
            self.drafter = load_drafter(
                beside.folder,
                self.model,
                dtypes.draft,
                place,
                attention_dtype=dtypes.draft_attention,
                arithmetic=dtypes.arithmetic,
                keep_weights=False,
            )
        elif beside is not None:
            self.verifier = _load_target(beside.folder, precision, place)
        self.end_token_ids = end_tokens(choice.folder, spec.eos_token_ids, self.tokenizer)
        parts = Parts(
            model=self.model,
            partner=self.drafter or self.verifier,
            usable_tokens=usable,
            end_token_ids=self.end_token_ids,
            settings=own,
            ngrams=ngrams_for(own, None if beside is None else beside.folder, self.verifier),
            rescorer=rescorer,
            known=known,
            scored=explain,
        )
        self.decoder: Decoder[Any] = decoder_of(choice.method, parts)

    @property
    def method(self) -> str:
        """The method in effect, "ar", "dflash", "lookup", "diffusion" or "apd"."""
        return self.decoder.name

    @property
    def target(self) -> Target:
        """The model as plain decoding reads it.

        Raises:
            UnsupportedModel: a diffusion language model.
        """
        return target_of(self.model, self.drafter, self._usable_tokens)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling: Sampling | Sequence[Sampling] | None = None
    ) -> list[Completion]:
        """Answer one prompt or many; always a list, prompt by prompt, each with its `sampling.n` answers in order.

        Args:
            prompts: text, token ids, chat messages or an `Infill`, or a list of these. Text is tokenized as it stands,
                control tokens included; chat messages go through the model's template, and their contents never
                become control tokens.
            sampling: one for all prompts, or one for each.

        Raises:
            BadRequest: a prompt or setting that cannot be served; nothing has been decoded then.
        """
        jobs = self.jobs(prompts, sampling)
        done = [chunk.completion for _, chunk in self._run(jobs) if chunk.completion is not None]
        return sorted(done, key=lambda completion: (completion.prompt_index, completion.choice_index))

    def stream(self, prompt: Prompt, sampling: Sampling | None = None) -> Iterator[Chunk]:
        """Answer one prompt round by round; `sampling.n` must be 1. Settings are checked before this returns.

        The joined texts equal the text of `generate`.
        """
        jobs = self.jobs([prompt], sampling)
        if len(jobs) != 1:
            raise BadRequest("stream gives one answer.", remedy="Use n = 1, or generate.", param="n")
        return (chunk for _, chunk in self._run(jobs))

    def encode(self, prompt: Prompt) -> list[int]:
        """The token ids of a prompt without a hole, as the model will read them."""
        if isinstance(prompt, str):
            return self._tokenizer_for("text").encode(prompt)
        if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
            raise BadRequest(f"A prompt is {prompt!r:.80}.", remedy="Use text, ids or messages.", param="prompt")
        if all(map(is_integer, prompt)):
            return [plain(item) for item in prompt]
        return self._tokenizer_for("chat messages").encode_chat(cast(Sequence[Message], prompt))

    def jobs(self, prompts: Prompt | Sequence[Prompt], sampling: Sampling | Sequence[Sampling] | None) -> list[Job]:
        """What is to be decoded for these, as `generate` has them, each with a seed.

        Raises:
            BadRequest: as `generate`.
        """
        many = cast(Sequence[Prompt], [prompts] if _is_one(prompts) else prompts)
        one = Sampling() if sampling is None else sampling
        settings = list(one) if isinstance(one, Sequence) else [one] * len(many)
        if len(settings) != len(many):
            raise BadRequest(f"There are {len(many)} prompts and {len(settings)} samplings.", param="sampling")
        jobs = []
        for index, (prompt, setting) in enumerate(zip(many, settings, strict=True)):
            if not isinstance(setting, Sampling):
                raise BadRequest(f"sampling is {setting!r:.80}.", remedy="Use Sampling(...).", param="sampling")
            if setting.stop and self.tokenizer is None:
                message = "stop is set, but the checkpoint has no tokenizer."
                raise BadRequest(message, remedy="Use stop_token_ids.", param="stop")
            tokens, suffix = self._sides(prompt)
            self.decoder.check(tokens, setting, suffix)
            seed = draw_seed() if setting.seed is None else setting.seed
            seeds = [derive_seed(seed, choice) for choice in range(setting.n)]
            jobs += [Job(tokens, setting, own, index, choice, suffix) for choice, own in enumerate(seeds)]
        return jobs

    def _run(self, jobs: list[Job]) -> Iterator[tuple[Any, Chunk]]:
        return run(self.decoder, jobs, self.tokenizer, self.end_token_ids, self.max_batch)

    def _sides(self, prompt: Prompt) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The token ids before the answer, and those behind it."""
        if not isinstance(prompt, Infill):
            return tuple(self.encode(prompt)), ()
        suffix = prompt.suffix
        if isinstance(suffix, str):
            suffix = self._tokenizer_for("text").encode(suffix, whole=False)
        return tuple(self.encode(prompt.prefix)), tuple(suffix)

    def _tokenizer_for(self, what: str) -> Tokenizer:
        if self.tokenizer is None:
            raise BadRequest(f"The checkpoint has no tokenizer for {what}.", remedy="Give token ids.", param="prompt")
        return self.tokenizer


def _is_one(prompts: object) -> bool:
    """True for text, for ids, for chat messages, for a text with a hole; false for a list of prompts."""
    if isinstance(prompts, str | Infill):
        return True
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes | bytearray):
        raise BadRequest(f"A prompt is {type(prompts).__name__}.", remedy="Use text, ids or messages.", param="prompt")
    return not prompts or is_integer(prompts[0]) or isinstance(prompts[0], int | Mapping)


def _whole(max_batch: int) -> int:
    field = Field("max_batch", *get_args(MaxBatch))
    if not suits(max_batch, field):
        raise refusal(field, max_batch)
    return int(max_batch)


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r:.80}.", remedy="It must be True or False.", param=name)


def _load_target(folder: Path, precision: Precision, device: torch.device) -> Transformer:
    """A whole model: any but a drafter."""
    dtypes = dtypes_of(precision, read_json(folder / "config.json"), device)
    return load_transformer(
        folder,
        dtypes.products,
        device,
        attention_dtype=dtypes.attention,
        arithmetic=dtypes.arithmetic,
        keep_weights=False,
    )


def _shared_tokens(spec: Spec, beside: Partner | None, tokenizer: Tokenizer | None) -> int:
    """How many ids may be drawn.

    Raises:
        VocabularyMismatch: as `usable_tokens`; names the setting of the partner.
    """
    if beside is None:
        return usable_tokens(spec, None, tokenizer, None)
    with named_by(beside.param, beside.name):
        return usable_tokens(spec, beside.spec, tokenizer, beside.folder)
