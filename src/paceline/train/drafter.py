"""The recipe of a DFlash drafter (arXiv 2602.06036): masked blocks behind random anchors in the target's own answers.

Slots are trained on the answer, earlier ones weigh more; on request also on the target's distribution and on what the
drafter itself says in more steps, and in blocks that are filled in part; the selector of a DFlash 2 drafter learns to
find them behind the true tokens before them. Embedding and head are the target's and stay
frozen. `train.blocks` says what a block sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.errors import ConfigError, SettingError, TrainingError, UnsupportedModel
from paceline.models.convolution import Convolution
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import DFlash2, DrafterSpec
from paceline.models.selector import CandidateSelector
from paceline.models.spec import Spec
from paceline.models.transformer import Transformer
from paceline.train.blocks import Blocks, Opened, logits_of, open_blocks
from paceline.train.data import fingerprint
from paceline.train.denoise import acceptance_length, denoise_from, reveal
from paceline.train.fit.loop import fit
from paceline.train.fit.memory import memory_is_set_by
from paceline.train.losses import (
    bucketed_divergence,
    candidate_nats,
    decay_weights,
    divergence,
    log_probabilities_of,
    pace_weights,
    weighted_mean,
    with_target,
)
from paceline.train.options import DrafterConfig, Objective, VersionConfig
from paceline.train.responses import Responses, features
from paceline.train.teacher import Teacher

__all__ = ["bundled_drafter_spec", "check_drafter", "draft_loss", "new_drafter", "train_drafter"]


def bundled_drafter_spec(
    target: Spec, mask_token_id: int, block_size: int = 16, version: VersionConfig | None = None
) -> DrafterSpec:
    """Two layers of the target's width, taps at every quarter of the target; of version 1 unless told otherwise.

    Raises:
        ConfigError: sizes of version 2 that do not fit the target.
    """
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
        block_size=block_size,
        mask_token_id=mask_token_id,
        target_layer_ids=tuple(sorted({max(0, target.num_layers * quarter // 4 - 1) for quarter in (1, 2, 3, 4)})),
        num_target_layers=target.num_layers,
        causal=(False,) * layers,
        v2=None if version is None else _second_version(target, version),
    )


def _second_version(target: Spec, version: VersionConfig) -> DFlash2 | None:
    """What version 2 adds, if it is asked for."""
    if version.drafter_version == 1:
        return None
    group, top_k = version.conv_group_size, version.selector_top_k
    if target.hidden_size % group:
        told = f"conv_group_size is {group}, the target is {target.hidden_size} wide."
        raise ConfigError(told, remedy="Give a divisor of the width.", param="conv_group_size")
    if top_k > target.vocab_size:
        told = f"selector_top_k is {top_k}, of {target.vocab_size} tokens."
        raise ConfigError(told, remedy="Lower selector_top_k.", param="selector_top_k")
    return DFlash2(version.conv_kernel_size, group, version.selector_rank, top_k)


def new_drafter(spec: DrafterSpec, target: Transformer, seed: int = 0) -> Drafter:
    """An untrained drafter. Its last norm starts at 0.3 of the target's: first guesses must not be overconfident.

    One of version 2 starts as one of version 1 would: its convolutions pass every slot on, its selector adds nothing.
    """
    torch.manual_seed(seed)
    drafter = Drafter(spec, target)
    with torch.no_grad():
        drafter.norm.weight.copy_(0.3 * target.norm.weight)
        for module in drafter.modules():
            if isinstance(module, Convolution):
                module.kernel_projection.weight.zero_()
    return drafter


def train_drafter(
    drafter: Drafter,
    target: Transformer,
    responses: Responses,
    config: DrafterConfig,
    run: Path,
    teacher: Teacher | None = None,
    start: int = 0,
) -> None:
    """Train `drafter` in place on the target's answers; resumes from `run` where that holds a checkpoint.

    Args:
        teacher: what the target says along the answers; needed for a `distill_share`.
        start: checksum of the weights that `drafter` begins with, 0 for random ones: a run is resumed only with those.

    Raises:
        TrainingError: too few answers to keep some back; or as `fit`.
        ConfigError, UnsupportedModel: as `check_drafter` and `fit`.
    """
    check_drafter(drafter.spec, config)
    if len(responses.tokens) < 8:
        raise TrainingError(f"There are {len(responses.tokens)} answers.", remedy="It takes at least 8.")
    assert (teacher is not None) == (config.objective.distill_share > 0.0)
    with memory_is_set_by("count"):
        tapped = features(target, responses, drafter.spec.target_layer_ids)
    heldout = torch.arange(min(config.heldout_rows, len(responses.tokens) // 4))
    training = torch.arange(len(heldout), len(responses.tokens))

    def batch_at(index: int) -> tuple[Tensor, ...]:
        rng = np.random.default_rng((config.fit.seed, 1, index))
        rows = training[torch.from_numpy(rng.integers(0, len(training), config.rows_per_batch))]
        length = int(rng.integers(config.shortest_block, drafter.spec.block_size + 1))
        blocks = _batch(responses, tapped, rows, length, config.block_rows // length, rng)
        return (*blocks, *(teacher.of(rows, blocks.tokens.shape[1]) if teacher else ()))

    def loss(*batch: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        blocks, said = Blocks(*batch[: len(Blocks._fields)]), batch[len(Blocks._fields) :]
        return draft_loss(drafter, config.objective, blocks, Teacher(*said) if said else None), {}

    def evaluate() -> Mapping[str, float]:
        rng = np.random.default_rng((config.fit.seed, 2))
        batch = _batch(responses, tapped, heldout, drafter.spec.block_size, 6, rng)
        drafter.eval()
        with memory_is_set_by("heldout_rows", config.heldout_rows):
            figures = {"acceptance_length": acceptance_length(drafter, batch)}
            if config.objective.reveal_share > 0.0:
                figures["acceptance_length_4_steps"] = acceptance_length(drafter, batch, 4)
            return figures

    settings = {key: value for key, value in asdict(config).items() if key != "fit"}
    recipe = {
        **settings,
        "block_size": drafter.spec.block_size if config.block_size is None else config.block_size,
        "mask_token_id": drafter.spec.mask_token_id,
        "answers": fingerprint(responses.tokens),
        "start": start,
    }
    fit(drafter, batch_at, loss, evaluate, config.fit, run, recipe, batch_setting="rows_per_batch")


def check_drafter(spec: DrafterSpec, config: DrafterConfig) -> None:
    """Refuse a drafter that cannot be trained with these settings.

    Raises:
        ConfigError: block lengths that do not fit the drafter.
        UnsupportedModel: the drafter has sliding or causal layers, which are run but not trained.
    """
    if not 2 <= config.shortest_block <= spec.block_size:
        remedy = f"It must be from 2 to {spec.block_size}, the block size."
        raise SettingError({"shortest_block": f"is {config.shortest_block}"}, remedy=remedy)
    if config.block_rows < spec.block_size:
        remedy = f"It must hold a block of {spec.block_size}."
        raise SettingError({"block_rows": f"is {config.block_rows}"}, remedy=remedy)
    if any(spec.causal) or any(spec.block.windows):
        raise UnsupportedModel(
            "The drafter has sliding or causal layers.", remedy="Train one with full attention only."
        )


def draft_loss(drafter: Drafter, objective: Objective, blocks: Blocks, teacher: Teacher | None = None) -> Tensor:
    """The weighted loss of all masked slots.

    distill_share * KL(target || drafter) + step_distill_share * KL(drafter at more steps || drafter)
    + the rest * cross-entropy; for version 2 the selector's cross-entropy comes on top. A `teacher` has the rows of
    `blocks`.
    """
    opened = open_blocks(drafter, blocks)
    tokens, masked = reveal(opened, objective.reveal_share)
    states = opened.states(tokens)
    logits = logits_of(drafter, states)
    said = None if teacher is None else teacher.at(opened.positions)
    own = _own(logits, opened.targets, said)
    nats = -own[..., 0]
    losses = (1.0 - objective.distill_share - objective.step_distill_share) * nats
    if said is not None:
        losses = losses + objective.distill_share * bucketed_divergence(own[..., 1:], said.log_probabilities)
    if objective.step_distill_share > 0.0:
        later = denoise_from(opened, tokens, masked, objective.teacher_steps)
        losses = losses + objective.step_distill_share * divergence(logits, later)
    if drafter.selector is not None:
        losses = losses + _selector_nats(drafter.selector, opened, states, logits)
    right = torch.where(masked, torch.exp(-nats), (tokens[..., 1:] == opened.targets).float())
    return weighted_mean(losses, _weights(objective, right, opened) * (masked & opened.real))


def _selector_nats(selector: CandidateSelector, opened: Opened, states: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropy of the right token among the candidates, behind the true token before it: [rows, blocks, slots]."""
    before = torch.cat((opened.masked[..., :1], opened.targets[..., :-1]), -1).unsqueeze(-1)
    ids, counted = with_target(logits.detach().topk(selector.top_k).indices, opened.targets)
    return candidate_nats(logits.gather(-1, ids) + selector.pair_scores(states, before, ids).squeeze(-2), counted)


