"""`config.json` -> `DrafterSpec`: what the DFlash drafter needs to know about a checkpoint (arXiv 2602.06036).

Reads the layout of the released checkpoints of versions 1 and 2: Qwen3's keys, and those of the drafter at top level or
in `dflash_config`. Does not read weights and imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import CheckpointError, UnsupportedModel, VocabularyMismatch
from paceline.models.fields import Config, flag, integer, integers, number, section
from paceline.models.spec import MAX_LAYERS, Spec, refuse_remote_code, transformer_spec

__all__ = ["DRAFTERS", "DFlash2", "DrafterSpec", "check_pair", "default_target_layer_ids", "drafter_spec"]

DRAFTERS = ("DFlashDraftModel", "DFlash2DraftModel")
"""The architectures of drafters, version 1 and 2."""

_MAX_BLOCK = 4096

_MAX_RANK = 1 << 16

# What the released drafters name; ours runs in its place.
_RELEASED_DRAFTER_CODE = ("dflash.DFlashDraftModel", "modeling_dflash.DFlashDraftModel")


@dataclass(frozen=True, slots=True)
class DFlash2:
    """What DFlash 2 adds to a drafter, so that a slot knows its left neighbour.

    Attributes:
        kernel_size: rows that the convolutions of a layer see, the slot's own included.
        group_size: channels that share what a kernel adds for a row.
        selector_rank: width of the selector's codebooks.
        selector_top_k: candidates per slot.
    """

    kernel_size: int
    group_size: int
    selector_rank: int
    selector_top_k: int


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A DFlash drafter: Qwen3 layers between the target's embedding and the target's head.

    `block` describes the layers (its vocabulary is the target's). `causal[i]` says whether the slots of a block
    see only earlier slots in layer i. Slot 0 of a block is the anchor, slot j predicts the token at anchor + j. `v2` is
    None for a drafter of the first version.
    """

    block: Spec
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    causal: tuple[bool, ...]
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    guessed_taps: bool = False
    v2: DFlash2 | None = None


def drafter_spec(config: Config) -> DrafterSpec:
    """Describe the DFlash drafter of a `config.json`. Keys in `dflash_config` win over those at top level.

    Without `target_layer_ids` the published default is taken and `guessed_taps` set, so that the loader can warn.

    Raises:
        UnsafeCheckpoint: `auto_map` asks for other code than the released drafters', which is not run either.
        CheckpointError: no mask token, no block size, taps outside the target, or a DFlash 2 drafter whose sizes are
            missing or do not fit together; names the key.
        UnsupportedModel: another architecture, slots that are counted in another way, or keys of DFlash 2 in a drafter
            that is none.
    """
    if config.get("auto_map") in [{"AutoModel": code} for code in _RELEASED_DRAFTER_CODE]:
        config = {**config, "auto_map": None}
    refuse_remote_code(config)
    keys = {**config, **section(config, "dflash_config")}
    _refuse_other_block_conventions(keys)
    if config.get("architectures") not in [[name] for name in DRAFTERS]:
        told = f"architectures is {config.get('architectures')!r:.200}."
        raise UnsupportedModel(told, remedy=f"A drafter must be one of: {', '.join(DRAFTERS)}.")
    if config["architectures"] == [DRAFTERS[0]]:
        _refuse_second_version(keys)
    block = transformer_spec({**config, "model_type": "qwen3", "tie_word_embeddings": True})
    target_layers = integer(keys, "num_target_layers", high=MAX_LAYERS)
    given = integers(keys, "target_layer_ids")
    taps = given or default_target_layer_ids(target_layers, block.num_layers)
    for tap in taps:
        if not 0 <= tap < target_layers:
            raise CheckpointError(
                f"target_layer_ids contains {tap}; the target has {target_layers} layers.", param="target_layer_ids"
            )
    return DrafterSpec(
        block=block,
        block_size=integer(keys, "block_size", high=_MAX_BLOCK),
        mask_token_id=integer(keys, "mask_token_id", low=0),
        target_layer_ids=taps,
        num_target_layers=target_layers,
        causal=_causal(keys, block),
        input_embedding_scale=number(keys, "input_embedding_scale", default=1.0),
        output_multiplier=number(keys, "output_multiplier", default=1.0),
        final_logit_softcapping=_soft_cap(keys),
        guessed_taps=not given,
        v2=_second_version(keys, block) if config["architectures"] == [DRAFTERS[1]] else None,
    )


