"""Masked diffusion: a model that sees the whole text in both directions fills the masks of an answer, a few per pass.

    propose   one pass over prompt, fixed tokens and masks: a token for every mask of the block
    agree     the ones the model is surest of are kept, by the rules of `remasking`; the others stay masks
    commit    they are fixed for good; when a block is full, the next one opens

LLaDA (arXiv 2502.09992), Dream (2508.15487) and the caches of Fast-dLLM (2505.22618). Every token is argmax of score +
temperature * noise at its position, with the same noise in every pass, so an answer is a function of its own request.
Knows nothing of text, streaming or stop strings.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paceline.completion import Round
from paceline.decode.canvas import Canvas
from paceline.decode.confidence import best, confidence
from paceline.decode.denoiser import Denoiser
from paceline.decode.noise import gumbel
from paceline.decode.remasking import Remasking, how_many
from paceline.decode.sampling import choose
from paceline.decode.windows import candidates, keep, next_rows, turn
from paceline.request import Sampling

__all__ = ["MaskedDiffusion"]


@dataclass(frozen=True, slots=True)
class MaskedDiffusion:
    """A masked-diffusion model and how it uncovers its answers.

    Attributes:
        end_token_ids: what ends an answer, besides the stop tokens of its request; only `end_last` asks for it.
    """

    dllm: Denoiser
    remasking: Remasking
    end_token_ids: frozenset[int] = frozenset()
    name = "diffusion"

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded; see `Denoiser.check`."""
        self.dllm.check(prompt, sampling, suffix)

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Canvas:
        """An answer of masks, for a request that `check` let pass."""
        return self.dllm.open(prompt, sampling, seed, suffix)

    def prefill(self, canvases: Many[Canvas]) -> list[tuple[int, ...]]:
        """Nothing to do: what is given is read in every pass, with the masks."""
        return [()] * len(canvases)

    @torch.inference_mode()
    def step(self, canvases: Many[Canvas]) -> list[Round]:
        """One forward pass over answers that have masks: what it fixed in each, and what has settled by that."""
        started = time.perf_counter()
        rows = [next_rows(canvas, self.remasking, self.dllm.logit_shift) for canvas in canvases]
        masks = [candidates(canvas, self.remasking) for canvas in canvases]
        scores = self.dllm.scores(canvases, rows, masks)
        rounds = [self._fix(*each) for each in zip(canvases, rows, masks, scores, strict=True)]
        seconds = (time.perf_counter() - started) / len(canvases)
        return [replace(round, draft_seconds=seconds) for round in rounds]

    def _fix(self, canvas: Canvas, rows: Many[int], masks: list[int], scores: Tensor) -> Round:
        """Fix the best of `masks`, whose scores are [masks, vocab], and keep the rows that later passes take over."""
        prefix, reused = canvas.settled, canvas.reused_by(rows)
        positions, tokens = self._best(canvas, masks, scores)
        run = canvas.fix(positions, tokens)
        keep(canvas, self.remasking, len(rows), self.dllm.logit_shift, positions)
        places = tuple(position - canvas.hole.start for position in positions)
        return Round(
            proposed=tuple(tokens),
            reference=(),
            committed=run,
            accepted=0,
            draft_seconds=0.0,
            verify_seconds=0.0,
            positions=places,
            prefix_tokens=prefix,
            reused_tokens=reused,
        )

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
        worth = self._by_strategy(canvas, scores, tokens, positions)
        if not self.remasking.end_last:
            return worth
        ends = sorted(self.end_token_ids.union(canvas.sampling.stop_token_ids))
        return worth.masked_fill(torch.isin(tokens, tokens.new_tensor(ends)), -torch.inf)

    def _by_strategy(self, canvas: Canvas, scores: Tensor, tokens: Tensor, positions: list[int]) -> Tensor:
        """The same, whatever the tokens mean."""
        places = torch.tensor(positions, device=self.dllm.device)
        if self.remasking.strategy == "left_to_right":
            return -places.double()
        if self.remasking.strategy == "random":
            return gumbel(canvas.seed, "remask", places, places.new_zeros(1, 1)).squeeze(1).double()
        return confidence(scores, tokens, self.remasking.strategy)
