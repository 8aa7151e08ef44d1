"""Filling blocks in several steps, as multi-step decoding does, and blocks caught in the middle of that.

Each step fills all masked slots and fixes those the drafter is most confident in; nothing is drawn, the likeliest token
is taken (deterministic, as DDIM is: arXiv 2010.02502; the order is the low-confidence remasking of MaskGIT, arXiv
2202.04200). Nothing here is differentiated. Knows nothing of losses.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.models.drafter import Drafter
from paceline.models.selector import CandidateSelector
from paceline.train.blocks import Blocks, Opened, Predictions, logits_of, open_blocks

__all__ = ["acceptance_length", "denoise", "denoise_from", "reveal"]


@torch.no_grad()
def denoise(drafter: Drafter, blocks: Blocks, steps: int) -> Predictions:
    """Fill all blocks in `steps` >= 1 passes; each slot's logits are those of the step that fixed it.

    An equal share of the slots is fixed per step, all that are left in the last. One step is `predict`.
    """
    opened = open_blocks(drafter, blocks)
    logits = denoise_from(opened, opened.masked, torch.ones_like(opened.real), steps)
    return Predictions(logits, opened.targets, opened.real, opened.positions)


@torch.no_grad()
def denoise_from(opened: Opened, tokens: Tensor, masked: Tensor, steps: int) -> Tensor:
    """The same from blocks that are filled in part: logits [rows, blocks, length - 1, vocab].

    Those of slots that were filled from the start are of the first step.

    Args:
        tokens: [rows, blocks, length], what the slots hold.
        masked: [rows, blocks, length - 1], which of them are to be filled.
    """
    steps = min(steps, masked.shape[-1])
    count, left = masked.sum(-1, keepdim=True), masked
    said = logits = opened.fill(tokens)
    for step in range(1, steps):
        quota = (count * step + steps - 1) // steps - (count - left.sum(-1, keepdim=True))
        guesses, confidence = _choose(logits, opened.mask_token_id)
        fixed = left & (_ranks(confidence.masked_fill(~left, -math.inf)) < quota)
        tokens, left = _shown(tokens, fixed, guesses), left & ~fixed
        logits = opened.fill(tokens)
        said = torch.where(left.unsqueeze(-1), logits, said)
    return said


@torch.no_grad()
def reveal(opened: Opened, share: float) -> tuple[Tensor, Tensor]:
    """Fill a random `share` of the blocks in part: tokens [rows, blocks, length], and which slots are still masked.

    One to all but one of the slots behind the anchor are filled: those the drafter is most confident in when all are
    masked, in half of the blocks with its own guesses, in the others with the answer's tokens. Slots behind the end
    of an answer stay masked. What is random is drawn from torch's generator.
    """
    if share == 0.0:
        return opened.masked, torch.ones_like(opened.real)
    rows, blocks, slots = opened.targets.shape
    chosen, own, amount = torch.rand(3, rows, blocks, 1, device=opened.targets.device)
    guesses, confidence = _choose(opened.fill(opened.masked), opened.mask_token_id)
    count = ((amount * (slots - 1)).long() + 1).clamp_max(slots - 1)
    ranks = _ranks(confidence.masked_fill(~opened.real, -math.inf))
    shown = (ranks < count) & opened.real & (chosen < share)
    return _shown(opened.masked, shown, torch.where(own < 0.5, guesses, opened.targets)), ~shown


@torch.no_grad()
def acceptance_length(drafter: Drafter, blocks: Blocks, steps: int = 1) -> float:
    """Mean tokens per round, the bonus token included, if the answers are the target's choices.

    The drafts are the likeliest token of each slot; in one step, those that the drafter's selector finds, if any.
    Only whole blocks count; where answers are too short for any, all blocks do, as far as they go.
    """
    if steps == 1 and drafter.selector is not None:
        said, drafts = _selected(drafter, drafter.selector, blocks)
    else:
        said = denoise(drafter, blocks, steps)
        drafts = said.logits.argmax(-1)
    agreed = (drafts == said.targets) & said.real
    whole = said.real.all(-1)
    counted = whole if bool(whole.any()) else torch.ones_like(whole)
    return float((agreed.long().cumprod(-1).sum(-1)[counted] + 1.0).mean())


def _selected(drafter: Drafter, selector: CandidateSelector, blocks: Blocks) -> tuple[Predictions, Tensor]:
    """One step, and the tokens that the selector finds in it, [rows, blocks, length - 1]."""
    opened = open_blocks(drafter, blocks)
    states = opened.states(opened.masked)
    logits = logits_of(drafter, states)
    said = Predictions(logits, opened.targets, opened.real, opened.positions)
    return said, selector.select(states, logits, opened.masked[..., 0])


def _choose(logits: Tensor, mask_token_id: int) -> tuple[Tensor, Tensor]:
    """The likeliest token of each slot, and its log-probability; the mask token is never one."""
    scores = logits.float().clone()
    scores[..., mask_token_id] = -math.inf
    best, tokens = scores.max(-1)
    return tokens, best - scores.logsumexp(-1)


def _ranks(confidence: Tensor) -> Tensor:
    """0 for the most confident slot of each block, and so on; of equals, the earlier first."""
    return confidence.argsort(dim=-1, descending=True, stable=True).argsort(-1)


def _shown(tokens: Tensor, shown: Tensor, values: Tensor) -> Tensor:
    """`tokens` [..., length] with `values` [..., length - 1] in those slots behind the anchor that are `shown`."""
    return torch.cat((tokens[..., :1], torch.where(shown, values, tokens[..., 1:])), -1)
