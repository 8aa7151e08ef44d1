"""The folder of a model -> modules on a device, ready to run.

Modules are built without memory and the tensors of the checkpoint become their parameters, so that nothing is ever
left at a random value. Nothing in a checkpoint is executed: configurations are JSON, weights are safetensors
(`models.safetensors_file`). Knows nothing of tokenizers beyond the mappings it is given to compare.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paceline import native
from paceline.errors import CheckpointError, VocabularyMismatch
from paceline.models.config_file import model_config
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import check_pair, drafter_spec
from paceline.models.json_file import read_json
from paceline.models.layout import parts_of
from paceline.models.linear import Linear
from paceline.models.safetensors_file import read_tensors
from paceline.models.spec import transformer_spec
from paceline.models.transformer import Transformer, prepare

__all__ = ["check_same_tokens", "load_drafter", "load_transformer", "shared_vocabulary"]


def load_transformer(
    folder: Path,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    *,
    attention_dtype: torch.dtype | None = None,
    arithmetic: native.Arithmetic = native.EXACT,
    trainable: bool = False,
    keep_weights: bool = True,
) -> Transformer:
    """The Transformer of a checkpoint.

    Args:
        folder: holds config.json and safetensors.
        dtype: of all weights; None takes the embedding's in the file.
        attention_dtype: of norms, attention and what layers hand on, where it is not `dtype` (`models.precision`).
        device: where the weights go.
        arithmetic: what products round to int8, if anything.
        trainable: keep the parameters trainable and the modules plain, instead of `prepare`d.
        keep_weights: beside what passes over caches need; without them, nothing else can be computed.

    Raises:
        CheckpointError: missing, truncated, unsafe, unsupported or inconsistent; see `paceline.errors`.
    """
    spec = transformer_spec(model_config(folder))
    parts = parts_of(read_tensors(folder), spec)
    with _Unfilled():
        model = Transformer(spec)
    dtype = dtype or parts["embed.weight"][0].dtype
    form = _Form(dtype, attention_dtype or dtype, torch.device(device), arithmetic, keep_weights)
    _fill(model, parts, form)
    if spec.tied_head and not form.lean:  # otherwise the head gives back what it has packed
        # Filling made two parameters of the one tensor.
        model.head.weight = nn.Parameter(model.embed.weight)
        model.embed.weight = model.head.weight
    if not trainable:
        _prepare(model, form)
    return model


def load_drafter(
    folder: Path,
    target: Transformer,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    *,
    attention_dtype: torch.dtype | None = None,
    arithmetic: native.Arithmetic = native.EXACT,
    trainable: bool = False,
    keep_weights: bool = True,
) -> Drafter:
    """The DFlash drafter of a checkpoint for `target`, whose embedding and head it uses.

    `dtype` and `device` are the target's unless given; the rest is as in `load_transformer`. Warns where the
    configuration names no layers to tap. A vocabulary that differs beyond padding shows only with a tokenizer:
    `shared_vocabulary`.

    Raises:
        CheckpointError: as `load_transformer`, or made for another target; names both values.
    """
    config = read_json(folder / "config.json")
    spec = drafter_spec({"num_target_layers": target.spec.num_layers, **config})
    check_pair(spec, target.spec)
    if spec.guessed_taps:
        warnings.warn(
            f"{folder}: config.json has no target_layer_ids; layers {list(spec.target_layer_ids)} of the target are "
            "taken. If the drafter was trained on others, few of its drafts will be accepted.",
            stacklevel=2,
        )
    parts = parts_of(read_tensors(folder), spec)
    with _Unfilled():
        drafter = Drafter(spec, target)
    dtype, device = dtype or target.product_dtype, torch.device(device or target.embed.weight.device)
    form = _Form(dtype, attention_dtype or dtype, device, arithmetic, keep_weights)
    _fill(drafter, parts, form)
    if not trainable:
        _prepare(drafter, form)
    return drafter


def shared_vocabulary(target_vocab_size: int, other_vocab_size: int, tokenizer_size: int) -> int:
    """How many token ids, from 0 on, both models and their tokenizer have: ids at or above it are never used.

    Tables are often padded beyond the tokenizer; that is no mismatch.

    Raises:
        VocabularyMismatch: the tokenizer has ids that a table lacks; names all sizes.
    """
    if tokenizer_size > min(target_vocab_size, other_vocab_size):
        raise VocabularyMismatch(
            f"The models have vocabularies of {target_vocab_size} and {other_vocab_size} ids; "
            f"the tokenizer has {tokenizer_size}.",
            remedy="Both models must be trained with this tokenizer.",
        )
    return tokenizer_size


def check_same_tokens(tokens: Mapping[str, int], others: Mapping[str, int], *, more: bool = False) -> None:
    """Two tokenizers give every id the same token; with `more`, the first may have some behind all of the second's.

    Raises:
        VocabularyMismatch: they do not; names both sizes and the first differing token.
    """
    ours, theirs = ({index: token for token, index in vocabulary.items()} for vocabulary in (tokens, others))
    end = max(theirs, default=0) if more else max((*ours, *theirs), default=0)
    differing = [index for index in ours.keys() | theirs.keys() if ours.get(index) != theirs.get(index)]
    first = min(differing, default=end + 1)
    if first > end:
        return
    raise VocabularyMismatch(
        f"The tokenizers have {len(tokens)} and {len(others)} tokens and differ first at id {first}: "
        f"{ours.get(first)!r} and {theirs.get(first)!r}.",
        remedy="Use two models of one tokenizer.",
    )


class _Unfilled(TorchFunctionMode):
    """Parameters are made without memory and without values. Everything else a module computes stays real.

    `torch.device("meta")` would do the same to all tensors, and import torch's compiler for the first random value or
    range: 4 s of processor time for nothing.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is nn.init.normal_:
            return None
        meta = {"device": "meta"} if func in (torch.empty, torch.ones, torch.zeros) else {}
        return func(*args, **{**(kwargs or {}), **meta})