def _own(logits: Tensor, targets: Tensor, said: Teacher | None) -> Tensor:
    """The drafter's log-probabilities of the right token and of the teacher's, [rows, blocks, slots, 1 + k]."""
    ids = targets.unsqueeze(-1)
    return log_probabilities_of(logits, ids if said is None else torch.cat((ids, said.ids), -1))


def _weights(objective: Objective, right: Tensor, opened: Opened) -> Tensor:
    """What each slot weighs, where `right` is the probability that it holds, or will be given, the right token."""
    if objective.weighting == "pace":
        return pace_weights(right * opened.real)
    return decay_weights(torch.arange(1, right.shape[-1] + 1, device=right.device), objective.gamma).expand(right.shape)


def _batch(
    responses: Responses, tapped: Tensor, rows: Tensor, length: int, blocks: int, rng: np.random.Generator
) -> Blocks:
    first, last = responses.prompt_lengths[rows], responses.lengths[rows] - 2
    share = torch.from_numpy(rng.random((len(rows), blocks)))
    anchors = first.unsqueeze(1) + (share * (last - first + 1).clamp_min(1).unsqueeze(1)).long()
    lengths = responses.lengths[rows]
    longest = int(lengths.max())  # what is behind it no block sees
    return Blocks(responses.tokens[rows, :longest], tapped[rows, :longest], anchors, lengths, torch.arange(length))
