"""Profiles: what stands in them can be used, and is what the article says."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import pytest

from paceline.cli.options import Decoding
from paceline.decode.profiles import PROFILES, Profile, profile_of
from paceline.decode.settings import settings_of
from paceline.decode.speculation import Speculation
from paceline.errors import ConfigError
from paceline.given import checked
from paceline.settings import fields_of, section_fields_of


@pytest.mark.parametrize(
    ("name", "precision", "batch", "block_size", "steps"), [("edge", "half", 1, 8, 4), ("cloud", "mixed", 8, 16, 6)]
)
def test_the_figures_of_the_article(name: Any, precision: str, batch: int, block_size: int, steps: int) -> None:
    found = profile_of(name)
    assert (found["precision"], found["max_batch"]) == (precision, batch)
    assert settings_of("dflash", {}, found) == Speculation(block_size=block_size, diffusion_steps=steps)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_a_file_of_settings(name: str) -> None:
    allowed = [*fields_of(Decoding), *section_fields_of(Decoding)]
    assert len(checked(PROFILES[name], allowed)) == 4
    assert {"precision", "max_batch"} <= {field.name for field in fields(Decoding)}


def test_every_profile_has_a_name() -> None:
    assert set(PROFILES) == set(get_args(Profile))
    assert profile_of(None) == {}


@pytest.mark.parametrize("name", ["", "phone", 3, ["edge"]])
def test_any_other_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"profile is .*There are: edge, cloud\.") as caught:
        profile_of(name)
    assert caught.value.param == "profile"
