"""How sure a masked-diffusion model is of the tokens it proposes, and which of them come first.

Pure functions on tensors. Knows nothing of positions, blocks or how many are kept (remasking.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.decode.remasking import Strategy

if TYPE_CHECKING:
    from jaxtyping import Float, Float64, Int

__all__ = ["best", "confidence"]


def confidence(
    scores: Float[Tensor, "rows vocab"], tokens: Int[Tensor, " rows"], strategy: Strategy
) -> Float64[Tensor, " rows"]:
    """How sure the model is at each row, the greater the surer: of softmax(scores) in float64, at temperature 1.

    Args:
        scores: logits after bans and penalties.
        tokens: what was drawn there.
        strategy: "low_confidence" for the probability of that token, "margin" for the distance of the two most
            probable ones, "entropy" for the entropy, negated.
    """
    law = scores.double().softmax(-1)
    if strategy == "margin":
        first, second = law.topk(2).values.unbind(-1)
        return first - second
    if strategy == "entropy":
        negative: Tensor = torch.special.xlogy(law, law).sum(-1)
        return negative
    assert strategy == "low_confidence", f"{strategy} asks for no confidence"
    return law.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def best(worth: Float64[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """Rows in falling order of worth; of equal ones the first comes first."""
    return worth.sort(descending=True, stable=True).indices
