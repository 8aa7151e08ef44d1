"""Candidates as a tree sees them: independent slots, and slots behind each other."""

from __future__ import annotations

import pytest
import torch

from paceline.decode.candidates import Candidates, Evidence, behind_each_other, independent, joined
from paceline.decode.tree import Ranked
from paceline.models.drafter_spec import DFlash2
from paceline.models.selector import CandidateSelector
from paceline.models.transformer import initialize


def found(seed: int = 0) -> Candidates:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(20, generator=generator)[:4] for _ in range(3)])
    scores = torch.randn(3, 4, generator=generator, dtype=torch.float64).sort(-1, descending=True).values
    noise = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    hidden = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    return Candidates(ids, scores.log_softmax(-1), Evidence(scores, noise, hidden))


def selector() -> CandidateSelector:
    torch.manual_seed(1)
    model = CandidateSelector(20, 6, DFlash2(2, 8, 5, 4)).double()
    initialize(model)
    torch.nn.init.normal_(model.successor_codebook)
    return model.requires_grad_(False)


def test_independent_slots_do_not_look_back() -> None:
    it = found()
    it.log_probs[1, 2:] = -torch.inf
    expand = independent(it)
    assert expand(()).tokens == it.ids[0].tolist()
    assert expand((1,)) == expand((2,)) == Ranked(it.ids[1, :2].tolist(), it.log_probs[1, :2].tolist())
    assert expand((1, 2, 3)) == Ranked((), ())


@pytest.mark.parametrize("heat", [1.0, 0.5])
@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_a_slot_is_ranked_behind_each_token_before_it(heat: float, spread: float) -> None:
    """Against the pair term of one token at a time."""
    it, pairs = found(), selector()
    it.log_probs[2, 3] = -torch.inf
    assert it.evidence is not None
    scores, noise, hidden = it.evidence
    expand = behind_each_other(it, pairs, 7, heat, spread)
    paths = [(), *((a,) for a in it.ids[0].tolist()), *((0, b) for b in it.ids[1].tolist())]
    for path in paths:
        slot = len(path)
        before = torch.tensor([path[-1] if path else 7])
        pair = pairs.pair_scores(hidden[slot][None], before[None], it.ids[slot][None])[0, 0]
        law = (((scores[slot] + pair) / heat + noise[slot]) / spread).tolist()
        allowed = [place for place in range(4) if it.log_probs[slot, place] > -torch.inf]
        total = torch.tensor([law[place] for place in allowed]).double().logsumexp(0)
        expected = sorted(((law[place] - float(total), int(it.ids[slot, place])) for place in allowed), reverse=True)
        assert list(expand(path).tokens) == [token for _, token in expected]
        assert list(expand(path).scores) == pytest.approx([score for score, _ in expected], abs=1e-6)
    assert expand((1, 2, 3)) == Ranked((), ())


@pytest.mark.parametrize("known", [False, True])
def test_slots_that_were_taken_apart_are_joined_again(known: bool) -> None:
    it = found() if known else found()._replace(evidence=None)
    again = joined([it.at(slot) for slot in range(3)])
    assert torch.equal(again.ids, it.ids)
    assert torch.equal(again.log_probs, it.log_probs)
    assert (again.evidence is not None) == known
    if again.evidence is not None and it.evidence is not None:
        assert all(map(torch.equal, again.evidence, it.evidence))
