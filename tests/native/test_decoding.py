"""DFlash gives the tokens of plain decoding in float32 too, `==`, since a row is the same to the bit in every pass."""

from __future__ import annotations

import pytest
import torch
from compiled import needs_native
from scripted import answer_all, drafter_of, plain
from tiny import tiny_spec, tiny_transformer

from paceline.decode.dflash import DFlash
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.engine.loop import Job
from paceline.models.transformer import prepare
from paceline.request import Sampling

pytestmark = needs_native

SETTINGS = [Speculation(block_size=4), Speculation(block_size=4, candidate_num=12)]


@pytest.mark.parametrize("settings", SETTINGS, ids=["chains", "trees"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_same_tokens(temperature: float, settings: Speculation) -> None:
    model = tiny_transformer(tiny_spec(windows=(None, 8)), dtype=torch.float32)
    # Even logits: a token hangs on their last bits as often as can be.
    model.head.weight.mul_(1e-3)
    drafter = drafter_of(model)
    prepare(model)
    prepare(drafter)
    sampling = Sampling(max_tokens=60, temperature=temperature)
    jobs = [Job(tuple(range(1, 2 + seed)), sampling, seed) for seed in range(6)]
    dflash = DFlash(Target(model, model.spec.vocab_size, drafter.spec.target_layer_ids), drafter, settings)
    expected = [answer.token_ids for answer in answer_all(plain(model), jobs)]
    for batch in (1, 3):
        assert [answer.token_ids for answer in answer_all(dflash, jobs, batch=batch)] == expected
