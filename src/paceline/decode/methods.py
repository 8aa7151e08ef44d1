"""From a method and its parts to what decodes.

A new method gets its rules in `choice` and its parts in `decoder_of`. Knows nothing of folders, tokenizers or answers;
the settings that only one method has are in `settings`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.decode.adaptive import Adaptive
from paceline.decode.apd import APD
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.choice import Chosen
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
from paceline.models.drafter import Drafter
from paceline.models.transformer import Transformer

__all__ = ["Parts", "decoder_of", "target_of"]

_BLOCKS = (4, 6, 8, 12, 16)
"""What the machine chooses from, beside the drafter's own block."""


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
        settings, joint = settings or Speculation(), _joint(parts)
        target = target_of(model, partner, usable_tokens, parts.end_token_ids)
        chooses = _controller(target, partner, settings, joint) if settings.block_size == "auto" else None
        scored = parts.scored or chooses is not None
        return DFlash(target, partner, settings, chooses, joint, parts.known, scored=scored)
    if method == "lookup":
        assert isinstance(settings, Lookup)
        return PromptLookup(target_of(model, None, usable_tokens), settings, parts.known)
    return Autoregressive(target_of(model, None, usable_tokens, parts.end_token_ids))


def target_of(
    model: Transformer, drafter: Drafter | None, usable_tokens: int, end_token_ids: Iterable[int] = ()
) -> Target:
    """A model as the target of `drafter`, or on its own."""
    taps = () if drafter is None else drafter.spec.target_layer_ids
    return Target(model, usable_tokens, taps, tuple(end_token_ids))


def _joint(parts: Parts) -> Joint | None:
    """What weighs candidates anew."""
    if isinstance(parts.rescorer, Transformer):
        return SmallModel(Target(parts.rescorer, parts.usable_tokens))
    return None if parts.rescorer is None else TableOfNgrams(parts.rescorer)


def _controller(target: Target, drafter: Drafter, settings: Speculation, joint: Joint | None) -> Controller:
    """What chooses blocks and nodes, within the bounds of the settings."""
    longest = drafter.spec.block_size
    sizes = (*(size for size in _BLOCKS if size < longest), longest)
    first = min(first_block_size(target.model.spec.hidden_size), longest)
    drafting = Drafting(target, drafter, settings, joint, scored=True)
    steps = tuple(dict.fromkeys((1, settings.diffusion_steps)))
    return Controller(CostBook(drafting, sizes).costs, sizes, first, steps, drafting.may_chain)
