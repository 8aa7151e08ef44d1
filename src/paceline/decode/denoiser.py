"""A masked-diffusion model: it opens answers of masks, and reads texts that still have some.

What masked diffusion and APD share, as `target.py` is what all methods of an autoregressive model share. LLaDA (arXiv
2502.09992) and Dream (2508.15487; row i - 1 predicts position i). Does not know which masks are filled, or when.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.canvas import Canvas
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts, process
from paceline.decode.target import check_prompt
from paceline.errors import BadRequest, ContextOverflow, UnsupportedModel
from paceline.models.attention import Segment, cached_attention
from paceline.models.spec import Spec
from paceline.models.transformer import Output, Transformer
from paceline.request import Sampling

__all__ = ["Denoiser", "check_diffuses"]


@dataclass(frozen=True, slots=True)
class Denoiser:
    """A masked-diffusion model and the ids that are its vocabulary.

    Attributes:
        usable_tokens: ids from here on are padding of the embedding table; they are never drawn.

    Raises:
        UnsupportedModel: as `check_diffuses`.
    """

    model: Transformer
    usable_tokens: int

    def __post_init__(self) -> None:
        check_diffuses(self.model.spec)

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.model.embed.weight.device

    @property
    def mask_token_id(self) -> int:
        """What stands where no token is fixed yet; never drawn."""
        assert self.model.spec.diffusion is not None
        return self.model.spec.diffusion.mask_token_id

    @property
    def logit_shift(self) -> int:
        """Row i - shift predicts position i."""
        assert self.model.spec.diffusion is not None
        return self.model.spec.diffusion.logit_shift

    def banned(self) -> Tensor:
        """Ids never to be drawn: the padding of the vocabulary, and the mask."""
        ids = [*range(self.usable_tokens, self.model.spec.vocab_size), self.mask_token_id]
        return torch.tensor(ids, device=self.device)

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded.

        Raises:
            BadRequest: an empty prompt, an id outside the vocabulary, or the mask token; a hole that cannot be filled.
            ContextOverflow: no room for a single new token, or for all of a hole.
        """
        if suffix:
            self._check_hole(prompt, sampling, suffix)
        text = (*prompt, *suffix)
        check_prompt(text, sampling, self.usable_tokens, self.model.spec.context_tokens)
        if self.mask_token_id in text:
            told = f"The prompt contains the mask token, id {self.mask_token_id}."
            raise BadRequest(told, remedy="Only the answer is masked.", param="prompt")

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Canvas:
        """An answer of masks, as long as max_tokens and the context allow, for a request that `check` let pass."""
        spec = self.model.spec
        hole = range(len(prompt), min(len(prompt) + sampling.max_tokens, spec.context_tokens - len(suffix)))
        shape = (spec.num_layers, spec.num_kv_heads, spec.head_dim, hole.stop + len(suffix))
        given = (*prompt, *suffix)
        return Canvas(
            tokens=[*prompt, *[self.mask_token_id] * len(hole), *suffix],
            hole=hole,
            sampling=sampling,
            seed=seed,
            cache=SequenceCache(*shape, self.model.dtype, self.device),
            noise=NoiseCache(seed, spec.vocab_size, device=self.device),
            counts=TokenCounts.of_prompt(given, spec.vocab_size, self.device) if sampling.penalised else None,
        )

    def read(self, canvases: Many[Canvas], rows: Many[Many[int]]) -> list[Tensor]:
        """Hidden states [rows, hidden] at these positions of each text, which see each other and their cache.

        The rows lie behind the caches but are not part of them.
        """
        tokens = [canvas.tokens[position] for canvas, own in zip(canvases, rows, strict=True) for position in own]
        positions = torch.tensor([position for own in rows for position in own], device=self.device)
        segments = [Segment(len(own), canvas.cache) for canvas, own in zip(canvases, rows, strict=True)]
        spec = self.model.spec
        attend = cached_attention(segments, (False,) * spec.num_layers, spec.windows)
        output: Output = self.model(torch.tensor(tokens, device=self.device), positions, attend)
        return list(torch.split(output.hidden, [len(own) for own in rows]))

    def scores(self, canvases: Many[Canvas], rows: Many[Many[int]], masks: Many[list[int]]) -> list[Tensor]:
        """Scores [masks, vocab] of each answer, from a pass over `rows`, which ascend and predict all masks."""
        predicting = [
            hidden[[bisect_left(own, position - self.logit_shift) for position in positions]]
            for hidden, own, positions in zip(self.read(canvases, rows), rows, masks, strict=True)
        ]
        logits = torch.split(self.model.head(torch.cat(predicting)), [len(positions) for positions in masks])
        banned = self.banned()
        return [
            process(own, canvas.sampling, canvas.counts, banned=banned)
            for own, canvas in zip(logits, canvases, strict=True)
        ]

    def _check_hole(self, prompt: Many[int], sampling: Sampling, suffix: Many[int]) -> None:
        """Refuse a hole that does not fit, or that has no row to predict its first token."""
        text_tokens, context_tokens = len(prompt) + sampling.max_tokens + len(suffix), self.model.spec.context_tokens
        if text_tokens > context_tokens:
            raise ContextOverflow(text_tokens, context_tokens, "Prefix, hole and suffix have")
        if len(prompt) < self.logit_shift:
            remedy = f"A {self.model.spec.family} model predicts a token beside the one before it: give a prefix."
            raise BadRequest("Nothing stands before the hole.", remedy=remedy, param="prefix")


def check_diffuses(spec: Spec) -> None:
    """Refuse what is no masked-diffusion model.

    Raises:
        UnsupportedModel: an autoregressive model, or one that does not see the whole text.
    """
    if spec.diffusion is None:
        raise UnsupportedModel(f"This {spec.family} model has no mask token.", remedy="Give Dream or LLaDA.")
    if any(window is not None for window in spec.windows):
        told = f"sliding_window is {max(filter(None, spec.windows))}."
        raise UnsupportedModel(told, remedy="A diffusion language model must see the whole text.")
