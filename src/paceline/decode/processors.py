"""Penalties, logit bias and bans: from a model's logits to the scores that tokens are drawn from.

Order: repetition penalty (CTRL, arXiv:1909.05858, equation in §4.1), presence and frequency penalty, logit bias, bans.
Row i of a verify pass is scored as plain decoding would score it: with the committed tokens and the drafts before
it. Rejected drafts leave no trace, because only `TokenCounts.commit` writes.

Knows nothing of temperature, filters or noise (sampling.py), nor of the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.decode.tree import EMPTY, Proposal
from paceline.errors import BadRequest
from paceline.request import Sampling

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Int32

__all__ = ["TokenCounts", "check_bias", "process", "widen"]


@dataclass(frozen=True, slots=True, eq=False)
class TokenCounts:
    """What one sequence holds so far; needed only where `sampling.penalised`.

    Attributes:
        in_prompt: ids that occur in the prompt.
        output: how often each id was committed.
    """

    in_prompt: Bool[Tensor, " vocab"]
    output: Int32[Tensor, " vocab"]

    @classmethod
    def of_prompt(cls, prompt: Sequence[int], vocab_size: int, device: torch.device | str = "cpu") -> TokenCounts:
        """Counts before the first new token."""
        in_prompt = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        in_prompt[torch.tensor(prompt, dtype=torch.int64, device=device)] = True
        return cls(in_prompt, torch.zeros(vocab_size, dtype=torch.int32, device=device))

    def commit(self, tokens: Sequence[int]) -> None:
        """Count tokens that are now part of the answer."""
        index = torch.tensor(tokens, dtype=torch.int64, device=self.output.device)
        self.output.index_add_(0, index, torch.ones_like(index, dtype=torch.int32))


def process(
    logits: Float[Tensor, "rows vocab"],
    sampling: Sampling,
    counts: TokenCounts | None = None,
    drafts: Proposal = EMPTY,
    banned: Int[Tensor, " banned"] | None = None,
) -> Float[Tensor, "rows vocab"]:
    """The scores of each row; the very tensor given where nothing is set.

    Args:
        logits: of the model. Half precision is widened before it is changed.
        counts: committed tokens; required where `sampling.penalised`.
        drafts: row 0 is scored after the committed tokens, row i + 1 after the path down to node i, too. Empty: every
            row is scored after the committed tokens only, as the drafter's proposals are.
        banned: ids never to be drawn (padding of the vocabulary; for proposals the mask id).
    """
    if sampling.penalised:
        assert counts is not None, "penalties need the counts"
        logits = _penalise(widen(logits), sampling, counts.in_prompt, _output_counts(counts, drafts, len(logits)))
    if sampling.logit_bias:
        logits = _add_bias(widen(logits), sampling.logit_bias)
    if banned is not None and banned.numel():
        logits = logits.index_fill(-1, banned, -torch.inf)
    return logits


def widen(logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Half precision as float32; float32 and float64 as they are."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def check_bias(sampling: Sampling, vocab_size: int) -> None:
    """Refuse a bias on an id that the vocabulary does not have.

    Raises:
        BadRequest: names the id.
    """
    for token in sampling.logit_bias:
        if token >= vocab_size:
            remedy = f"The vocabulary ends at {vocab_size - 1}."
            raise BadRequest(f"logit_bias names token id {token}.", remedy=remedy, param="logit_bias")


def _output_counts(counts: TokenCounts, drafts: Proposal, rows: int) -> Int32[Tensor, "#rows vocab"]:
    if not drafts.tokens:
        return counts.output[None]
    assert rows == len(drafts.tokens) + 1, f"{rows} rows for {len(drafts.tokens)} drafts"
    output = counts.output.repeat(rows, 1)
    for row, (parent, token) in enumerate(zip(drafts.parents, drafts.tokens, strict=True), start=1):
        output[row] = output[parent + 1]
        output[row, token] += 1
    return output


def _penalise(
    logits: Float[Tensor, "rows vocab"],
    sampling: Sampling,
    in_prompt: Bool[Tensor, " vocab"],
    output: Int32[Tensor, "#rows vocab"],
) -> Float[Tensor, "rows vocab"]:
    said = output > 0
    if sampling.repetition_penalty != 1.0:
        factor = sampling.repetition_penalty
        logits = torch.where(said | in_prompt, torch.where(logits > 0, logits / factor, logits * factor), logits)
    if sampling.presence_penalty:
        logits = logits - sampling.presence_penalty * said.to(logits.dtype)
    if sampling.frequency_penalty:
        logits = logits - sampling.frequency_penalty * output.to(logits.dtype)
    return logits


def _add_bias(logits: Float[Tensor, "rows vocab"], bias: Mapping[int, float]) -> Float[Tensor, "rows vocab"]:
    ids = torch.tensor(list(bias), device=logits.device)
    return logits.index_add(-1, ids, logits.new_tensor(list(bias.values())).expand(len(logits), -1))
