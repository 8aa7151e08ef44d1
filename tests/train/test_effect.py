"""Settings of training that can have no effect are refused where a user asks for them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.train import effect
from paceline.train.diffusion_options import DllmConfig, JointConfig, SamplesConfig
from paceline.train.effect import check_training
from paceline.train.options import DrafterConfig, FitConfig, Objective, ResponsesConfig, VersionConfig

FIT = FitConfig(1)
DRAFTER = DrafterConfig(FIT)


@pytest.mark.parametrize(
    ("config", "asked", "message"),
    [
        (
            DrafterConfig(FIT, objective=Objective(weighting="pace")),
            "gamma",
            "gamma is 7.0, and weighting is 'pace': it has no effect. Set weighting to decay, or leave gamma out.",
        ),
        (DRAFTER, "teacher_top_k", "teacher_top_k is 16, and distill_share is 0.0: it has no effect."),
        (DRAFTER, "teacher_steps", "teacher_steps is 4, and step_distill_share is 0.0: it has no effect."),
        (DRAFTER, "selector_rank", "selector_rank is 64, and drafter_version is 1: it has no effect. Set drafter_ver"),
        (ResponsesConfig(sampled_share=0), "temperatures", "temperatures is '(0.5, 1.0)', and sampled_share is 0"),
        (SamplesConfig(ResponsesConfig(sampled_share=0)), "temperatures", "temperatures is '(0.5, 1.0)', and sampled"),
        (
            JointConfig(DllmConfig(Path(), FIT, run_share=1, diffusion_steps=4)),
            "diffusion_steps",
            "diffusion_steps is 4, and run_share is 1: it has no effect. Lower run_share, or leave diffusion_steps out",
        ),
    ],
)
def test_what_can_have_no_effect_is_refused_if_it_was_asked_for(config: Any, asked: str, message: str) -> None:
    check_training([], config)
    with pytest.raises(ConfigError) as caught:
        check_training(["steps", asked], FIT, config)
    assert str(caught.value).startswith(message)
    assert caught.value.param == asked


def test_what_has_an_effect_is_taken() -> None:
    objective = Objective(distill_share=0.5, step_distill_share=0.5)
    version = VersionConfig(drafter_version=2)
    names = [
        field.name for config in (Objective, VersionConfig, ResponsesConfig, DllmConfig) for field in fields(config)
    ]
    check_training(names, DrafterConfig(FIT, objective=objective, version=version), ResponsesConfig())
    check_training(names, DllmConfig(Path(), FIT))


def test_rules_name_settings_that_exist() -> None:
    for config, needs in effect._NEEDS.items():
        own = {field.name for field in fields(config)}
        assert all({*need.settings, *need.others} <= own for need in needs)
