"""Which method decodes a model, and whether what was asked for fits together.

A new method gets its rules in `choose_method` and its parts in `decoder_of`. Knows nothing of folders, tokenizers or
answers; the settings that only one method has are in `settings`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from paceline.decode.adaptive import Adaptive
from paceline.decode.apd import APD
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.controller import Controller, first_block_size
from paceline.decode.costs import CostBook
from paceline.decode.denoiser import Denoiser
from paceline.decode.dflash import DFlash
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.drafting import Drafting
from paceline.decode.lookup import PromptLookup
from paceline.decode.ngram_table import NgramTable
from paceline.decode.remasking import Remasking
from paceline.decode.rescoring import Joint, SmallModel, TableOfNgrams
from paceline.decode.settings import Own
from paceline.decode.speculation import Lookup, Speculation
from paceline.decode.suffix_index import SuffixIndex
from paceline.decode.target import Target
from paceline.errors import ConfigError
from paceline.models.drafter import Drafter
from paceline.models.options import Method
from paceline.models.transformer import Transformer

__all__ = ["Asked", "Chosen", "Parts", "choose_method", "decoder_of", "target_of"]

_BLOCKS = (4, 8, 12, 16)
_CANDIDATES, _NODES = 16, 48
"""What the machine chooses from, where nothing was asked for."""

Chosen = Literal["ar", "dflash", "lookup", "diffusion", "apd"]


class Asked(NamedTuple):
    """What a user set of the method, and what the model brings along; None and "auto" where nothing."""

    method: Method = "auto"
    drafter: object = None
    verifier: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a decoder is made of.

    Attributes:
        partner: the drafter of DFlash, the verifier of APD.
        usable_tokens: ids from here on are never drawn.
        end_token_ids: what ends an answer.
        settings: of the method, as `settings_of` gives them.
        ngrams: what APD's verifier says behind frequent contexts.
        rescorer: what weighs the candidates of DFlash anew.
        known: a text that answers may repeat, beside their prompts.
        scored: DFlash keeps how likely the drafts of a chain are, too.
    """

    model: Transformer
    partner: Drafter | Transformer | None = None
    usable_tokens: int
    end_token_ids: frozenset[int] = frozenset()
    settings: Own | None = None
    ngrams: NgramTable | None = None
    rescorer: Transformer | NgramTable | None = None
    known: SuffixIndex | None = None
    scored: bool = False


def choose_method(asked: Asked, diffuses: bool) -> Chosen:
    """The method for a model that is a diffusion language model, or an autoregressive one.

    Raises:
        ConfigError: another method, or a partner that is of no use with the one for this model.
    """
    if asked.method not in get_args(Method):
        raise ConfigError(f"method is {asked.method!r:.80}.", remedy=f"There are: {', '.join(get_args(Method))}.")
    return _for_diffusion(asked) if diffuses else _for_target(asked)


def decoder_of(method: Chosen, parts: Parts) -> Autoregressive | DFlash | PromptLookup | MaskedDiffusion | APD:
    """The decoder, of parts that fit the method."""
    model, partner, usable_tokens, settings = parts.model, parts.partner, parts.usable_tokens, parts.settings
    if method == "diffusion":
        assert isinstance(settings, Remasking)
        return MaskedDiffusion(Denoiser(model, usable_tokens), settings, parts.end_token_ids)
    if method == "apd":
        assert isinstance(settings, Adaptive)
        assert isinstance(partner, Transformer)
        verifier = Target(partner, usable_tokens)
        return APD(Denoiser(model, usable_tokens), verifier, settings, parts.end_token_ids, parts.ngrams)
    if isinstance(partner, Drafter):
        assert settings is None or isinstance(settings, Speculation)
        settings, target, joint = settings or Speculation(), target_of(model, partner, usable_tokens), _joint(parts)
        if settings.block_size == "auto":
            return _controlled(target, partner, settings, joint, parts.known)
        size = settings.block_size or partner.spec.block_size
        return DFlash(target, partner, size, settings, joint=joint, known=parts.known, scored=parts.scored)
    if method == "lookup":
        assert isinstance(settings, Lookup)
        return PromptLookup(target_of(model, None, usable_tokens), settings, parts.known)
    return Autoregressive(target_of(model, None, usable_tokens))


