"""Settings from YAML files and mappings, checked against the fields of configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from configurations import Choice, Flagged, Outer, Parted, Sectioned

from paceline.errors import ConfigError
from paceline.given import checked, read_settings
from paceline.settings import Field, Setting, fields_of, section_fields_of


def read(path: Path, text: str) -> dict[str, Any]:
    (path / "run.yaml").write_text(text)
    return read_settings(path / "run.yaml", fields_of(Outer))


@pytest.mark.parametrize("text", ["width: all", "width: null", "breadth: all", "breadth:"])
def test_a_word_for_null(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert read_settings(tmp_path / "run.yaml", fields_of(Choice)) == {"width": "all"}


@pytest.mark.parametrize("text", ["training: {lr: 1e-4}\nsize: 3", "training:\n  lr: 1e-4\n  size: 3"])
def test_an_alias_with_a_dot_stands_in_a_section(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert read_settings(tmp_path / "run.yaml", fields_of(Sectioned)) == {"rate": 1e-4, "size": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {lr: -1}", "training.lr is -1 in"),
        ("training: {rl: 1}", "sets 'training.rl' to 1: no such setting. Did you mean training.lr?"),
        ("training: {lr: {a: 1}}", "training.lr is {'a': 1} in"),
        ("training: 1", "run.yaml. It must be a mapping of any of: lr, size."),
        ("training: {lr: 1}\nrate: 2", "training.lr is 1 and rate is 2 in"),
        ("other: 1", "Allowed are: rate, training.lr, size, training.size."),
    ],
)
def test_what_a_section_cannot_hold(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError) as told:
        read_settings(tmp_path / "run.yaml", fields_of(Sectioned))
    assert message in str(told.value)


@pytest.mark.parametrize("name", ["block_size", "block_sizes"])
def test_a_file_may_use_the_name_of_the_flag(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"{name}: [4]")
    assert read_settings(tmp_path / "run.yaml", fields_of(Flagged)) == {"block_sizes": [4]}
    (tmp_path / "run.yaml").write_text("block_size: [4]\nblock_sizes: [5]")
    with pytest.raises(
        ConfigError, match=r"block_size is \[4\] and block_sizes is \[5\] in .*run\.yaml\. Leave one out"
    ):
        read_settings(tmp_path / "run.yaml", fields_of(Flagged))


@pytest.mark.parametrize("text", ["width: 0", "breadth: 0", "width: every", "width: 1.5"])
def test_a_word_for_null_allows_no_other(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"(width|breadth) is .* It must be an integer of at least 1, or all"):
        read_settings(tmp_path / "run.yaml", fields_of(Choice))


def test_all_kinds_of_values(tmp_path: Path) -> None:
    text = "folder: a/b\nrate: 1\nkind: hard\npair: [3, 4]\nfast: true\ncount: null\nname: y  # why\n"
    text += "sizes: [3, 4, 5]\nstops: [a]\n"
    values: dict[str, Any] = {
        "folder": "a/b",
        "rate": 1,
        "kind": "hard",
        "pair": [3, 4],
        "fast": True,
        "count": None,
        "name": "y",
    }
    values |= {"sizes": [3, 4, 5], "stops": ["a"]}
    assert read(tmp_path, text) == values
    assert read(tmp_path, "") == {}
    assert read(tmp_path, "sizes: []") == {"sizes": []}


@pytest.mark.parametrize(
    ("text", "number"), [("4e-3", 4e-3), ("4E-3", 4e-3), ("4.e-3", 4e-3), (".4e-2", 4e-3), ("1e-1", 0.1)]
)
def test_numbers_as_people_write_them(text: str, number: float, tmp_path: Path) -> None:
    assert read(tmp_path, f"rate: {text}") == {"rate": number}
    assert read(tmp_path, f"name: e{text}") == {"name": f"e{text}"}


@pytest.mark.parametrize(
    ("text", "message", "allowed"),
    [
        ("rate: fast", "rate is 'fast'", "a number from 0 to 1"),
        ("rate: 1.5", "rate is 1.5", "a number from 0 to 1"),
        ("rate: -1", "rate is -1", "a number from 0 to 1"),
        ("rate: .nan", "rate is .nan", "a number from 0 to 1"),
        ("rate: -.inf", "rate is -.inf", "a number from 0 to 1"),
        ("rate: 1:30", "rate is '1:30'", "a number from 0 to 1"),
        ("rate: 2024-02-01", "rate is '2024-02-01'", "a number from 0 to 1"),
        ("rate: true", "rate is true", "a number"),
        ("rate: '0.5'", "rate is '0.5'", "a number"),
        ("count: 0", "count is 0", "an integer of at least 1, or null"),
        ("count: 1.0", "count is 1.0", "an integer of at least 1, or null"),
        ("count: true", "count is true", "an integer"),
        ("fast: 1", "fast is 1", "true or false"),
        ("kind: medium", "kind is 'medium'", "'soft' or 'hard'"),
        ("pair: 3", "pair is 3", "a list of 2: an integer, an integer"),
        ("pair: [3]", "pair is [3]", "a list of 2"),
        ("pair: [3, x]", "pair is [3, 'x']", "a list of 2"),
        ("folder: 3", "folder is 3", "a path"),
        ("folder: null", "folder is null", "a path"),
        ("sizes: 3", "sizes is 3", "a list, each an integer from 1 to 9"),
        ("sizes: [3, x]", "sizes is [3, 'x']", "a list, each an integer"),
        ("sizes: [3, 10]", "sizes is [3, 10]", "from 1 to 9"),
        ("stops: 3", "stops is 3", "text, or a list, each text or null"),
        ("stops: [a, null, {b: no}]", "stops is ['a', null, {'b': false}]", "text, or a list, each text or null"),
        ("name: [a]", "name is ['a']", "text"),
        (
            "ratio: 3",
            "sets 'ratio' to 3",
            "Did you mean rate? Allowed are: folder, rate, kind, pair, fast, count, name, sizes, size, stops.",
        ),
        ("inner: {rate: 1}", "sets 'inner.rate' to 1", "Allowed are: folder, rate"),
        ("rate: {soft: 1}", "sets 'rate.soft' to 1", "Allowed are: folder, rate"),
        ("inner: {rate: {soft: 1}}", "sets 'inner.rate' to {'soft': 1}", "Allowed are"),
        ("inner: {3: 1}", "sets 'inner.3' to 1", "Allowed are"),
        ("3: 3", "sets 3 to 3", "Allowed are"),
    ],
)
def test_what_cannot_be_used_is_told_with_key_value_and_what_is_allowed(
    text: str, message: str, allowed: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as told:
        read(tmp_path, text)
    assert message in told.value.message
    assert "run.yaml" in told.value.message
    assert allowed in told.value.remedy


@pytest.mark.parametrize("text", ["- a", "a", "a: [", "a: !!python/object:os.system x"])
def test_what_is_no_mapping_of_plain_values_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        read(tmp_path, text)


def test_no_text_at_all(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "run.yaml", [])


PARTED = [*fields_of(Parted), *section_fields_of(Parted)]


@pytest.mark.parametrize(
    "text",
    [
        "narrow_params: {width: 4, range: {low: 0.5, high: 3}}\nother_params: {width: all}\nname: y",
        "narrow_params: {breadth: 4, low: 0.5, range: {high: 3}}\nother_params: {breadth: null}\nname: y",
        "narrow_params:\n  width: 4\n  range:\n    low: 0.5\n  high: 3\nother_params: {width: all}\nname: y",
    ],
)
def test_the_section_of_a_configuration_holds_what_is_for_it_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    found = {"narrow_params.width": 4, "narrow_params.low": 0.5, "narrow_params.high": 3}
    assert read_settings(tmp_path / "run.yaml", PARTED) == {**found, "other_params.width": "all", "name": "y"}


def test_a_mapping_is_taken_as_a_file_is() -> None:
    given = {"narrow_params": {"range": {"low": 0.5}}, "other_params": None}  # None: YAML's empty one
    assert checked(given, PARTED) == {"narrow_params.low": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("narrow_params: 3", "narrow_params is 3{}. It must be a mapping of any of: width, breadth, low, range.low,"),
        ("narrow_params: [width]", "narrow_params is ['width']{}. It must be a mapping"),
        ("narrow_params: {range: 1}", "narrow_params.range is 1{}. It must be a mapping of any of: low, high."),
        ("narrow_params: {width: 0}", "narrow_params.width is 0{}. It must be an integer of at least 1, or"),
        ("narrow_params: {range: {low: 10}}", "narrow_params.range.low is 10{}. It must be a number from 0 to 9."),
        ("narrow_params: {width: {a: 1}}", "narrow_params.width is {'a': 1}{}. It must be an integer"),
        ("narrow_params: {count: 1}", "1: no such setting. Allowed are: narrow_params.width, narrow_params.breadth,"),
        ("narrow_params: {widht: 1}", "1: no such setting. Did you mean narrow_params.width?"),
        ("narrow_params: {range: {lower: 1}}", "1: no such setting. Did you mean narrow_params.range.low?"),
        ("range: {low: 1}", "1: no such setting. Allowed are: name, width,"),
        ("other: 1", "Allowed are: name, width, breadth, low, high, count, narrow_params, other_params."),
        (
            "narrow_params: {width: 4, breadth: 5}",
            "narrow_params.width is 4 and narrow_params.breadth is 5{}. Leave one",
        ),
        (
            "narrow_params: {low: 1, range: {low: 1}}",
            "narrow_params.low is 1 and narrow_params.range.low is 1{}. Leave",
        ),
        (
            "narrow_params: {width: 4}\nwidth: 5",
            "narrow_params.width is 4 and width is 5{}. Leave one out: they are the",
        ),
        ("narrow_params: {width: 4}\nbreadth: 5", "narrow_params.width is 4 and breadth is 5{}. Leave one out"),
    ],
)
def test_what_the_section_of_a_configuration_cannot_hold(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError) as told:
        read_settings(tmp_path / "run.yaml", PARTED)
    assert message.replace("{}", f" in {tmp_path / 'run.yaml'}", 1) in str(told.value)
    assert told.value.param


def test_one_text_stands_for_a_list_of_it(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("stops: 'a b'")
    assert read_settings(tmp_path / "run.yaml", fields_of(Outer)) == {"stops": ["a b"]}


@pytest.mark.parametrize("text", ["narrow_params.width: 4", "narrow_params: {range.low: 1}"])
def test_a_section_is_not_spelled_by_a_dot(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"in line 1: no such setting\. Write a section: (narrow_params|range): \{"):
        read_settings(tmp_path / "run.yaml", PARTED)


def test_a_bare_off_is_the_word_where_that_is_meant() -> None:
    """YAML 1.1 reads it as false."""
    word, switch = Field("word", Literal["off", "on"], Setting("")), Field("switch", bool, Setting(""))
    assert checked({"word": False, "switch": False}, [word, switch]) == {"word": "off", "switch": False}
    with pytest.raises(ConfigError, match=r"word is True\. It must be 'off' or 'on'"):
        checked({"word": True}, [word])
