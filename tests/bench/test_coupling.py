"""The laws of sampling: against their definitions, against figures from outside, and against what decoding does."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import Tensor

from paceline.bench.coupling import Coupling, _judged, agreement, overlap, recompute
from paceline.completion import Round
from paceline.decode.dflash import DFlash
from paceline.decode.noise import derive_seed
from paceline.decode.sampling import choose
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.decode.tree import Proposal, chain
from paceline.engine.loop import Answer, Job, run
from paceline.request import Sampling

PAIRS = json.loads((Path(__file__).parents[1] / "data" / "coupling-law.json").read_text())["pairs"]
PROMPT = (3, 14, 15, 9, 26)
SAMPLINGS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1.0},
    "warm": {"temperature": 3.0},
    "filters": {"temperature": 2.0, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    "penalties": {"temperature": 2.5, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "logit_bias": {5: 2.0}},
}


def naive_agreement(p: list[float], q: list[float]) -> float:
    """sum_v 1 / sum_w max(p_w / p_v, q_w / q_v), as it is written."""
    both = [v for v in range(len(p)) if p[v] > 0 and q[v] > 0]
    return math.fsum(1 / math.fsum(max(pw / p[v], qw / q[v]) for pw, qw in zip(p, q, strict=True)) for v in both)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["name"])
def test_the_laws_from_outside(pair: dict[str, Any]) -> None:
    p, q = (torch.tensor([pair[law]], dtype=torch.float64) for law in "pq")
    exact, share = float(agreement(p, q)), float(overlap(p, q))
    assert exact == pytest.approx(pair["gumbel_coupling_exact"], abs=1e-9)
    assert share == pytest.approx(pair["one_minus_tv"], abs=1e-9)
    assert share == pytest.approx(pair["leviathan"]["accept_prob"], abs=1e-9)
    assert pair["gumbel_lower_bound"] - 1e-12 <= exact <= share + 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_running_sums_give_the_double_sum(seed: int) -> None:
    """Sharp and flat rows, ties, and ids that one or both never draw."""
    random = torch.Generator().manual_seed(seed)
    scores = 6.0 * torch.randn(2, 6, 40, generator=random, dtype=torch.float64).mul(torch.arange(1.0, 7.0)[:, None])
    scores[0, :, :5] = scores[1, :, 3:8] = -torch.inf
    scores[:, :, 20:24] = 0.0
    p, q = scores.softmax(-1)
    expected = [naive_agreement(*pair) for pair in zip(p.tolist(), q.tolist(), strict=True)]
    assert agreement(p, q).tolist() == pytest.approx(expected, abs=1e-12)
    assert agreement(p, p).tolist() == pytest.approx([1.0] * 6, abs=1e-12)


def test_no_id_in_common() -> None:
    p, q = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.5, 0.5]])
    assert agreement(p, q).tolist() == overlap(p, q).tolist() == [0.0]


def decoder(size: int = 6) -> DFlash:
    """A random drafter, and a target flat enough that they agree now and then."""
    spec = tiny_spec(num_layers=3)
    model = tiny_transformer(spec, seed=4)
    with torch.no_grad():
        model.head.weight.mul_(0.4)
    drafter = tiny_drafter_spec(spec)
    target, settings = Target(model, 60, drafter.target_layer_ids), Speculation(block_size=size)
    return DFlash(target, tiny_drafter(drafter, model), settings)


def answers(method: DFlash, sampling: Sampling, count: int, ends: Sequence[int] = ()) -> list[Answer]:
    jobs = [Job(PROMPT, sampling, derive_seed(11, index)) for index in range(count)]
    return [a for a, chunk in run(method, jobs, None, frozenset(ends), count) if chunk.finish_reason is not None]


def coupling(method: DFlash, sampling: Sampling, found: Answer) -> Coupling:
    return recompute(method, PROMPT, sampling, found.job.seed, found.token_ids, found.rounds)


@pytest.mark.parametrize("settings", SAMPLINGS.values(), ids=SAMPLINGS.keys())
def test_decoding_obeys_the_law(settings: dict[str, Any]) -> None:
    """12 answers, about 1000 checked drafts; z within 5: a false alarm in 2 million, and the seed is fixed."""
    method, sampling = decoder(), Sampling(max_tokens=100, **settings)
    total = sum((coupling(method, sampling, found) for found in answers(method, sampling, 12, (7,))), Coupling())
    assert total.checked > 200
    assert abs(total.z) < 5
    assert 0.0 < total.expected <= total.overlap


def test_shared_noise_is_what_the_law_is_about() -> None:
    """A drafter that draws with the noise of other positions is off the law at once."""

    class Shifted(DFlash):
        __slots__ = ()

        def _propose(self, sequences: Any, plans: Any) -> list[Proposal]:
            found = []
            for draft, sequence in zip(DFlash._propose(self, sequences, plans), sequences, strict=True):
                first, count = len(sequence.tokens) + 1000, len(draft.tokens)
                places = range(first, first + count)
                found.append(chain(choose(torch.zeros(count, 64), sequence.sampling, sequence.noise, places).tolist()))
            return found

    plain = decoder()
    method, sampling = Shifted(plain.target, plain.drafter, plain.settings), Sampling(max_tokens=100, temperature=3.0)
    total = sum((coupling(plain, sampling, found) for found in answers(method, sampling, 12)), Coupling())
    assert total.z < -5


def test_a_round_is_judged_slot_by_slot() -> None:
    """Two slots checked, one agreed; rejection sampling goes on along the answer, where ours stopped."""
    p = torch.tensor([[0.5, 0.5], [0.8, 0.2], [0.4, 0.6]], dtype=torch.float64)
    q = torch.tensor([[0.5, 0.5], [0.2, 0.8], [0.3, 0.7]], dtype=torch.float64)
    found = _judged(Round((0, 1, 1), (0, 0, 1, 1), (0, 0), 1, 0.0, 0.0), (0, 0, 1), p, q)
    assert (found.rounds, found.checked, found.agreed) == (1, 2, 1)
    second = naive_agreement([0.8, 0.2], [0.2, 0.8])
    assert found.expected == pytest.approx(1.0 + second)
    assert found.variance == pytest.approx(second * (1.0 - second))
    assert found.overlap == pytest.approx(1.0 + 0.4)
    assert found.rejection == pytest.approx(1.0 + 0.25 + 0.25)


def rejection_round(p: Tensor, q: Tensor, random: torch.Generator) -> int:
    """How many drafts of one round are accepted by the book: arXiv:2211.17192, algorithm 1, for laws without memory."""
    drafts = torch.multinomial(q, 1, generator=random)
    kept = torch.rand(len(q), 1, generator=random, dtype=torch.float64) * q.gather(-1, drafts) < p.gather(-1, drafts)
    return int(kept.int().cumprod(0).sum())


def test_the_estimate_of_rejection_sampling_is_right() -> None:
    """20,000 rounds each, 5 sigma of a figure within [0, 4]: a false alarm in a million, and the seed is fixed."""
    random = torch.Generator().manual_seed(3)
    p, q = torch.randn(2, 4, 5, generator=random, dtype=torch.float64).mul(0.7).softmax(-1)
    times = 20_000
    direct = torch.tensor([float(rejection_round(p, q, random)) for _ in range(times)])
    paths = torch.stack([torch.multinomial(row, times, True, generator=random) for row in p], 1).tolist()
    nothing = Round((0,) * 4, (0,) * 5, (0,), 0, 0.0, 0.0)
    estimates = torch.tensor([_judged(nothing, path, p, q).rejection for path in paths])
    error = math.sqrt(float(direct.var() + estimates.var()) / times)
    assert abs(float(direct.mean() - estimates.mean())) < 5 * error


def test_figures_are_by_round() -> None:
    found = Coupling(4, 10, 6, 5.0, 4.0, 6.5, 8.0) + Coupling()
    assert found.figures() == {
        "accepted_per_round": 1.5,
        "expected_per_round": 1.25,
        "z": 0.5,
        "rejection_per_round": 2.0,
        "share_of_rejection": 0.75,
        "checked": 10,
        "accepted": 6,
        "rejection_on_checked": 6.5,
    }
    assert Coupling().figures() is None