def target_of(model: Transformer, drafter: Drafter | None, usable_tokens: int) -> Target:
    """A model as the target of `drafter`, or on its own."""
    return Target(model, usable_tokens, () if drafter is None else drafter.spec.target_layer_ids)


def _joint(parts: Parts) -> Joint | None:
    """What weighs candidates anew."""
    if isinstance(parts.rescorer, Transformer):
        return SmallModel(Target(parts.rescorer, parts.usable_tokens))
    return None if parts.rescorer is None else TableOfNgrams(parts.rescorer)


def _controlled(
    target: Target, drafter: Drafter, settings: Speculation, joint: Joint | None, known: SuffixIndex | None
) -> DFlash:
    """DFlash that chooses blocks and nodes by itself; the settings bound what it may choose."""
    if settings.candidate_num == 1:
        settings = replace(settings, candidate_num=_CANDIDATES, max_nodes=_NODES)
    longest = drafter.spec.block_size
    sizes = (*(size for size in _BLOCKS if size < longest), longest)
    first = min(first_block_size(target.model.spec.hidden_size), longest)
    book = CostBook(Drafting(target, drafter, settings, joint), sizes)
    steps = tuple(dict.fromkeys((1, settings.diffusion_steps)))
    return DFlash(target, drafter, longest, settings, Controller(book.costs, sizes, first, steps), joint, known)


def _for_diffusion(asked: Asked) -> Literal["diffusion", "apd"]:
    if asked.method not in ("auto", "diffusion", "apd"):
        told = f"method is {asked.method!r}, and the model is a diffusion language model: it has no next token."
        raise ConfigError(told, remedy="Use diffusion, apd or auto, or give an autoregressive model.", param="method")
    if asked.drafter is not None:
        told = f"drafter is {str(asked.drafter)!r:.80}, and a diffusion language model needs none."
        raise ConfigError(told, remedy="Leave it out, or give an autoregressive model.", param="drafter")
    if asked.method == "apd" and asked.verifier is None:
        remedy = "Name a small autoregressive model of the same tokenizer: verifier=…, --verifier …"
        raise ConfigError("method is 'apd', but there is no verifier.", remedy=remedy, param="verifier")
    if asked.method == "diffusion" and asked.verifier is not None:
        told = f"verifier is {str(asked.verifier)!r:.80}, and the method is 'diffusion', which uses none."
        raise ConfigError(told, remedy="Leave it out, or use apd.", param="verifier")
    return "diffusion" if asked.verifier is None else "apd"


def _for_target(asked: Asked) -> Literal["ar", "dflash", "lookup"]:
    if asked.method in ("diffusion", "apd"):
        told = f"method is {asked.method!r}, and the model is autoregressive: it has no mask token."
        raise ConfigError(told, remedy="Give Dream or LLaDA, or use auto.", param="method")
    if asked.verifier is not None:
        told = f"verifier is {str(asked.verifier)!r:.80}, and the model is autoregressive: APD needs a diffusion model."
        raise ConfigError(told, remedy="Leave it out, or give Dream or LLaDA as the model.", param="verifier")
    if asked.method == "dflash" and asked.drafter is None:
        raise ConfigError("method is 'dflash', but there is no drafter.", remedy="Name one: drafter=…, --drafter …")
    if asked.method in ("ar", "lookup"):
        return _alone(asked)
    return "ar" if asked.drafter is None else "dflash"


def _alone(asked: Asked) -> Literal["ar", "lookup"]:
    if asked.drafter is not None:
        told = f"drafter is {str(asked.drafter)!r:.80}, and the method is {asked.method!r}, which uses none."
        remedy = "Leave it out, or use dflash" + ("." if asked.method == "ar" else ": it looks up, too, with lookup.")
        raise ConfigError(told, remedy=remedy, param="drafter")
    return "ar" if asked.method == "ar" else "lookup"
