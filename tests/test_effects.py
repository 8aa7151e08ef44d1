"""Rules of what has an effect, on settings of no method."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paceline.effects import Limit, Need, check_limits, check_needs
from paceline.errors import SettingError

NEED = Need(("depth", "name"), ("on",), lambda own: own.on, "Switch on")
LIMIT = Limit("depth", "size", lambda own: own.size and own.size - 1, 0, "Raise size")
OFF = SimpleNamespace(depth=3, name=None, on=None, size=2)


def test_a_need_that_is_not_met_is_told_of_what_was_asked_for() -> None:
    with pytest.raises(
        SettingError, match=r"^depth is 3, and on is not set: it has no effect\. Switch on, or leave depth"
    ):
        check_needs([NEED], OFF, ["depth"])
    check_needs([NEED], OFF, ["size"])
    check_needs([NEED], OFF, ["name"], nothing={"name": None})
    check_needs([NEED], OFF, ["on"], inside=["depth"])


def test_a_limit_tells_the_largest_value() -> None:
    with pytest.raises(
        SettingError, match=r"^depth is 3, and size is 2: the largest that has an effect is 1\. Give at"
    ):
        check_limits([LIMIT], OFF, ["depth"])
    check_limits([LIMIT], OFF, ["size"], inside=["depth"])
    check_limits([LIMIT], SimpleNamespace(depth=3, size=None), ["depth"])
    check_limits([LIMIT], SimpleNamespace(depth=3, size=4), ["depth"])


def test_an_error_of_settings_is_placed_by_name() -> None:
    error = SettingError({"depth": "is 3", "size": "is 2"}, ": no.", remedy="Lower it.")
    placed = error.placed({"depth": ("tree.depth", " in run.yaml")}).placed({"size": ("size", " in run.yaml")})
    assert str(placed) == "tree.depth is 3 in run.yaml, and size is 2 in run.yaml: no. Lower it."
    assert placed.param == "tree.depth"
