"""A setting says what the flags of `paceline generate` say."""

from __future__ import annotations

import pytest

from paceline.bench.configuration import Configuration, read_configuration
from paceline.decode.adaptive import Adaptive
from paceline.decode.remasking import Remasking
from paceline.decode.speculation import Speculation
from paceline.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "configuration"),
    [
        ("ar", Configuration("ar", "ar")),
        ("verifier", Configuration("verifier", "verifier")),
        ("dflash", Configuration("dflash", "dflash", Speculation())),
        ("dflash,block_size=8", Configuration("dflash,block_size=8", "dflash", Speculation(block_size=8))),
        ("diffusion", Configuration("diffusion", "diffusion", Remasking())),
        (
            "diffusion, strategy=left_to_right, tokens_per_step=2",
            Configuration(
                "diffusion, strategy=left_to_right, tokens_per_step=2",
                "diffusion",
                Remasking("left_to_right", tokens_per_step=2),
            ),
        ),
        (
            "diffusion,end_last=true",
            Configuration("diffusion,end_last=true", "diffusion", Remasking(end_last=True)),
        ),
        ("apd", Configuration("apd", "apd", Adaptive())),
        (
            "apd,alpha=0.7,kv_window=all,window_size=9,schedule=fixed",
            Configuration(
                "apd,alpha=0.7,kv_window=all,window_size=9,schedule=fixed",
                "apd",
                Adaptive(0.7, 0.5, "fixed", 9, None),
            ),
        ),
    ],
)
def test_words_are_read(text: str, configuration: Configuration) -> None:
    assert read_configuration(text) == configuration


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "setting '': There is no method ''. Known: ar, dflash, verifier, diffusion, apd."),
        ("adp,alpha=1", "There is no method 'adp'"),
        ("apd,alpha", "'alpha' is no setting. Write name=value"),
        ("apd,alpha=", "'alpha=' is no setting"),
        ("apd,", "'' is no setting"),
        ("apd,alpha=1,alpha=1", "alpha is set twice"),
        ("apd,window=8,window_size=9", "window is 8 and window_size is 9"),
        ("apd,alpah=1", "alpah is 1: no such setting. Did you mean alpha?"),
        ("apd,alpha=2", "setting 'apd,alpha=2': alpha is 2. It must be a number from 0 to 1."),
        ("apd,alpha=all", "alpha is 'all'"),
        ("apd,alpha=nan", "alpha is nan"),
        ("apd,window=0", "window is 0. It must be an integer of at least 1, or all (None in Python)."),
        ("apd,threshold=0.9", "threshold is set, and the method is 'apd'"),
        ("ar,alpha=0.9", "alpha is set, and the method is 'ar'"),
        ("verifier,alpha=0.9", "alpha is set, and the method is 'verifier'"),
        ("diffusion,block_size=4", "block_size is set, and the method is 'diffusion'"),
        ("diffusion,threshold=0.9,steps=4", "give at most one of"),
        ("dflash,block_size=65", "block_size is 65. It must be an integer from"),
        ("dflash,block_size=all", "block_size is 'all'"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as told:
        read_configuration(text)
    assert message in str(told.value)
    assert str(told.value).startswith(f"setting {text!r}: ")
    assert told.value.param == "settings"
