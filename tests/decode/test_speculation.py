"""The settings of DFlash's proposals, and how far candidates spread."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.decode.speculation import Lookup, Speculation, spread
from paceline.errors import ConfigError


def settings(schedule: Any) -> Speculation:
    return Speculation(draft_temperature=schedule, initial_temperature=1.2, final_temperature=0.4)


def test_off_leaves_the_drafter_as_it_is() -> None:
    assert spread(settings("off"), 1, 4, 9.0) == 1.0


def test_fixed_falls_from_the_initial_to_the_final_temperature() -> None:
    assert [spread(settings("fixed"), step, 5, 9.0) for step in range(1, 6)] == pytest.approx([1.2, 1.0, 0.8, 0.6, 0.4])
    assert spread(settings("fixed"), 1, 1, 9.0) == 0.4, "the only pass is the last"


def test_adaptive_rises_with_what_surprised() -> None:
    sure, unsure, lost = (spread(settings("adaptive"), 5, 5, perplexity) for perplexity in (1.0, 2.0, 1e9))
    assert (sure, unsure) == pytest.approx((0.4, 0.8))
    assert lost == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"block_size": 65},
            "block_size is 65. It must be an integer from 1 to 64, or 'auto'",
        ),
        ({"block_size": "big"}, "block_size is 'big'."),
        ({"candidate_num": 0}, "candidate_num is 0."),
        ({"lookup": 257}, "lookup is 257."),
        ({"lookup": 4, "lookup_file": 3}, "lookup_file is 3."),
        (
            {"prompt_lookup_min": 17},
            "prompt_lookup_min is 17, and prompt_lookup_max is 16. The first must not be greater.",
        ),
        ({"candidate_num": True}, "candidate_num is True."),
        ({"max_nodes": 257}, "max_nodes is 257."),
        ({"pruning_threshold": 1.1}, "pruning_threshold is 1.1. It must be a number from 0 to 1."),
        ({"diffusion_steps": 9}, "diffusion_steps is 9."),
        ({"draft_temperature": "warm"}, "draft_temperature is 'warm'. It must be 'off' or 'fixed' or 'adaptive'."),
        ({"initial_temperature": float("nan")}, "initial_temperature is nan."),
        (
            {"final_temperature": 2.0, "diffusion_steps": 2},
            "final_temperature is 2.0, and initial_temperature is 1.1. It must not rise",
        ),
        ({"rescorer_weight": -1}, "rescorer_weight is -1."),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Speculation(**given)
    assert message in str(caught.value)


def test_the_only_pass_has_any_final_temperature() -> None:
    """The initial one has no effect then, so nothing rises."""
    assert spread(Speculation(draft_temperature="fixed", final_temperature=2.0), 1, 1, 1.0) == 2.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lookup_factor": 0}, "lookup_factor is 0."),
        ({"prompt_lookup_num_tokens": 0}, "prompt_lookup_num_tokens is 0."),
        ({"prompt_lookup_max": True}, "prompt_lookup_max is True."),
        ({"prompt_lookup_min": 3, "prompt_lookup_max": 2}, "prompt_lookup_min is 3, and prompt_lookup_max is 2."),
        ({"candidate_num": 65}, "candidate_num is 65."),
        ({"max_nodes": 0}, "max_nodes is 0."),
        ({"lookup_file": b"x"}, "lookup_file is b'x'."),
    ],
)
def test_settings_of_lookup_that_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Lookup(**given)
    assert message in str(caught.value)


def test_plain_drafting_needs_no_ranking() -> None:
    assert Speculation(block_size=8).is_plain
    assert not Speculation().is_plain
    assert Speculation(block_size=9, lookup=5, max_nodes=3).is_plain
    for given in ({"candidate_num": 2}, {"overlap": 1}, {"draft_temperature": "fixed"}):
        assert not Speculation(block_size=8, **given).is_plain  # type: ignore[arg-type]


def test_how_many_candidates_there_are_where_nobody_said() -> None:
    assert Speculation().candidates == 16
    assert Speculation(block_size=8).candidates == 1
    assert Lookup().candidates == 2
    assert {Speculation(candidate_num=1).candidates, Lookup(candidate_num=1).candidates} == {1}
