"""Which method decodes a model, and whether what was asked for fits together.

A new method gets its rules in `choose_method` and its parts in `decoder_of`. Knows nothing of folders, tokenizers or
answers.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from paceline.decode.autoregressive import Autoregressive
from paceline.decode.dflash import DFlash
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.remasking import Remasking
from paceline.decode.target import Target
from paceline.errors import ConfigError
from paceline.models.drafter import Drafter
from paceline.models.options import Method
from paceline.models.transformer import Transformer

__all__ = ["Asked", "Chosen", "choose_method", "decoder_of", "target_of"]

Chosen = Literal["ar", "dflash", "diffusion"]


class Asked(NamedTuple):
    """What a user set of the method; None and "auto" where nothing."""

    method: Method = "auto"
    drafter: object = None
    verifier: object = None
    block_size: int | None = None
    remasking: Remasking | None = None


def choose_method(asked: Asked, diffuses: bool) -> Chosen:
    """The method for a model that is a diffusion language model, or an autoregressive one.

    Raises:
        ConfigError: another method, or a setting that is of no use with the one for this model.
    """
    if asked.method not in get_args(Method):
        raise ConfigError(f"method is {asked.method!r:.80}.", remedy=f"There are: {', '.join(get_args(Method))}.")
    if asked.verifier is not None:
        raise ConfigError("verifier is set, and no method of this version uses one.", remedy="Leave it out.")
    if asked.remasking is not None and not isinstance(asked.remasking, Remasking):
        raise ConfigError(f"remasking is {asked.remasking!r:.80}.", remedy="Use Remasking(...).", param="remasking")
    return _for_diffusion(asked) if diffuses else _for_target(asked)


def decoder_of(
    method: Chosen, model: Transformer, drafter: Drafter | None, usable_tokens: int, asked: Asked
) -> Autoregressive | DFlash | MaskedDiffusion:
    """The decoder; `drafter` is there for DFlash only."""
    if method == "diffusion":
        return MaskedDiffusion(model, usable_tokens, asked.remasking or Remasking())
    target = target_of(model, drafter, usable_tokens)
    if drafter is None:
        return Autoregressive(target)
    return DFlash(target, drafter, asked.block_size or drafter.spec.block_size)


def target_of(model: Transformer, drafter: Drafter | None, usable_tokens: int) -> Target:
    """A model as the target of `drafter`, or on its own."""
    return Target(model, usable_tokens, () if drafter is None else drafter.spec.target_layer_ids)


def _for_diffusion(asked: Asked) -> Chosen:
    if asked.method not in ("auto", "diffusion"):
        told = f"method is {asked.method!r}, and the model is a diffusion language model: it has no next token."
        raise ConfigError(told, remedy="Use diffusion or auto, or give an autoregressive model.", param="method")
    if asked.drafter is not None:
        told = f"drafter is {str(asked.drafter)!r:.80}, and a diffusion language model needs none."
        raise ConfigError(told, remedy="Leave it out, or give an autoregressive model.", param="drafter")
    if asked.block_size is not None:
        told = f"block_size is {asked.block_size}, which is of DFlash, and the model is a diffusion language model."
        raise ConfigError(told, remedy="Its blocks are block_length tokens long.", param="block_size")
    return "diffusion"


def _for_target(asked: Asked) -> Chosen:
    if asked.method == "diffusion":
        told = "method is 'diffusion', and the model is autoregressive: it has no mask token."
        raise ConfigError(told, remedy="Give Dream or LLaDA, or use auto.", param="method")
    if asked.remasking is not None:
        plain = Remasking()
        changed = [name for name in Remasking.__slots__ if getattr(asked.remasking, name) != getattr(plain, name)]
        told = f"{' and '.join(changed) or 'remasking'} is set for masked diffusion, and the model is autoregressive."
        raise ConfigError(told, remedy="Leave it out, or give Dream or LLaDA.", param="remasking")
    if asked.method == "dflash" and asked.drafter is None:
        raise ConfigError("method is 'dflash', but there is no drafter.", remedy="Name one: drafter=…, --drafter …")
    return "ar" if asked.method == "ar" or asked.drafter is None else "dflash"
