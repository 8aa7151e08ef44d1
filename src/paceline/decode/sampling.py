"""From scores to tokens: temperature, then top-k, top-p and min-p, then argmax of score + temperature * noise.

Drafter, target and bonus token all choose here, with one greedy cut-off and one rule for ties: the lowest id. The
choice follows softmax(scores / temperature), filtered and renormalised, by the Gumbel-max trick (Maddison et al.,
arXiv:1411.0030), and is a function of the scores and the noise alone. Top-p: arXiv:1904.09751; min-p: arXiv:2407.01082.

Knows nothing of penalties (processors.py), of how noise is made (noise.py), nor of who drafted what (agree.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline import native
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import widen
from paceline.errors import PacelineError
from paceline.request import Sampling

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = [
    "GREEDY_BELOW",
    "choose",
    "heats",
    "is_greedy",
    "keys_of",
    "probabilities",
    "ranked",
    "sound",
    "survivors",
]

GREEDY_BELOW = 1e-5
"""A temperature at or under this is argmax."""

_FIRST_REACH = 64  # ids ranked at first where only top-p or min-p will say how many are needed


def is_greedy(sampling: Sampling) -> bool:
    """True where the choice is plain argmax and needs no noise."""
    return sampling.temperature <= GREEDY_BELOW


def choose(
    scores: Float[Tensor, "rows vocab"], sampling: Sampling, noise: NoiseCache, positions: Sequence[int]
) -> Int[Tensor, " rows"]:
    """The token of each row.

    Args:
        scores: logits after the processors, in any precision.
        noise: of this sequence; not read where greedy.
        positions: absolute position of the token each row draws (a `range` is fastest).

    Raises:
        PacelineError: a row holds NaN or infinity, or nothing that may be drawn.
    """
    scores = widen(scores)
    if is_greedy(sampling):
        return _greatest(scores)
    if not sampling.filtered and native.applies_to(scores):
        tokens = native.drawn(scores, sampling.temperature, noise.keys(positions))
        sound(tokens.tolist())
        return tokens
    if not sampling.filtered:
        return _greatest((sampling.temperature * noise.at(positions).to(scores.dtype)).add_(scores))
    _check(scores.amax(-1))
    values, ids = _candidates(scores, sampling)
    perturbed = values + sampling.temperature * noise.at(positions, ids).to(scores.dtype)
    return ids.masked_fill(perturbed < perturbed.amax(-1, keepdim=True), scores.shape[-1]).amin(-1)


def ranked(
    scores: Float[Tensor, "rows vocab"],
    sampling: Sampling,
    noise: NoiseCache | None,
    positions: Sequence[int],
    width: int,
    spread: float = 1.0,
) -> tuple[Int[Tensor, "rows width"], Float[Tensor, "rows width"]]:
    """The ids that `choose` would take first, second, … of each row, and how likely each is to be the target's choice.

    A model that is close to the target has close scores, and the noise is the same: so the target's choice is likely
    where score / temperature + noise is great, and softmax of that is taken for its probability.

    Args:
        noise: None ranks by the scores alone.
        width: how many; where fewer may be drawn, the last have -inf. Ties in any order.
        spread: divides what the softmax is of; the order stays.

    Returns:
        Ids and log probabilities, in falling order.

    Raises:
        PacelineError: as `choose`.
    """
    perturbed, known = widen(scores), None
    if (is_greedy(sampling) or not sampling.filtered) and native.applies_to(perturbed):
        return _ranked_at_once(perturbed, sampling, noise, positions, width, spread)
    if not is_greedy(sampling):
        if sampling.filtered:
            perturbed, known = _candidates(perturbed, sampling)
        perturbed = perturbed / sampling.temperature
        if noise is not None:
            perturbed = perturbed + noise.at(positions, known).to(perturbed.dtype)
    perturbed = perturbed / spread if spread != 1.0 else perturbed
    values, ids = perturbed.topk(min(width, perturbed.shape[-1]))
    _check(values[:, 0])
    greatest = values[:, :1]
    log_mass = (perturbed - greatest).exp_().sum(-1, keepdim=True).log_()  # logsumexp would look for the greatest again
    values = values - greatest - log_mass
    return ids if known is None else known.gather(-1, ids), values


def _ranked_at_once(
    scores: Float[Tensor, "rows vocab"],
    sampling: Sampling,
    noise: NoiseCache | None,
    positions: Sequence[int],
    width: int,
    spread: float,
) -> tuple[Int[Tensor, "rows width"], Float[Tensor, "rows width"]]:
    """`ranked` without filters, in one native call, with noise that is right to a thousandth."""
    scale, heat = heats(sampling, noise, spread)
    found = native.ranked(scores, scale, heat, keys_of(noise, positions), min(width, scores.shape[-1]))
    if found is None:
        raise _unsound()
    return found


def heats(sampling: Sampling, noise: NoiseCache | None, spread: float) -> tuple[float, float]:
    """What scores, and what noise is multiplied with, for a ranking."""
    if is_greedy(sampling):
        return 1.0 / spread, 0.0
    return 1.0 / sampling.temperature / spread, 0.0 if noise is None else 1.0 / spread


def keys_of(noise: NoiseCache | None, positions: Sequence[int]) -> list[int]:
    """What the noise of each position is made from, for a native call; 0 where there is none."""
    return [0] * len(positions) if noise is None else noise.keys(positions)


def sound(tokens: list[int]) -> list[int]:
    """Drawn tokens; natively they are -1 where the scores have no greatest.

    Raises:
        PacelineError: one of them is.
    """
    if min(tokens, default=0) < 0:
        raise _unsound()
    return tokens


def survivors(scores: Float[Tensor, "rows vocab"], sampling: Sampling) -> Bool[Tensor, "rows vocab"]:
    """Which ids may be drawn: top-k of the scores, then top-p and min-p of softmax(scores / temperature) over those.

    Top-p keeps ids while the mass before them is < top_p, so the first always stays. Ties keep the lowest ids. The
    temperature is not greedy.
    """
    if not sampling.filtered:
        return scores > -torch.inf
    values, ids = _candidates(widen(scores), sampling)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, ids, values > -torch.inf)


def probabilities(scores: Float[Tensor, "rows vocab"], sampling: Sampling) -> Float[Tensor, "rows vocab"]:
    """The law of `choose` over the noise, in the precision of the scores, at least float32; greedy: 1 at the choice."""
    scores = widen(scores)
    if is_greedy(sampling):
        return torch.zeros_like(scores).scatter_(-1, _greatest(scores).unsqueeze(-1), 1.0)
    kept = scores.masked_fill(~survivors(scores, sampling), -torch.inf)
    return ((kept - kept.amax(-1, keepdim=True)) / sampling.temperature).softmax(-1)


def _greatest(scores: Float[Tensor, "rows vocab"]) -> Int[Tensor, " rows"]:
    """`_first_argmax` of sound scores: NaN counts as greatest in both libraries, so a look at the winners is enough.

    Noise is finite, so it changes nothing about that.
    """
    tokens = _first_argmax(scores)
    _check(scores.gather(-1, tokens.unsqueeze(-1)).squeeze(-1))
    return tokens


def _first_argmax(scores: Float[Tensor, "rows vocab"]) -> Int[Tensor, " rows"]:
    """The lowest id of the greatest score of each row; both libraries document that the first maximum is taken.

    On a CPU by NumPy, which is seven times as fast on 16 rows of 8k ids (15 against 111 µs).
    """
    if scores.device.type != "cpu":
        return scores.argmax(-1)
    return torch.from_numpy(scores.numpy().argmax(-1))


def _check(greatest: Float[Tensor, " rows"]) -> None:
    """The greatest scores of all rows are numbers. Asked of Python: for a few rows isfinite and all take 50 µs."""
    if not all(map(math.isfinite, greatest.tolist())):
        raise _unsound()


def _unsound() -> PacelineError:
    return PacelineError(
        "The model's scores hold no finite maximum (NaN, infinity, or every token ruled out).",
        remedy="Check the weights; where half precision overflows, run in float32.",
    )


def _candidates(
    scores: Float[Tensor, "rows vocab"], sampling: Sampling
) -> tuple[Float[Tensor, "rows kept"], Int[Tensor, "rows kept"]]:
    """Scores and ids of the survivors in falling order; rows with fewer are filled up with -inf."""
    top, vocab = scores.amax(-1, keepdim=True), scores.shape[-1]
    most = min(sampling.top_k or vocab, vocab)
    reach = most if sampling.top_k else min(_FIRST_REACH, vocab)
    while True:
        values, ids = _ranked(scores, reach)
        within = values if sampling.top_k else scores
        log_mass = ((within - top) / sampling.temperature).logsumexp(-1, keepdim=True)
        kept = _kept_of_ranked(((values - top) / sampling.temperature - log_mass).exp(), sampling)
        if reach == most or not bool(kept[:, -1].any()):
            return values.masked_fill(~kept, -torch.inf), ids
        reach = min(8 * reach, most)


def _kept_of_ranked(law: Float[Tensor, "rows ranks"], sampling: Sampling) -> Bool[Tensor, "rows ranks"]:
    """Top-p and min-p on probabilities in falling order: a prefix of each row, never empty."""
    kept = law >= sampling.min_p * law[:, :1]
    if sampling.top_p < 1.0:
        kept[:, 1:] &= law.cumsum(-1, dtype=torch.float64)[:, :-1] < sampling.top_p
    return kept


def _ranked(
    scores: Float[Tensor, "rows vocab"], width: int
) -> tuple[Float[Tensor, "rows width"], Int[Tensor, "rows width"]]:
    """The `width` greatest scores of each row and their ids, in falling order, the lowest ids first on ties."""
    ids = _superset(scores, width)
    values, order = scores.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values[:, :width], ids.gather(-1, order)[:, :width]


def _superset(scores: Float[Tensor, "rows vocab"], width: int) -> Int[Tensor, "rows more"]:
    """Ids, ascending, that hold the `width` greatest of each row and all that tie with them.

    Sorting the vocabulary costs more than torch.topk, which does not say which of equal scores it takes: so it has to
    reach down to a lower one.
    """
    reach = 2 * width
    while reach < scores.shape[-1]:
        values, ids = scores.topk(reach)
        last = values[:, -1]
        if bool(((last < values[:, width - 1]) | (last == -torch.inf)).all()):
            return ids.sort(-1).values
        reach *= 4
    return torch.arange(scores.shape[-1], device=scores.device).expand_as(scores)
