"""The recipe of a DFlash drafter (arXiv 2602.06036): masked blocks behind random anchors in the target's own answers.

A block with anchor a holds [token a, MASK, …]; it sees the target's features strictly before a and its own slots,
never another block. Slot j is trained on the token at a + j, earlier slots weigh more. Embedding and head are the
target's and stay frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.errors import ConfigError, TrainingError, UnsupportedModel
from paceline.models.attention import Attend
from paceline.models.drafter import Drafter
from paceline.models.spec import DrafterSpec, Spec
from paceline.models.transformer import Transformer
from paceline.train.loop import FitConfig, fit
from paceline.train.losses import slot_weights, weighted_cross_entropy
from paceline.train.responses import Responses, features

__all__ = ["DrafterConfig", "block_mask", "bundled_drafter_spec", "draft_loss", "new_drafter", "train_drafter"]


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """Settings of a drafter's training.

    Attributes:
        rows_per_batch: answers per step.
        block_rows: slots per answer and step, anchors included; shared out over blocks of one random length.
        gamma: decay of the slot weights.
        heldout_rows: answers kept back to measure the acceptance length on.
    """

    fit: FitConfig
    rows_per_batch: int = 32
    block_rows: int = 96
    shortest_block: int = 4
    gamma: float = 7.0
    heldout_rows: int = 128


def bundled_drafter_spec(target: Spec, mask_token_id: int) -> DrafterSpec:
    """Two layers of the target's width, block 16, taps at every quarter of the target."""
    layers = 2
    block = Spec(
        family="qwen3",
        vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=target.intermediate_size,
        num_layers=layers,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        norm_eps=target.norm_eps,
        rope=target.rope,
        context_tokens=target.context_tokens,
        windows=(None,) * layers,
        tied_head=True,
        qk_norm=True,
        eos_token_ids=target.eos_token_ids,
    )
    return DrafterSpec(
        block=block,
        block_size=16,
        mask_token_id=mask_token_id,
        target_layer_ids=tuple(sorted({max(0, target.num_layers * quarter // 4 - 1) for quarter in (1, 2, 3, 4)})),
        num_target_layers=target.num_layers,
        causal=(False,) * layers,
    )


def new_drafter(spec: DrafterSpec, target: Transformer, seed: int = 0) -> Drafter:
    """An untrained drafter. Its last norm starts at 0.3 of the target's: first guesses must not be overconfident."""
    torch.manual_seed(seed)
    drafter = Drafter(spec, target)
    with torch.no_grad():
        drafter.norm.weight.copy_(0.3 * target.norm.weight)
    return drafter


def train_drafter(
    drafter: Drafter, target: Transformer, responses: Responses, config: DrafterConfig, run: Path
) -> None:
    """Train `drafter` in place on the target's answers; resumes from `run` where that holds a checkpoint.

    Raises:
        TrainingError: too few answers to keep some back.
        ConfigError: block lengths that do not fit the drafter.
        UnsupportedModel: the drafter has sliding or causal layers, which are run but not trained.
    """
    _check(drafter.spec, responses, config)
    tapped = features(target, responses.tokens, drafter.spec.target_layer_ids)
    heldout = torch.arange(min(config.heldout_rows, len(responses.tokens) // 4))
    training = torch.arange(len(heldout), len(responses.tokens))

    def batch_at(index: int) -> tuple[Tensor, ...]:
        rng = np.random.default_rng((config.fit.seed, 1, index))
        rows = training[torch.from_numpy(rng.integers(0, len(training), config.rows_per_batch))]
        length = int(rng.integers(config.shortest_block, drafter.spec.block_size + 1))
        return _batch(responses, tapped, rows, length, config.block_rows // length, rng)

    def loss(*batch: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        return draft_loss(drafter, config.gamma, *batch), {}

    def evaluate() -> Mapping[str, float]:
        rng = np.random.default_rng((config.fit.seed, 2))
        batch = _batch(responses, tapped, heldout, drafter.spec.block_size, 6, rng)
        return {"acceptance_length": _acceptance_length(drafter, *batch)}

    fit(drafter, batch_at, loss, evaluate, config.fit, run)


def _check(spec: DrafterSpec, responses: Responses, config: DrafterConfig) -> None:
    if len(responses.tokens) < 8:
        raise TrainingError(f"There are {len(responses.tokens)} answers.", remedy="It takes at least 8.")
    if not 2 <= config.shortest_block <= spec.block_size:
        remedy = f"It must be in [2, {spec.block_size}]."
        raise ConfigError(f"shortest_block is {config.shortest_block}.", remedy=remedy)
    if config.block_rows < spec.block_size:
        remedy = f"It must hold a block of {spec.block_size}."
        raise ConfigError(f"block_rows is {config.block_rows}.", remedy=remedy)
    if any(spec.causal) or any(spec.block.windows):
        raise UnsupportedModel(
            "The drafter has sliding or causal layers.", remedy="Train one with full attention only."
        )


def draft_loss(
    drafter: Drafter, gamma: float, tokens: Tensor, tapped: Tensor, anchors: Tensor, lengths: Tensor, slots: Tensor
) -> Tensor:
    """Weighted cross-entropy of all blocks of a batch.

    Args:
        gamma: decay of the slot weights.
        tokens: [rows, width]; tapped: [rows, width, taps * hidden], the features along them.
        anchors: [rows, blocks], positions; lengths: [rows], real tokens of each row.
        slots: [block length], 0 … length - 1.
    """
    logits, targets, real = _predict(drafter, tokens, tapped, anchors, lengths, slots)
    weights = slot_weights(slots[1:], gamma).expand(targets.shape) * real
    return weighted_cross_entropy(logits.flatten(0, 2), targets.flatten(), weights.flatten())


def block_mask(anchors: Tensor, length: int, width: int) -> Tensor:
    """What each slot sees, bool [rows, blocks * length, width + blocks * length].

    Keys are the context features at positions 0 … width - 1, then all slots. A slot of a block with anchor a sees
    features before a and the slots of its own block:

                     features 0 1 2 3 | block a=2 | block a=1
        block a=2             x x . . |  x x x    |  . . .
        block a=1             x . . . |  . . .    |  x x x
    """
    rows, blocks = anchors.shape
    owner = torch.arange(blocks).repeat_interleave(length)
    before = torch.arange(width) < anchors[:, owner].unsqueeze(-1)
    own = (owner.unsqueeze(1) == owner.unsqueeze(0)).expand(rows, -1, -1)
    return torch.cat((before, own), -1)


def _predict(
    drafter: Drafter, tokens: Tensor, tapped: Tensor, anchors: Tensor, lengths: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [rows, blocks, length - 1, vocab], their targets, and which of them are real tokens."""
    rows, width = tokens.shape
    length = len(slots)
    positions = anchors.unsqueeze(-1) + slots
    inside = positions.clamp_max(width - 1)
    truth = tokens.gather(1, inside.flatten(1)).view(inside.shape)
    block = torch.where(slots == 0, truth, drafter.spec.mask_token_id)
    context_positions = torch.arange(width).repeat(rows)
    keys, values = drafter.context(tapped.flatten(0, 1).float(), context_positions)
    attend = _block_attention(keys, values, block_mask(anchors, length, width), rows)
    hidden = drafter(block.flatten(), positions.flatten(), attend).view(*positions.shape, -1)
    logits = drafter.logits(hidden[:, :, 1:].flatten(0, 2)).view(*positions[:, :, 1:].shape, -1)
    return logits, truth[:, :, 1:], positions[:, :, 1:] < lengths.view(-1, 1, 1)


def _block_attention(context_keys: Tensor, context_values: Tensor, mask: Tensor, rows: int) -> Attend:
    """Every answer's slots over its context rows [layers, rows * width, kv_heads, head_dim] and its slots."""

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        def joined(context: Tensor, own: Tensor) -> Tensor:
            both = [part.reshape(rows, -1, *own.shape[1:]).to(context.dtype) for part in (context, own)]
            return torch.cat(both, 1).transpose(1, 2)

        k, v = joined(context_keys[layer], keys), joined(context_values[layer], values)
        q = queries.reshape(rows, -1, *queries.shape[1:]).transpose(1, 2).to(k.dtype)
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.unsqueeze(1), enable_gqa=True)
        return output.transpose(1, 2).flatten(2).flatten(0, 1)

    return attend


@torch.no_grad()
def _acceptance_length(
    drafter: Drafter, tokens: Tensor, tapped: Tensor, anchors: Tensor, lengths: Tensor, slots: Tensor
) -> float:
    """Mean tokens per round on held-out blocks, the bonus token included, if the answers are the target's choices."""
    drafter.eval()
    logits, targets, real = _predict(drafter, tokens, tapped, anchors, lengths, slots)
    agreed = (logits.argmax(-1) == targets) & real
    whole = real.all(-1)
    return float((agreed.long().cumprod(-1).sum(-1)[whole] + 1.0).mean())


def _batch(
    responses: Responses, tapped: Tensor, rows: Tensor, length: int, blocks: int, rng: np.random.Generator
) -> tuple[Tensor, ...]:
    first, last = responses.prompt_lengths[rows], responses.lengths[rows] - 2
    share = torch.from_numpy(rng.random((len(rows), blocks)))
    anchors = first.unsqueeze(1) + (share * (last - first + 1).clamp_min(1).unsqueeze(1)).long()
    return responses.tokens[rows], tapped[rows], anchors, responses.lengths[rows], torch.arange(length)
