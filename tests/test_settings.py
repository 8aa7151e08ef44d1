"""Settings from YAML files, checked against the fields of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from paceline.errors import ConfigError
from paceline.given import read_settings
from paceline.settings import (
    Either,
    Field,
    Setting,
    assemble,
    canonical,
    check_kinds,
    check_ranges,
    fields_of,
)


@dataclass(frozen=True)
class Inner:
    rate: Annotated[float, Setting("A rate.", least=0, most=1)] = 0.5
    kind: Annotated[Literal["soft", "hard"], Setting("A kind.")] = "soft"


@dataclass(frozen=True)
class Outer:
    folder: Annotated[Path, Setting("A folder.")]
    inner: Inner
    pair: Annotated[tuple[int, int], Setting("A pair.")] = (1, 2)
    fast: Annotated[bool, Setting("A switch.")] = False
    count: Annotated[int | None, Setting("A count.", least=1)] = None
    name: Annotated[str, Setting("A name.")] = "x"
    sizes: Annotated[tuple[int, ...], Setting("Sizes.", least=1, most=9, flags=("--size",))] = (1, 2)
    stops: Annotated[list[str] | None, Setting("Texts.")] = None


Width = Annotated[int | None, Setting("A width.", least=1, null_word="all", alias="breadth")]


@dataclass(frozen=True)
class One:
    width: Width = 3
    rate: Annotated[float, Setting("A rate.", least=0)] = 0.5


@dataclass(frozen=True)
class Other:
    count: Annotated[int | None, Setting("A count.")] = None
    width: Width = None


@dataclass(frozen=True)
class Choice:
    name: Annotated[str, Setting("A name.")] = "x"
    settings: Annotated[Mapping[str, Any], Either((One, Other))] = field(default_factory=dict)


def read(path: Path, text: str) -> dict[str, Any]:
    (path / "run.yaml").write_text(text)
    return read_settings(path / "run.yaml", fields_of(Outer))


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
    with pytest.raises(ConfigError, match=r"width is 'x'. It must be an integer or null of at least 1; null is all"):
        assemble(Choice, {"width": "x"})


@pytest.mark.parametrize("text", ["width: all", "width: null", "breadth: all", "breadth:"])
def test_a_word_for_null(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert read_settings(tmp_path / "run.yaml", fields_of(Choice)) == {"width": "all"}


@dataclass(frozen=True)
class Sectioned:
    rate: Annotated[float, Setting("A rate.", least=0, alias="training.lr")] = 0.5
    size: Annotated[int, Setting("A size.", alias="training.size")] = 1


@pytest.mark.parametrize(
    "text", ["training: {lr: 1e-4}\nsize: 3", "training:\n  lr: 1e-4\n  size: 3", "training.lr: 1e-4\nsize: 3"]
)
def test_an_alias_with_a_dot_stands_in_a_section(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert read_settings(tmp_path / "run.yaml", fields_of(Sectioned)) == {"rate": 1e-4, "size": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {lr: -1}", "training.lr is -1 in"),
        ("training: {rl: 1}", "sets 'training.rl' to 1: no such setting. Did you mean training.lr?"),
        ("training: {lr: {a: 1}}", "training.lr is {'a': 1} in"),
        ("training:", "run.yaml. It must be a mapping of any of: lr, size."),
        ("training: {lr: 1}\nrate: 2", "training.lr is 1 and rate is 2. Leave one out"),
        ("other: 1", "Allowed are: rate, training.lr, size, training.size."),
    ],
)
def test_what_a_section_cannot_hold(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError) as told:
        read_settings(tmp_path / "run.yaml", fields_of(Sectioned))
    assert message in str(told.value)


def test_an_alias_sets_the_same() -> None:
    assert canonical({"breadth": 4, "rate": 1}, fields_of(One)) == {"width": 4, "rate": 1}
    with pytest.raises(ConfigError, match=r"breadth is 4 and width is 5\. Leave one out"):
        canonical({"breadth": 4, "width": 5}, fields_of(One))


@dataclass(frozen=True)
class Flagged:
    block_sizes: Annotated[tuple[int, ...], Setting("Sizes.", flags=("--block-size", "--block-sizes"))] = ()


@pytest.mark.parametrize("name", ["block_size", "block_sizes"])
def test_a_file_may_use_the_name_of_the_flag(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"{name}: [4]")
    assert read_settings(tmp_path / "run.yaml", fields_of(Flagged)) == {"block_sizes": [4]}
    (tmp_path / "run.yaml").write_text("block_size: [4]\nblock_sizes: [5]")
    with pytest.raises(ConfigError, match=r"block_size is \[4\] and block_sizes is \[5\]\. Leave one out"):
        read_settings(tmp_path / "run.yaml", fields_of(Flagged))


@pytest.mark.parametrize("text", ["width: 0", "breadth: 0", "width: every", "width: 1.5"])
def test_a_word_for_null_allows_no_other(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(
        ConfigError, match=r"(width|breadth) is .* It must be an integer or null of at least 1; null is"
    ):
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
        ("rate: fast", "rate is 'fast'", "a number of at least 0 and of at most 1"),
        ("rate: 1.5", "rate is 1.5", "a number of at least 0 and of at most 1"),
        ("rate: -1", "rate is -1", "a number of at least 0"),
        ("rate: .nan", "rate is nan", "a number"),
        ("rate: true", "rate is True", "a number"),
        ("rate: '0.5'", "rate is '0.5'", "a number"),
        ("count: 0", "count is 0", "an integer or null of at least 1"),
        ("count: 1.0", "count is 1.0", "an integer or null"),
        ("count: true", "count is True", "an integer"),
        ("fast: 1", "fast is 1", "true or false"),
        ("kind: medium", "kind is 'medium'", "'soft' or 'hard'"),
        ("pair: 3", "pair is 3", "a list of 2: an integer, an integer"),
        ("pair: [3]", "pair is [3]", "a list of 2"),
        ("pair: [3, x]", "pair is [3, 'x']", "a list of 2"),
        ("folder: 3", "folder is 3", "a path"),
        ("folder: null", "folder is None", "a path"),
        ("sizes: 3", "sizes is 3", "a list, each an integer of at least 1 and of at most 9"),
        ("sizes: [3, x]", "sizes is [3, 'x']", "a list, each an integer"),
        ("sizes: [3, 10]", "sizes is [3, 10]", "of at most 9"),
        ("stops: a", "stops is 'a'", "a list, each text or null"),
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


@pytest.mark.parametrize("text", ["- a", "a", "a: [", "a: !!python/object:os.system x"])
def test_what_is_no_mapping_of_plain_values_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        read(tmp_path, text)


def test_no_text_at_all(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "run.yaml", [])
