"""Settings that can have no effect: refused where a user asks for them, silent where something else took the effect."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from paceline.decode import effect
from paceline.decode.settings import settings_of
from paceline.decode.speculation import Speculation
from paceline.errors import ConfigError

IDLE: list[tuple[str, dict[str, Any], str]] = [
    ("dflash", {"rescorer_weight": 0.8}, "rescorer_weight is 0.8, and rescorer is not set: it has no effect. Name a"),
    ("dflash", {"prompt_lookup_min": 2}, "prompt_lookup_min is 2, and lookup is 0: it has no effect. Set lookup, or"),
    ("dflash", {"prompt_lookup_max": 8, "lookup": 0}, "prompt_lookup_max is 8, and lookup is 0"),
    ("dflash", {"lookup_factor": 1.0}, "lookup_factor is 1.0, and lookup is 0"),
    ("dflash", {"lookup_file": "notes.txt"}, "lookup_file is 'notes.txt', and lookup is 0"),
    (
        "dflash",
        {"initial_temperature": 1.2, "draft_temperature": "off"},
        "initial_temperature is 1.2, and draft_temperature is 'off': it has no effect. Set draft_temperature to adapt",
    ),
    ("dflash", {"final_temperature": 0.2, "draft_temperature": "off"}, "final_temperature is 0.2, and draft_temp"),
    (
        "dflash",
        {"initial_temperature": 1.2, "draft_temperature": "fixed"},
        "initial_temperature is 1.2, and diffusion_steps is 1: it has no effect. Raise diffusion_steps: the only pass",
    ),
    ("dflash", {"rescorer": "small", "candidate_num": 1}, "rescorer is 'small', and candidate_num is 1: it has no eff"),
    ("dflash", {"max_nodes": 12, "candidate_num": 1}, "max_nodes is 12, and candidate_num is 1"),
    (
        "dflash",
        {"pruning_threshold": 0.45, "block_size": 8},
        "pruning_threshold is 0.45, and block_size is 8: it has no",
    ),
    ("dflash", {"block_size": 1, "candidate_num": 6}, "candidate_num is 6, and block_size is 1: it has no effect."),
    ("dflash", {"max_nodes": 7, "block_size": 8, "candidate_num": 1}, "max_nodes is 7, and candidate_num is 1"),
    ("dflash", {"block_size": 1, "overlap": 2, "lookup": 4}, "overlap is 2, and block_size is 1"),
    ("apd", {"tau": 0.3, "alpha": 1.0}, "tau is 0.3, and alpha is 1.0: it has no effect."),
    ("apd", {"tau": 0.3, "schedule": "fixed"}, "tau is 0.3, and schedule is 'fixed': it has no effect."),
    ("diffusion", {"eps": 0.1, "steps": 4}, "eps is 0.1, and step_schedule is 'even': it has no effect."),
]


@pytest.mark.parametrize("section", [False, True])
@pytest.mark.parametrize(("method", "given", "message"), IDLE)
def test_what_can_have_no_effect_is_refused(method: str, given: dict[str, Any], message: str, section: bool) -> None:
    """Alone, and in a section: a file that sets something for nothing is a mistake, too."""
    with pytest.raises(ConfigError) as caught:
        settings_of(method, {f"{method}_params": given} if section else given)
    told = str(caught.value).replace(f"{method}_params.", "")
    assert told.startswith(message)
    assert str(caught.value).endswith(" out.")
    assert str(caught.value.param).rpartition(".")[2] in given


LIMITED: list[tuple[dict[str, Any], str]] = [
    (
        {"block_size": 2, "overlap": 1},
        "overlap is 1, and block_size is 2: it has no effect. Raise block_size, or leave overlap out.",
    ),
    (
        {"block_size": 4, "overlap": 9},
        "overlap is 9, and block_size is 4: the largest that has an effect is 2. Give at most 2, or raise block_size.",
    ),
    (
        {"block_size": 2, "diffusion_steps": 8},
        "diffusion_steps is 8, and block_size is 2: it has no effect. Raise block_size, or leave diffusion_steps out.",
    ),
    (
        {"block_size": 4, "diffusion_steps": 5},
        "diffusion_steps is 5, and block_size is 4: the largest that has an effect is 3. Give at most 3, or raise",
    ),
    ({"block_size": 1, "diffusion_steps": 2}, "diffusion_steps is 2, and block_size is 1: it has no effect."),
]


@pytest.mark.parametrize(("given", "message"), LIMITED)
def test_more_than_can_have_an_effect_is_refused_with_the_largest_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of("dflash", given)
    assert str(caught.value).startswith(message)
    with pytest.raises(ConfigError) as caught:
        settings_of("dflash", {"dflash_params": given})
    assert str(caught.value).replace("dflash_params.", "").startswith(message)
    name = next(name for name in given if name != "block_size")
    assert caught.value.param == f"dflash_params.{name}"


@pytest.mark.parametrize(
    "given",
    [
        {"block_size": 4, "overlap": 2, "diffusion_steps": 3},
        {"block_size": 2, "overlap": 0, "diffusion_steps": 1},
        {"overlap": 63, "diffusion_steps": 8},
        {"block_size": 2, "diffusion_steps": 8, "draft_temperature": "fixed"},
    ],
)
def test_what_a_block_has_room_for_is_taken(given: dict[str, Any]) -> None:
    """On a schedule, the number of passes says how fast the temperature falls, whatever they fix."""
    assert settings_of("dflash", given) == Speculation(**given)


def test_a_profile_beside_a_smaller_block_is_let_be() -> None:
    below = {"dflash_params": {"block_size": 16, "diffusion_steps": 6}}
    assert settings_of("dflash", {"block_size": 2}, below) == Speculation(block_size=2, diffusion_steps=6)
    inside = {"dflash_params": {"diffusion_steps": 6, "overlap": 3}}
    assert settings_of("dflash", {**inside, "block_size": 2}) == Speculation(block_size=2, diffusion_steps=6, overlap=3)
    with pytest.raises(
        ConfigError, match=r"overlap is 15, and dflash_params.block_size is 16 in profile cloud: the larg"
    ):
        settings_of("dflash", {"overlap": 15}, below, " in profile cloud")


@pytest.mark.parametrize(
    "given",
    [
        {"rescorer_weight": 0.8, "rescorer": "small", "candidate_num": 4},
        {"rescorer": "small"},
        {"max_nodes": 12, "pruning_threshold": 0.3, "block_size": "auto"},
        {"initial_temperature": 1.2},
        {"initial_temperature": 1.2, "draft_temperature": "fixed", "diffusion_steps": 2},
        {"block_size": 1, "lookup": 4, "candidate_num": 3, "lookup_factor": 2.0},
        {"block_size": 1, "diffusion_steps": 1, "candidate_num": 1, "overlap": 0, "draft_temperature": "off"},
        {"lookup": 0, "lookup_file": None, "rescorer": None, "pruning_threshold": 0.0, "candidate_num": 1},
        {"block_size": 12, "overlap": 3, "diffusion_steps": 5, "candidate_num": 6, "pruning_threshold": 0.45},
    ],
)
def test_what_has_an_effect_or_asks_for_nothing_is_taken(given: dict[str, Any]) -> None:
    expected = Speculation(
        **({"draft_temperature": "adaptive"} if given == {"initial_temperature": 1.2} else {}), **given
    )
    assert settings_of("dflash", given) == settings_of("dflash", {"dflash_params": given}) == expected


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ({"prompt_lookup_min": 2, "lookup_file": "notes.txt"}, {"lookup": 0}),
        ({"temperature": {"initial": 1.2}}, {"draft_temperature": "off"}),
        ({"max_nodes": 12, "pruning_threshold": 0.3, "rescorer": "small"}, {"candidate_num": 1}),
        ({"max_nodes": 12}, {"block_size": 9}),
        ({"candidate_num": 6, "overlap": 2}, {"block_size": 1}),
        ({"rescorer_weight": 0.8}, {"rescorer": "small", "candidate_num": 2}),
    ],
)
def test_a_section_may_lose_its_effect_to_what_is_said_outside(inside: dict[str, Any], outside: Any) -> None:
    """As a file for trees does, where a flag asks for a chain."""
    found = settings_of("dflash", {"dflash_params": inside, **outside})
    assert all(getattr(found, name) == value for name, value in outside.items())


def test_a_profile_is_never_refused() -> None:
    below = {"dflash_params": {"lookup_factor": 2.0, "max_nodes": 9, "diffusion_steps": 4}}
    assert settings_of("dflash", {"block_size": 1}, below) == Speculation(
        block_size=1, lookup_factor=2.0, max_nodes=9, diffusion_steps=4
    )


def test_rules_name_settings_that_exist() -> None:
    own = {field.name for field in fields(Speculation)}
    for need in effect._NEEDS["dflash"]:
        assert {*need.settings, *need.others} <= own
    for limit in effect._LIMITS["dflash"]:
        assert {limit.setting, limit.other} <= own
    assert effect._NOTHING.keys() <= own
