"""Masked diffusion: a model that sees the whole text in both directions fills the masks of an answer, a few per pass.

    propose   one pass over prompt, fixed tokens and masks: a token for every mask of the block
    agree     the ones the model is surest of are kept, by the rules of `remasking`; the others stay masks
    commit    they are fixed for good; when a block is full, the next one opens

LLaDA (arXiv 2502.09992), Dream (2508.15487; row i - 1 predicts position i) and the caches of Fast-dLLM (2505.22618).
Every token is argmax of score + temperature * noise at its position, with the same noise in every pass, so an answer
is a function of its own request. Knows nothing of text, streaming or stop strings.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.cache.store import SequenceCache
from paceline.decode.canvas import Canvas
from paceline.decode.confidence import best, confidence
from paceline.decode.noise import NoiseCache, gumbel
from paceline.decode.processors import TokenCounts, process
from paceline.decode.remasking import Remasking, how_many
from paceline.decode.sampling import choose
from paceline.decode.sequence import flat
from paceline.decode.target import check_prompt
from paceline.decode.windows import candidates, keep, next_window, turn
from paceline.errors import BadRequest, ContextOverflow, UnsupportedModel
from paceline.models.attention import Segment, cached_attention
from paceline.models.transformer import Output, Transformer
from paceline.request import Round, Sampling

__all__ = ["MaskedDiffusion"]


@dataclass(frozen=True, slots=True)
class MaskedDiffusion:
    """A masked-diffusion model and how it uncovers its answers.

    Attributes:
        usable_tokens: ids from here on are padding of the embedding table; they are never drawn.

    Raises:
        UnsupportedModel: an autoregressive model, or one that does not see the whole text.
    """

    model: Transformer
    usable_tokens: int
    remasking: Remasking
    name = "diffusion"

    def __post_init__(self) -> None:
        spec = self.model.spec
        if spec.diffusion is None:
            raise UnsupportedModel(f"This {spec.family} model has no mask token.", remedy="Give Dream or LLaDA.")
        if any(window is not None for window in spec.windows):
            told = f"sliding_window is {max(filter(None, spec.windows))}."
            raise UnsupportedModel(told, remedy="A diffusion language model must see the whole text.")

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

    def prefill(self, canvases: Many[Canvas]) -> list[tuple[int, ...]]:
        """Nothing to do: what is given is read in every pass, with the masks."""
        return [()] * len(canvases)

    @torch.inference_mode()
    def step(self, canvases: Many[Canvas]) -> list[Round]:
        """One forward pass over answers that have masks: what it fixed in each, and what has settled by that."""
        started = time.perf_counter()
        windows = [next_window(canvas, self.remasking, self.logit_shift) for canvas in canvases]
        masks = [candidates(canvas, window) for canvas, window in zip(canvases, windows, strict=True)]
        scores = self.scores(canvases, windows, masks)
        passes = []
        for canvas, window, positions, own in zip(canvases, windows, masks, scores, strict=True):
            fixed, tokens = self._best(canvas, positions, own)
            committed = canvas.fix(fixed, tokens)
            keep(canvas, self.remasking, window, self.logit_shift, fixed)
            passes.append((tokens, committed, [position - canvas.hole.start for position in fixed]))
        seconds = (time.perf_counter() - started) / len(canvases)
        return [Round(tuple(tokens), (), run, 0, seconds, 0.0, tuple(places)) for tokens, run, places in passes]

    def read(self, canvases: Many[Canvas], windows: Many[range]) -> list[Tensor]:
        """Hidden states [rows, hidden] of the positions in each window, which see themselves and their cache.

        The rows lie behind the caches but are not part of them.
        """
        rows = [canvas.tokens[window.start : window.stop] for canvas, window in zip(canvases, windows, strict=True)]
        tokens, positions = flat(rows, [window.start for window in windows], self.device)
        segments = [Segment(len(window), canvas.cache) for canvas, window in zip(canvases, windows, strict=True)]
        spec = self.model.spec
        output: Output = self.model(
            tokens, positions, cached_attention(segments, (False,) * spec.num_layers, spec.windows)
        )
        return list(torch.split(output.hidden, [len(window) for window in windows]))

    def scores(self, canvases: Many[Canvas], windows: Many[range], masks: Many[list[int]]) -> list[Tensor]:
        """Scores [masks, vocab] of each answer."""
        rows = [
            hidden[[position - self.logit_shift - window.start for position in positions]]
            for hidden, window, positions in zip(self.read(canvases, windows), windows, masks, strict=True)
        ]
        logits = torch.split(self.model.head(torch.cat(rows)), [len(positions) for positions in masks])
        banned = self.banned()
        return [
            process(own, canvas.sampling, canvas.counts, banned=banned)
            for own, canvas in zip(logits, canvases, strict=True)
        ]

    def _best(self, canvas: Canvas, positions: list[int], scores: Tensor) -> tuple[list[int], list[int]]:
        """Those of `positions` that this pass fixes, ascending, and their tokens; scores are [positions, vocab]."""
        tokens = choose(scores, canvas.sampling, canvas.noise, positions)
        worth = self._worth(canvas, scores, tokens, positions)
        ranking = best(worth)
        count = how_many(self.remasking, worth[ranking].tolist(), turn(canvas, self.remasking))
        chosen = ranking[:count].sort().values
        return [positions[row] for row in chosen.tolist()], tokens[chosen].tolist()

    def _worth(self, canvas: Canvas, scores: Tensor, tokens: Tensor, positions: list[int]) -> Tensor:
        """Which positions come first, float64 [positions]: the greater, the earlier."""
        places = torch.tensor(positions, device=self.device)
        if self.remasking.strategy == "left_to_right":
            return -places.double()
        if self.remasking.strategy == "random":
            return gumbel(canvas.seed, "remask", places, places.new_zeros(1, 1)).squeeze(1).double()
        return confidence(scores, tokens, self.remasking.strategy)

    def _check_hole(self, prompt: Many[int], sampling: Sampling, suffix: Many[int]) -> None:
        """Refuse a hole that does not fit, or whose two sides cannot be seen."""
        text_tokens, context_tokens = len(prompt) + sampling.max_tokens + len(suffix), self.model.spec.context_tokens
        if text_tokens > context_tokens:
            raise ContextOverflow(text_tokens, context_tokens, "Prefix, hole and suffix have")
        if len(prompt) < self.logit_shift:
            remedy = f"A {self.model.spec.family} model predicts a token beside the one before it: give a prefix."
            raise BadRequest("Nothing stands before the hole.", remedy=remedy, param="prefix")
        if self.remasking.max_lookahead is not None:
            told = f"max_lookahead is {self.remasking.max_lookahead}, which hides what stands behind the hole."
            raise BadRequest(told, remedy="Fill holes without it.", param="suffix")
