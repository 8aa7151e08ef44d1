"""Fields of configurations: what they say to a user, and how configurations are made of them."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest
from configurations import Choice, Inner, One, Outer, Parted

from paceline.errors import ConfigError
from paceline.settings import (
    Field,
    Setting,
    assemble,
    canonical,
    check_kinds,
    check_ranges,
    fields_of,
    section_fields_of,
)


def test_fields_of_inner_configurations_stand_among_the_others() -> None:
    names = [field.name for field in fields_of(Outer)]
    assert names == ["folder", "rate", "kind", "pair", "fast", "count", "name", "sizes", "stops"]
    assert fields_of(Outer)[0] == Field("folder", Path, Setting("A folder."), MISSING)
    assert fields_of(Outer)[1] == Field("rate", float, Setting("A rate.", 0, 1), 0.5)


def test_configurations_are_assembled_by_name() -> None:
    built = assemble(Outer, {"folder": Path("a"), "rate": 0.1, "pair": (3, 4), "other": 7})
    assert built == Outer(Path("a"), Inner(rate=0.1), (3, 4))


def test_either_of_two_configurations_stands_as_the_fields_of_both_and_holds_what_was_set() -> None:
    assert [each.name for each in fields_of(Choice)] == ["name", "width", "rate", "count"]
    assert [each.default for each in fields_of(Choice)] == ["x", None, None, None]
    assert assemble(Choice, {"name": "y", "width": None, "rate": 0.0, "count": None}) == Choice("y", {"rate": 0.0})
    assert assemble(Choice, {"width": "7"}) == Choice(settings={"width": 7})
    assert assemble(Choice, {"width": "all"}) == Choice(settings={"width": None})
    with pytest.raises(ConfigError, match=r"width is 'x'. It must be an integer of at least 1, or all"):
        assemble(Choice, {"width": "x"})


def test_an_alias_sets_the_same() -> None:
    assert canonical({"breadth": 4, "rate": 1}, fields_of(One)) == {"width": 4, "rate": 1}
    with pytest.raises(ConfigError, match=r"breadth is 4 and width is 5\. Leave one out"):
        canonical({"breadth": 4, "width": 5}, fields_of(One))


@pytest.mark.parametrize(
    ("values", "message"),
    [({"count": 0}, "count is 0"), ({"sizes": (3, 10)}, r"sizes is \(3, 10\)")],
)
def test_ranges_hold_for_configurations_made_in_python_too(values: dict[str, Any], message: str) -> None:
    given = {"folder": Path("a"), "inner": Inner(), **values}
    check_ranges(Outer(Path("a"), Inner()))
    with pytest.raises(ConfigError, match=message):
        check_ranges(Outer(**given))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": "0.5"}, "rate is '0.5'. It must be a number"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"rate": None}, "rate is None"),
        ({"kind": "medium"}, "kind is 'medium'. It must be 'soft' or 'hard'"),
    ],
)
def test_kinds_hold_for_configurations_made_in_python_too(values: dict[str, Any], message: str) -> None:
    check_kinds(Inner(rate=1))
    with pytest.raises(ConfigError, match=message):
        check_kinds(Inner(**values))


def test_what_is_set_outside_wins_over_the_section() -> None:
    values = {
        "width": "all",
        "low": None,
        "narrow_params.width": 4,
        "narrow_params.low": 0.5,
        "other_params.width": "7",
    }
    assert assemble(Parted, values) == Parted(settings={"width": None, "narrow_params.low": 0.5})
    values = {"narrow_params.width": "all", "other_params.width": 7, "other_params.count": None}
    assert assemble(Parted, values) == Parted(
        settings={"narrow_params.width": None, "other_params.width": 7, "other_params.count": None}
    )


def test_fields_in_sections_are_named_with_them() -> None:
    found = {field.name: field.other_names for field in section_fields_of(Parted)}
    assert found == {
        "narrow_params.width": ("narrow_params.breadth",),
        "narrow_params.low": ("narrow_params.range.low",),
        "narrow_params.high": ("narrow_params.range.high",),
        "other_params.count": (),
        "other_params.width": ("other_params.breadth",),
    }
    assert not section_fields_of(Choice)
