"""Training a diffusion model and its verifier together: 0.7 marginal + 0.3 joint.

    marginal   the dLLM's own loss on masked rows, as in `train.dllm`
    joint      the loss of a masked run under the product p_D^R p_AR^(1 - R), normalised, that APD compares drafts with:
               the dLLM sees all of the text but the run, the verifier what stands before each of its tokens

So both learn to be right where the other is not. R is `alpha`, the weight of APD's fixed schedule (arXiv 2506.00413,
equation 5). Knows nothing of how either model was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from paceline.decode.agree import product
from paceline.models.transformer import Transformer
from paceline.train.data import load_splits
from paceline.train.diffusion_options import JointConfig
from paceline.train.dllm import draw_batch, heldout_losses, masked_logits, masked_loss, rows_recipe, weighted_nats
from paceline.train.fit.loop import fit
from paceline.train.forward import next_logits
from paceline.train.masking import Masked

__all__ = ["joint_loss", "train_joint"]


def train_joint(
    dllm: Transformer,
    verifier: Transformer,
    config: JointConfig,
    end_id: int,
    run: Path,
    starts: tuple[int, int] = (0, 0),
) -> None:
    """Train both models in place; resumes from `run` where that holds a checkpoint.

    Args:
        end_id: the token behind the end of a document.
        starts: checksums of the weights that both begin with: a run is resumed only with the same.

    Raises:
        ConfigError: as `fit`.
        TrainingError: no corpus, or one without text; or as `fit`.
    """
    train, heldout = load_splits(config.rows.corpus)
    both = nn.ModuleDict({"dllm": dllm, "verifier": verifier})

    def batch_at(index: int) -> tuple[Tensor, ...]:
        rng = np.random.default_rng((config.rows.fit.seed, 9, index))
        shares = (config.rows.run_share, 1.0)
        batches = [draw_batch(train, config.rows, end_id, share, rng) for share in shares]
        return tuple(tensor for batch in batches for tensor in (batch.tokens, batch.masked, batch.weights))

    def loss(*batch: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        marginal = masked_loss(dllm, Masked(*batch[:3]))
        joint = joint_loss(dllm, verifier, Masked(*batch[3:]), config.alpha)
        total = config.marginal_share * marginal + (1.0 - config.marginal_share) * joint
        return total, {"marginal_loss": marginal, "joint_loss": joint}

    @torch.no_grad()
    def evaluate() -> Mapping[str, float]:
        both.eval()
        batch = draw_batch(heldout, config.rows, end_id, 1.0, np.random.default_rng(7))
        joint = float(joint_loss(dllm, verifier, batch, config.alpha))
        return {**heldout_losses(dllm, heldout, config.rows, end_id), "heldout_joint": joint}

    kept = {"shares": [config.marginal_share, config.alpha], "starts": list(starts)}
    recipe = {**rows_recipe(config.rows, train, end_id), **kept}
    fit(both, batch_at, loss, evaluate, config.rows.fit, run, recipe, batch_setting=config.rows.batch[0])


def joint_loss(dllm: Transformer, verifier: Transformer, batch: Masked, alpha: float) -> Tensor:
    """The weighted loss of the masked runs under the product of both models, in nats per token of a run."""
    marginal, places = masked_logits(dllm, batch)
    before = places - places // batch.tokens.shape[1] - 1  # rows of the verifier say nothing behind their last token
    conditional = next_logits(verifier, batch.tokens).flatten(0, 1)[before]
    shared = slice(min(marginal.shape[-1], conditional.shape[-1]))  # an id that only one of them has is never drawn
    both = product(marginal[:, shared].float(), conditional[:, shared].float(), alpha)
    return weighted_nats(both, places, batch)
