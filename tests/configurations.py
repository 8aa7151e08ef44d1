"""Configurations as commands have them, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from paceline.settings import Either, Setting


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


@dataclass(frozen=True)
class Sectioned:
    rate: Annotated[float, Setting("A rate.", least=0, alias="training.lr")] = 0.5
    size: Annotated[int, Setting("A size.", alias="training.size")] = 1


@dataclass(frozen=True)
class Flagged:
    block_sizes: Annotated[tuple[int, ...], Setting("Sizes.", flags=("--block-size", "--block-sizes"))] = ()


@dataclass(frozen=True)
class Narrow:
    width: Width = 3
    low: Annotated[float, Setting("A bound.", least=0, most=9, section_alias="range.low")] = 1.0
    high: Annotated[float, Setting("A bound.", least=0, most=9, section_alias="range.high")] = 2.0


@dataclass(frozen=True)
class Parted:
    name: Annotated[str, Setting("A name.")] = "x"
    settings: Annotated[Mapping[str, Any], Either((Narrow, Other), ("narrow_params", "other_params"))] = field(
        default_factory=dict
    )
