"""Plain decoding of many prompts side by side, all of them a token per pass: the fast path for training data.

Prompts stand right-aligned in one rectangle, so every layer's attention is one kernel over the whole batch. Nobody
joins and nobody leaves: an answer that ended is computed on and thrown away. The tokens are those of
`decode.autoregressive`, its oracle. Knows nothing of text, streaming or stop strings.

    column      0 1 2 3 4 | 5 6 …
    one         . . a b c | x y        `.` is padding, which no token sees
    another     d e f g h | z w
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.decode.noise import NoiseCache
from paceline.decode.processors import process
from paceline.decode.sampling import choose, is_greedy
from paceline.decode.target import Target
from paceline.models.attention import Attend
from paceline.models.masks import visible
from paceline.models.transformer import Output
from paceline.request import Sampling

__all__ = ["LockstepJob", "decode_lockstep"]

_GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class LockstepJob:
    """One answer to produce. Of `sampling`, temperature and filters count; penalties, biases and stops do not."""

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int


@torch.inference_mode()
def decode_lockstep(target: Target, jobs: Many[LockstepJob], end_ids: frozenset[int]) -> list[list[int]]:
    """The new tokens of each job, its end token included. Prompts have passed `Target.check`."""
    spec, banned = target.model.spec, target.banned()
    limits = [min(job.sampling.max_tokens, spec.context_tokens - len(job.prompt)) for job in jobs]
    noises = [NoiseCache(job.seed, spec.vocab_size, device=target.device) for job in jobs]
    batch = _Rectangle(target, [job.prompt for job in jobs], max(limits))
    answers: list[list[int]] = [[] for _ in jobs]
    unfinished = list(range(len(jobs)))
    tokens = batch.prompts
    while unfinished:
        scores = process(target.model.head(batch.read(tokens)), _GREEDY, banned=banned)
        chosen = choose(scores, _GREEDY, noises[0], ())
        for row in unfinished:
            sampling, position = jobs[row].sampling, len(jobs[row].prompt) + len(answers[row])
            if not is_greedy(sampling):
                chosen[row] = choose(scores[row : row + 1], sampling, noises[row], range(position, position + 1))
                noises[row].forget(position + 1)
        tokens = chosen.unsqueeze(1)
        newest = chosen.tolist()
        for row in unfinished:
            answers[row].append(newest[row])
        unfinished = [row for row in unfinished if len(answers[row]) < limits[row] and newest[row] not in end_ids]
    return answers


class _Rectangle:
    """Keys and values of the batch, [layers, 2, batch, kv_heads, columns, head_dim], and how far it has been read."""

    def __init__(self, target: Target, prompts: Many[tuple[int, ...]], steps: int) -> None:
        spec, weight = target.model.spec, target.model.embed.weight
        width = max(map(len, prompts))
        self._model = target.model
        self._padding = torch.tensor([width - len(prompt) for prompt in prompts], device=weight.device)
        self.prompts = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=weight.device)
        shape = (spec.num_layers, 2, len(prompts), spec.num_kv_heads, width + steps, spec.head_dim)
        self._rows = torch.empty(shape, dtype=target.model.dtype, device=weight.device)
        self._columns = 0

    def read(self, tokens: Tensor) -> Tensor:
        """Read tokens [batch, columns] behind the rest; the hidden states [batch, hidden] of the last column."""
        batch, count = tokens.shape
        columns = torch.arange(self._columns, self._columns + count, device=tokens.device)
        # Padding stands at position 0, and sees itself: what it computes is read by nobody, but has to be finite.
        positions = (columns - self._padding.unsqueeze(1)).clamp_min(0)
        attend = self._attention(batch, count)
        output: Output = self._model(tokens.flatten(), positions.flatten(), attend)
        self._columns += count
        return output.hidden.view(batch, count, -1)[:, -1]

    def _attention(self, batch: int, count: int) -> Attend:
        past, end = self._columns, self._columns + count
        windows = self._model.spec.windows
        masks = {window: self._mask(count, window) for window in set(windows)}

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            q, k, v = (x.view(batch, count, *x.shape[1:]).transpose(1, 2) for x in (queries, keys, values))
            seen_keys, seen_values = self._rows[layer, :, :, :, :end].unbind()
            seen_keys[:, :, past:] = k
            seen_values[:, :, past:] = v
            output = F.scaled_dot_product_attention(
                q, seen_keys, seen_values, attn_mask=masks[windows[layer]], enable_gqa=q.shape[1] != k.shape[1]
            )
            return output.transpose(1, 2).flatten(2).flatten(0, 1)

        return attend

    def _mask(self, count: int, window: int | None) -> Tensor:
        """What is added to the scores, [batch, 1, count, columns]."""
        past, end = self._columns, self._columns + count
        seen = visible(count, past, True, window)
        rows, columns = torch.arange(past, end), torch.arange(end)
        real = columns >= self._padding.cpu().view(-1, 1, 1, 1)
        allowed = (real if seen is None else real & seen) | (columns == rows.unsqueeze(1))
        added = torch.zeros(allowed.shape, dtype=self._rows.dtype).masked_fill_(~allowed, -math.inf)
        return added.to(self._rows.device)