class _Form(NamedTuple):
    """How the tensors of a checkpoint become parameters.

    Attributes:
        norm_dtype: of all but embedding and products.
        arithmetic: see `Linear`.
        keep_weights: see `load_transformer`.
    """

    dtype: torch.dtype
    norm_dtype: torch.dtype
    device: torch.device
    arithmetic: native.Arithmetic
    keep_weights: bool

    @property
    def lean(self) -> bool:
        """Weights of products are converted as they are packed, one by one, and given back.

        An embedding in bfloat16 stays where it is: in the file, of which the system keeps in memory what is looked up.
        """
        wide = self.norm_dtype == torch.float32  # where passes are native
        return not self.keep_weights and wide and native.multiplies(self.dtype, self.device)


def _prepare(module: Transformer | Drafter, form: _Form) -> None:
    prepare(module)
    if form.lean:
        native.trim()


def _fill(module: Transformer | Drafter, parts: dict[str, list[Tensor]], form: _Form) -> None:
    """Make the tensors of `parts` the parameters of a module that was built without memory. Empties `parts`."""
    products = {name: child for name, child in module.named_modules() if isinstance(child, Linear)}
    wholes = {name for name, child in module.named_modules() if isinstance(child, nn.Embedding)} | products.keys()
    converted: dict[str, Tensor] = {}
    while parts:  # one by one, so that a model is not held twice while it is converted
        name, found = parts.popitem()
        owner, _, own = name.rpartition(".")
        if form.arithmetic != native.EXACT and owner in products and not all(each.isfinite().all() for each in found):
            told = f"The checkpoint's {name} holds a number that is not finite."
            raise CheckpointError(told, remedy="It cannot be rounded to int8; use another precision.")
        if form.lean and owner in products and own == "weight":
            products[owner].take(found, form.dtype)
            converted[name] = products[owner].weight
        elif form.lean and owner in wholes - products.keys() and found[0].dtype == torch.bfloat16:
            converted[name] = found[0]  # an embedding, where it is
        else:
            converted[name] = torch.cat(found).to(form.device, form.dtype if owner in wholes else form.norm_dtype)
    module.load_state_dict(converted, assign=True)
    for product in products.values():
        product.arithmetic = form.arithmetic
    held = [*module.buffers(), module.rotary.frequencies, *module.parameters()]
    assert form.lean or not any(tensor.is_meta for tensor in held)
