"""From a method and its parts to what decodes."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer

from paceline.decode.adaptive import Adaptive
from paceline.decode.apd import APD
from paceline.decode.denoiser import Denoiser
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.lookup import PromptLookup
from paceline.decode.methods import Parts, decoder_of, target_of
from paceline.decode.remasking import Remasking
from paceline.decode.speculation import Lookup, Speculation
from paceline.decode.suffix_index import SuffixIndex
from paceline.decode.target import Target
from paceline.errors import UnsupportedModel
from paceline.models.diffusion_spec import Diffusion


def test_the_decoder_has_what_was_asked_for() -> None:
    model = tiny_transformer(tiny_spec())
    drafter = tiny_drafter(tiny_drafter_spec(model.spec), model)
    assert decoder_of("ar", Parts(model=model, usable_tokens=60)).name == "ar"
    dflash: Any = decoder_of("dflash", Parts(model=model, partner=drafter, usable_tokens=60))
    assert (dflash.name, dflash.settings, dflash.target.taps) == ("dflash", Speculation(), (0, 1))
    assert dflash.controller.block_sizes == (4,)
    dflash = decoder_of(
        "dflash", Parts(model=model, partner=drafter, usable_tokens=60, settings=Speculation(block_size=9))
    )
    assert (dflash.settings.block_size, dflash.target, dflash.controller) == (9, target_of(model, drafter, 60), None)


def test_what_looks_up_has_its_settings_and_the_known_text() -> None:
    model, known = tiny_transformer(tiny_spec()), SuffixIndex([1, 2, 3], 8)
    drafter = tiny_drafter(tiny_drafter_spec(model.spec), model)
    found: Any = decoder_of("lookup", Parts(model=model, usable_tokens=60, settings=Lookup(), known=known))
    assert found == PromptLookup(target_of(model, None, 60), Lookup(), known)
    for size in (4, "auto"):
        settings = Speculation(lookup=4, block_size=size)  # type: ignore[arg-type]
        found = decoder_of(
            "dflash", Parts(model=model, partner=drafter, usable_tokens=60, settings=settings, known=known)
        )
        assert (found.settings.lookup, found.known) == (4, known)


def test_a_diffusion_model_is_no_target() -> None:
    model = tiny_transformer(tiny_spec("qwen2", diffusion=Diffusion(63, 1)))
    dllm, settings = Denoiser(model, 60), Remasking(steps=3)
    ends = frozenset({7, 9})
    parts = Parts(model=model, usable_tokens=60, end_token_ids=ends, settings=settings)
    assert decoder_of("diffusion", parts) == MaskedDiffusion(dllm, settings, ends)
    with pytest.raises(UnsupportedModel, match=r"diffusion language model.*autoregressive"):
        target_of(model, None, 60)


def test_apd_has_both_models_and_ends_where_the_answer_does() -> None:
    model = tiny_transformer(tiny_spec("qwen2", diffusion=Diffusion(63, 1)))
    small, settings, ends = tiny_transformer(tiny_spec(num_layers=1)), Adaptive(alpha=0.4), frozenset({7, 9})
    parts = Parts(model=model, partner=small, usable_tokens=60, end_token_ids=ends, settings=settings)
    assert decoder_of("apd", parts) == APD(Denoiser(model, 60), Target(small, 60), settings, ends)
