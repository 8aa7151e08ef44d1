"""Exact laws from outside (tests/data/coupling-law.json) against the noise and the filters.

How often a draft made with the target's own noise agrees is known in closed form (Gumbel coupling, arXiv:2408.07978).
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.decode.noise import NoiseCache
from paceline.decode.sampling import choose, probabilities
from paceline.request import Sampling

LAW = json.loads((Path(__file__).parents[1] / "data" / "coupling-law.json").read_text())
SIZE = LAW["vocab"]
DRAWS = 150_000


@pytest.mark.parametrize("pair", LAW["pairs"], ids=lambda pair: pair["name"])
def test_shared_noise_agrees_as_often_as_it_should(pair: dict[str, Any]) -> None:
    """150,000 positions of one seed, 5 sigma: false alarm 6e-7 for each number (one pair: 33 numbers)."""
    noise, sampling = NoiseCache(17, SIZE), Sampling(temperature=1.0)
    target, draft = (
        choose(torch.tensor(pair[law]).log().expand(DRAWS, -1), sampling, noise, range(DRAWS)) for law in "pq"
    )
    exact = pair["gumbel_coupling_exact"]
    share = (target == draft).double().mean().item()
    assert abs(share - exact) <= 5 * math.sqrt(exact * (1 - exact) / DRAWS)
    for law, tokens in (("p", target), ("q", draft)):
        mean = torch.tensor(pair[law], dtype=torch.float64)
        found = tokens.bincount(minlength=SIZE) / DRAWS
        assert ((found - mean).abs() <= 5 * (mean * (1 - mean) / DRAWS).sqrt() + 5 / DRAWS).all()


@pytest.mark.parametrize(
    "case", LAW["sampling_probs"]["cases"], ids=lambda c: f"{c['temperature']}-{c['top_p']}-{c['top_k']}"
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_filtered_probabilities(case: dict[str, Any], dtype: torch.dtype) -> None:
    logits = torch.tensor(LAW["sampling_probs"]["logits"], dtype=dtype)
    sampling = Sampling(temperature=case["temperature"], top_p=case["top_p"], top_k=case["top_k"])
    expected = torch.tensor(case["probs"], dtype=dtype)
    assert (probabilities(logits, sampling) - expected).abs().max() < 1e-6
