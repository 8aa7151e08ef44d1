"""Inflated models compute what the plain ones do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import run_flat, tiny_cache, tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer

from paceline.completion import Round
from paceline.decode.dflash import DFlash
from paceline.decode.speculation import Speculation
from paceline.decode.target import Target
from paceline.errors import UnsupportedModel
from paceline.models.drafter_spec import DFlash2
from paceline.models.inflate import inflate_drafter, inflate_transformer
from paceline.request import Sampling

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "changes", [{}, {"family": "qwen2", "windows": (3, None)}, {"family": "llama", "tied_head": True, "mlp_bias": True}]
)
def test_logits_are_the_same(factor: int, changes: dict[str, Any]) -> None:
    model = tiny_transformer(tiny_spec(**changes))
    wide = inflate_transformer(model, factor)
    assert wide.spec.hidden_size == factor * 32
    sizes = [sum(p.numel() for p in layers.parameters() if p.dim() == 2) for layers in (model.layers, wide.layers)]
    assert sizes[1] == factor**2 * sizes[0]
    hidden = [run_flat(m, [TOKENS], [tiny_cache(m)], (0, 1)) for m in (model, wide)]
    torch.testing.assert_close(wide.head(hidden[1].hidden), model.head(hidden[0].hidden), atol=1e-10, rtol=0)
    repeated = torch.cat([tap.repeat(1, factor) for tap in hidden[0].features.chunk(2, 1)], 1)  # type: ignore[union-attr]
    torch.testing.assert_close(hidden[1].features, repeated, atol=1e-10, rtol=0)


@pytest.mark.parametrize("factor", [2, 3])
def test_float32_stays_within_1e_4(factor: int) -> None:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    wide = inflate_transformer(model, factor)
    logits = [m.head(run_flat(m, [TOKENS], [tiny_cache(m)]).hidden) for m in (model, wide)]
    torch.testing.assert_close(logits[1], logits[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("taps", [(0, 1), (1,)])
def test_every_round_is_the_same(factor: int, taps: tuple[int, ...]) -> None:
    """Proposed, read and committed tokens of a pair, greedy and sampled."""
    model = tiny_transformer(tiny_spec())
    drafter = tiny_drafter(tiny_drafter_spec(model.spec, target_layer_ids=taps), model)
    wide = inflate_transformer(model, factor)

    def rounds(decoder: DFlash, sampling: Sampling) -> list[tuple[object, ...]]:
        sequence = decoder.open(TOKENS, sampling, 5)
        decoder.prefill([sequence])
        done: list[Round] = [decoder.step([sequence])[0] for _ in range(12)]
        return [(round.proposed, round.reference, round.committed) for round in done]

    for sampling in (Sampling(max_tokens=90), Sampling(max_tokens=90, temperature=0.8)):
        settings = Speculation(block_size=4)
        plain = rounds(DFlash(Target(model, 64, taps), drafter, settings), sampling)
        decoder = DFlash(Target(wide, 64, taps), inflate_drafter(drafter, wide, factor), settings)
        assert rounds(decoder, sampling) == plain


def test_a_dflash_2_drafter_is_refused() -> None:
    target = tiny_transformer(tiny_spec())
    drafter = tiny_drafter(tiny_drafter_spec(target.spec, v2=DFlash2(2, 8, 4, 4)), target)
    with pytest.raises(UnsupportedModel, match="DFlash 2"):
        inflate_drafter(drafter, inflate_transformer(target, 2), 2)