def default_target_layer_ids(target_layers: int, draft_layers: int) -> tuple[int, ...]:
    """The taps of the released drafters where the configuration names none: evenly spaced in [1, L - 3].

    Halves round to even. One draft layer taps the middle of the target.
    """
    if draft_layers == 1:
        return (target_layers // 2,)
    step = (target_layers - 4) / (draft_layers - 1)
    return tuple(round(1 + i * step) for i in range(draft_layers))


def check_pair(spec: DrafterSpec, target: Spec) -> None:
    """Refuse a drafter that was made for another target than this.

    Raises:
        CheckpointError: of another size; names both. VocabularyMismatch: of fewer tokens than the drafter has.
    """
    remedy = "Take the drafter that was trained for this target."
    if spec.num_target_layers != target.num_layers:
        told = (
            f"The drafter's num_target_layers is {spec.num_target_layers}; the target has {target.num_layers} layers."
        )
        raise CheckpointError(told, remedy=remedy)
    if spec.block.hidden_size != target.hidden_size:
        told = f"The drafter's hidden_size is {spec.block.hidden_size}, the target's is {target.hidden_size}."
        raise CheckpointError(told, remedy=remedy)
    of_target = f"the target's vocabulary has {target.vocab_size} ids"
    if spec.mask_token_id >= target.vocab_size:
        raise VocabularyMismatch(f"The drafter's mask_token_id is {spec.mask_token_id}; {of_target}.", remedy=remedy)
    if spec.v2 is not None and spec.block.vocab_size < target.vocab_size:
        told = f"The drafter's codebooks have {spec.block.vocab_size} ids, {of_target}."
        raise VocabularyMismatch(told, remedy=remedy)


def _refuse_other_block_conventions(keys: Config) -> None:
    if keys.get("sample_from_anchor"):
        raise UnsupportedModel(
            "sample_from_anchor is set: slot 0 of a block is a prediction.",
            remedy="Paceline runs drafters whose slot 0 is the anchor.",
        )


def _refuse_second_version(keys: Config) -> None:
    for key in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"):
        if keys.get(key):
            told = f"{key} is {keys[key]!r:.80}, which is of DFlash 2, and architectures is {[DRAFTERS[0]]}."
            raise UnsupportedModel(told, remedy=f"A DFlash 2 drafter is a {DRAFTERS[1]}.")


def _second_version(keys: Config, block: Spec) -> DFlash2:
    group = integer(keys, "conv_group_size", high=block.hidden_size)
    if block.hidden_size % group:
        told = f"conv_group_size is {group}, hidden_size is {block.hidden_size}."
        raise CheckpointError(told, remedy="The second must be a multiple of the first.", param="conv_group_size")
    return DFlash2(
        kernel_size=integer(keys, "conv_kernel_size", high=_MAX_BLOCK),
        group_size=group,
        selector_rank=integer(keys, "selector_rank", high=_MAX_RANK),
        selector_top_k=integer(keys, "selector_top_k", high=block.vocab_size),
    )


def _soft_cap(keys: Config) -> float | None:
    key = "final_logit_softcapping"
    return None if keys.get(key) is None else number(keys, key)


def _causal(keys: Config, block: Spec) -> tuple[bool, ...]:
    if keys.get("is_causal") is not None:
        return (flag(keys, "is_causal"),) * block.num_layers
    return tuple(window is not None for window in block.windows)
