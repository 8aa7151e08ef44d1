"""One word for one thing: the settings of all methods together, and those of the one that decodes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest

from paceline.decode.adaptive import Adaptive
from paceline.decode.remasking import Remasking
from paceline.decode.settings import EVERY_METHOD, MethodSettings, settings_of
from paceline.decode.speculation import Lookup, Speculation
from paceline.errors import ConfigError


def test_what_is_left_out_has_the_methods_own_default() -> None:
    assert settings_of("apd", {}) == Adaptive(alpha=0.5, schedule="fixed", window=32, kv_window=16)
    assert settings_of("diffusion", {}) == Remasking(window=None, kv_window=None)
    assert settings_of("dflash", {}) == Speculation(block_size="auto", diffusion_steps=1, overlap=0)
    assert settings_of("lookup", {}) == Lookup(max_nodes=32, prompt_lookup_num_tokens=16)
    assert settings_of("ar", {}) is None


def test_none_is_a_value() -> None:
    assert settings_of("apd", {"window": None, "kv_window": None}) == Adaptive(window=None, kv_window=None)


def test_the_articles_word_for_the_window() -> None:
    assert settings_of("apd", {"window_size": 8}) == Adaptive(window=8)
    with pytest.raises(ConfigError, match="window_size is 8 and window is 9"):
        settings_of("apd", {"window_size": 8, "window": 9})


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("diffusion", {"alpha": 0.7}, "alpha is set, and the method is 'diffusion': it is a setting of apd."),
        ("apd", {"threshold": 0.7}, "threshold is set, and the method is 'apd': it is a setting of diffusion."),
        ("apd", {"step_schedule": "even"}, "step_schedule is set, and the method is 'apd'"),
        ("diffusion", {"schedule": "fixed"}, "schedule is set, and the method is 'diffusion'"),
        ("dflash", {"window_size": 8}, "window is set, and the method is 'dflash': it is a setting of apd and diff"),
        ("ar", {"steps": None}, "steps is set, and the method is 'ar': it is a setting of diffusion."),
        ("apd", {"alpa": 0.7}, "alpa is 0.7: no such setting. Did you mean alpha?"),
        ("dflash", {"prompt_lookup_num_tokens": 8}, "prompt_lookup_num_tokens is set, and the method is 'dflash'"),
        ("lookup", {"lookup": 8}, "lookup is set, and the method is 'lookup': it is a setting of dflash."),
        ("lookup", {"block_size": 8}, "block_size is set, and the method is 'lookup': it is a setting of dflash."),
        ("ar", {"lookup_file": "x"}, "it is a setting of dflash and lookup."),
        ("apd", {"window": 0}, "window is 0. It must be an integer of at least 1, or all (None in Python)."),
        ("apd", {"kv_window": 0}, "kv_window is 0."),
        ("apd", {"window": "all"}, "window is 'all'."),
        ("apd", {"alpha": None}, "alpha is None. It must be a number from 0 to 1."),
        ("diffusion", {"window": 4}, "strategy must be left_to_right"),
    ],
)
def test_what_cannot_be_is_refused(method: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(method, given)
    assert message in str(caught.value)
    assert caught.value.param


BOTH = {
    "dflash_params": {"block_size": 12, "overlap": 3, "temperature": {"initial": 1.1, "final": 0.4}},
    "apd_params": {"alpha": 0.6, "window_size": 8, "kv_window": "all"},
}


def test_only_the_section_of_the_method_counts() -> None:
    drafts = Speculation(block_size=12, overlap=3, draft_temperature="adaptive")
    assert settings_of("dflash", BOTH) == drafts
    own = Adaptive(alpha=0.6, window=8, kv_window=None)
    assert settings_of("apd", BOTH) == own
    assert settings_of("diffusion", BOTH) == Remasking()
    assert settings_of("ar", BOTH) is None
    assert settings_of("apd", {**BOTH, "tau": 0.3}) == replace(own, tau=0.3, schedule="adaptive")
    named = {"dflash_params.block_size": 12, "dflash_params": {"overlap": 3, "temperature.final": 0.4}}
    assert settings_of("dflash", named) == drafts


@pytest.mark.parametrize(
    ("given", "schedule"),
    [
        ({}, "off"),
        ({"initial_temperature": 1.2}, "adaptive"),
        ({"final_temperature": 0.3}, "adaptive"),
        ({"dflash_params": {"temperature": {"final": 0.3}}}, "adaptive"),
        ({"dflash_params": {"temperature": {"final": 0.3}, "draft_temperature": "fixed"}}, "fixed"),
        ({"dflash_params": {"temperature": {"final": 0.3}}, "draft_temperature": "off"}, "off"),
    ],
)
def test_temperatures_mean_a_schedule(given: dict[str, Any], schedule: str) -> None:
    found = settings_of("dflash", given)
    assert isinstance(found, Speculation)
    assert found.draft_temperature == schedule


def test_a_profile_gives_way_to_all_that_is_given() -> None:
    below = {"dflash_params": {"block_size": 8, "diffusion_steps": 4}, "precision": "half"}
    assert settings_of("dflash", {}, below) == Speculation(block_size=8, diffusion_steps=4)
    given = {"block_size": 12, "dflash_params": {"diffusion_steps": 2}}
    assert settings_of("dflash", given, below) == Speculation(block_size=12, diffusion_steps=2)
    for auto in ({"block_size": "auto"}, {"dflash_params": {"block_size": "auto"}}):
        assert settings_of("dflash", auto, below) == Speculation(diffusion_steps=4)
    assert settings_of("apd", {}, below) == Adaptive()
    assert settings_of("ar", {}, below) is None


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("dflash", {"dflash_params": {"blok_size": 4}}, "dflash_params.blok_size is 4: no such setting. Did you mean"),
        ("apd", {"dflash_params": {"blok_size": 4}}, "dflash_params.blok_size is 4: no such setting."),
        ("dflash", {"dflash_params": {"alpha": 0.5}}, "dflash_params.alpha is 0.5: no such setting."),
        ("dflash", {"dflash_params": {"block_size": 65}}, "dflash_params.block_size is 65. It must be an integer from"),
        ("apd", {"dflash_params": {"overlap": -1}}, "dflash_params.overlap is -1. It must be an integer from 0 to 63"),
        (
            "apd",
            {"apd_params": {"alpha": 2}},
            "apd_params.alpha is 2. It must be a number from 0 to 1.",
        ),
        ("dflash", {"dflash_params": 12}, "dflash_params is 12. It must be a mapping of any of: block_size,"),
        ("dflash", {"dflash_params": {"temperature": 1}}, "temperature is 1. It must be a mapping of any of: initial,"),
        (
            "apd",
            {"dflash_params": {"diffusion_steps": 4, "temperature": {"initial": 0.3}}},
            "final_temperature is 0.4, and dflash_params.initial_temperature is 0.3. It must not rise",
        ),
        ("apd", {"apd_params": {"window": 4}, "window": 5}, "window is 5. Leave one out: they are the same setting."),
        ("apd", {"apd_params": {"window": 4}, "window_size": 5}, "apd_params.window is 4 and window_size is 5."),
        (
            "apd",
            {"apd_params": {"window": 4, "window_size": 5}},
            "window is 4 and apd_params.window_size is 5.",
        ),
        ("apd", {**BOTH, "block_size": 4}, "block_size is 4. Leave one out"),
        ("apd", {"apd_params": {}, "block_size": 4}, "block_size is set, and the method is 'apd'"),
        ("ar", {"dflash_parms": {}}, "no such setting. Did you mean dflash_params?"),
    ],
)
def test_what_cannot_be_in_a_section_is_refused(method: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(method, given)
    assert message in str(caught.value)
    assert caught.value.param


def test_type_checkers_are_told_the_same() -> None:
    """Names and types of the keywords are those of the fields; one name has one type."""
    told = get_type_hints(MethodSettings)
    hints = [get_type_hints(config) for config in (Speculation, Lookup, Adaptive, Remasking)]
    for hint in hints:
        assert {name: told[name] for name in hint} == hint
    assert set(told) - set().union(*hints) == {"window_size", *EVERY_METHOD.sections}
    assert [field.name for field in EVERY_METHOD.fields if field.setting.alias] == ["window"]
    both = {field.name for field in fields(Adaptive)} & {field.name for field in fields(Remasking)}
    assert both == {"window", "kv_window"}
    shared = {"candidate_num", "max_nodes", "prompt_lookup_min", "prompt_lookup_max", "lookup_factor", "lookup_file"}
    assert {field.name for field in fields(Speculation)} & {field.name for field in fields(Lookup)} == shared
    assert not {*hints[0], *hints[1]} & {*hints[2], *hints[3]}
