"""The tree of the most probable prefixes of a block, from the candidates of its slots, in one call.

`decode.tree.best_first` is the oracle: the same nodes in the same order. Knows nothing of where candidates come from.
"""

from __future__ import annotations

import math

from torch import Tensor

from paceline.native.choice import extension
from paceline.native.extension import array

__all__ = ["grown"]


def grown(
    ids: Tensor, log_probs: Tensor, nodes: int, candidates: int, least: float
) -> tuple[list[int], list[int], list[float]]:
    """Tokens, parents and scores of the `nodes` most probable prefixes, of those with at most `candidates` ends.

    Args:
        ids, log_probs: int64 and float32 [slots, width] on the CPU, in falling order; -inf for none.
        least: none of them is less probable.
    """
    most = -math.log(least) if least > 0.0 else math.inf
    found: tuple[list[int], list[int], list[float]]
    found = extension().grow(array(ids), array(log_probs), nodes, candidates, most)
    return found
