"""The diffusion model that masked diffusion and APD share: what it refuses, and which row predicts which mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import tiny_spec, tiny_transformer
from torch import Tensor

from paceline.decode.denoiser import Denoiser
from paceline.errors import BadRequest, ContextOverflow, UnsupportedModel
from paceline.models.diffusion_spec import Diffusion as DiffusionSpec
from paceline.models.transformer import Output
from paceline.request import Sampling

MASK = 63
PROMPT = (5, 11, 2)


def denoiser(shift: int = 1, usable: int = 64, **changes: Any) -> Denoiser:
    spec = tiny_spec("qwen2", **{"diffusion": DiffusionSpec(MASK, shift), "context_tokens": 20, **changes})
    return Denoiser(tiny_transformer(spec), usable)


def test_models_that_cannot_be_decoded() -> None:
    with pytest.raises(UnsupportedModel, match="no mask token"):
        denoiser(diffusion=None)
    with pytest.raises(UnsupportedModel, match="sliding_window is 8"):
        denoiser(windows=(None, 8))


@pytest.mark.parametrize(
    ("prompt", "message"), [((), "empty"), ((3, 64), "token id 64"), ((3, MASK), "mask token, id 63")]
)
def test_prompts_that_cannot_be_decoded(prompt: tuple[int, ...], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        denoiser().check(prompt, Sampling())


def test_holes_that_cannot_be_filled() -> None:
    hole = Sampling(max_tokens=5)
    with pytest.raises(ContextOverflow, match="Prefix, hole and suffix have 21 tokens, the model's context is 20"):
        denoiser().check(PROMPT, hole, (4,) * 13)
    with pytest.raises(BadRequest, match="Nothing stands before the hole"):
        denoiser().check((), hole, (4,))
    denoiser().check(PROMPT, hole, (4,) * 12)
    denoiser(shift=0).check((), hole, (4,))


def test_an_answer_is_masks_between_what_is_given() -> None:
    canvas = denoiser().open(PROMPT, Sampling(max_tokens=4), 0, (9, 8))
    assert canvas.tokens == [*PROMPT, MASK, MASK, MASK, MASK, 9, 8]
    assert (canvas.hole, canvas.masked) == (range(3, 7), [3, 4, 5, 6])
    assert denoiser().open(PROMPT, Sampling(max_tokens=400), 0).hole == range(3, 20)


def test_the_mask_and_the_padding_are_banned() -> None:
    assert denoiser(usable=60).banned().tolist() == [60, 61, 62, 63, MASK]
    canvas = denoiser(usable=60).open(PROMPT, Sampling(max_tokens=4), 0)
    with torch.inference_mode():
        (scores,) = denoiser(usable=60).scores([canvas], [range(7)], [[3, 6]])
    assert scores.shape == (2, 64)
    assert scores[:, 60:].eq(-torch.inf).all()
    assert scores[:, :60].isfinite().all()


@pytest.mark.parametrize(("family", "shift", "filled"), [("dream", 1, 7), ("llada", 0, 0)])
@pytest.mark.parametrize("rows", [range(4), [1, 2, 3]], ids=str)
def test_apd_03_the_row_that_predicts_a_mask_is_the_familys(family: str, shift: int, filled: int, rows: Any) -> None:
    """Row i puts all weight on x[i] + 1 where x[i] is a token, and on 0 where it is a mask; x is 5, 6, mask, mask.

    Dream fills position 2 from row 1, LLaDA from row 2: in a pass over everything, and in one over a part.
    """
    it = denoiser(shift)
    model: Any = it.model
    model.forward = lambda tokens, positions, attend: Output(told(tokens), None)
    model.head = torch.nn.Identity()
    canvas = it.open((5, 6), Sampling(max_tokens=2), 0)
    (scores,) = it.scores([canvas], [rows], [[2, 3]])
    assert it.logit_shift == shift
    assert scores.argmax(-1).tolist() == [filled, 0]


def told(tokens: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(torch.where(tokens == MASK, -1, tokens) + 1, 64).double()


def test_rows_in_two_places_see_each_other_and_what_the_cache_holds() -> None:
    it = denoiser()
    canvas = it.open(PROMPT, Sampling(max_tokens=4), 0, (9, 8))
    with torch.inference_mode():
        (whole,) = it.read([canvas], [[0, 1, 2, 3, 4, 7, 8]])
        canvas.cache.advance(3)
        (part,) = it.read([canvas], [[3, 4, 7, 8]])
    torch.testing.assert_close(part, whole[3:], rtol=0, atol=1e-12)
