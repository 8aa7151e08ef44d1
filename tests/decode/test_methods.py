"""Which method decodes a model, and what is refused beside it."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer

from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.methods import Asked, choose_method, decoder_of, target_of
from paceline.decode.remasking import Remasking
from paceline.errors import ConfigError, UnsupportedModel
from paceline.models.diffusion_spec import Diffusion


@pytest.mark.parametrize(
    ("asked", "diffuses", "method"),
    [
        (Asked(), False, "ar"),
        (Asked(drafter="d"), False, "dflash"),
        (Asked("ar", drafter="d"), False, "ar"),
        (Asked("dflash", drafter="d", block_size=4), False, "dflash"),
        (Asked(), True, "diffusion"),
        (Asked("diffusion", remasking=Remasking(steps=4)), True, "diffusion"),
    ],
)
def test_auto_goes_by_the_model_and_then_by_the_drafter(asked: Asked, diffuses: bool, method: str) -> None:
    assert choose_method(asked, diffuses) == method


@pytest.mark.parametrize(
    ("asked", "diffuses", "message"),
    [
        ({"method": "magic"}, False, "method is 'magic'. There are: auto, ar, dflash, diffusion."),
        ({"method": "diffusion"}, False, "method is 'diffusion', and the model is autoregressive"),
        ({"remasking": Remasking(threshold=0.9, block_length=8)}, False, "threshold and block_length is set"),
        ({"remasking": Remasking()}, False, "remasking is set for masked diffusion, and the model is autoregressive"),
        ({"method": "dflash"}, False, "there is no drafter"),
        ({"method": "ar"}, True, "method is 'ar', and the model is a diffusion language model"),
        ({"method": "dflash", "drafter": "d"}, True, "method is 'dflash', and the model is a diffusion"),
        ({"drafter": "some/folder"}, True, "drafter is 'some/folder', and a diffusion language model needs none"),
        ({"block_size": 8}, True, "block_size is 8, which is of DFlash"),
        ({"remasking": {"steps": 3}}, True, "remasking is {'steps': 3}. Use Remasking(...)."),
        ({"verifier": "v"}, True, "verifier is set"),
        ({"verifier": "v"}, False, "verifier is set"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(asked: dict[str, Any], diffuses: bool, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_method(Asked(**asked), diffuses)
    assert message in str(caught.value)
    assert caught.value.remedy


def test_the_decoder_has_what_was_asked_for() -> None:
    model = tiny_transformer(tiny_spec())
    drafter = tiny_drafter(tiny_drafter_spec(model.spec), model)
    assert decoder_of("ar", model, None, 60, Asked()).name == "ar"
    dflash: Any = decoder_of("dflash", model, drafter, 60, Asked())
    assert (dflash.name, dflash.block_size, dflash.target.taps) == ("dflash", 4, (0, 1))
    dflash = decoder_of("dflash", model, drafter, 60, Asked(block_size=9))
    assert (dflash.block_size, dflash.target) == (9, target_of(model, drafter, 60))


def test_a_diffusion_model_is_no_target() -> None:
    model = tiny_transformer(tiny_spec("qwen2", diffusion=Diffusion(63, 1)))
    assert decoder_of("diffusion", model, None, 60, Asked()) == MaskedDiffusion(model, 60, Remasking())
    settings = Remasking(steps=3)
    assert decoder_of("diffusion", model, None, 60, Asked(remasking=settings)) == MaskedDiffusion(model, 60, settings)
    with pytest.raises(UnsupportedModel, match=r"diffusion language model.*autoregressive"):
        target_of(model, None, 60)
