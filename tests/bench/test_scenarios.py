"""The benchmark's prompts: those of the package, and a user's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.bench.options import DecodeBench
from paceline.bench.scenarios import BenchPrompt, read_scenarios
from paceline.errors import ConfigError


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_the_package_has_three_scenarios() -> None:
    scenarios = read_scenarios(DecodeBench())
    assert list(scenarios) == ["long_text", "dialogue", "code"]
    assert all(len(prompts) >= 10 for prompts in scenarios.values())
    assert all(isinstance(prompt.prompt, str) for prompt in scenarios["code"])
    assert all(isinstance(prompt.prompt, list) for prompt in scenarios["dialogue"])


def test_quick_takes_few() -> None:
    options = DecodeBench(quick=True, scenarios=("code",))
    assert [len(prompts) for prompts in read_scenarios(options).values()] == [3]
    assert (options.max_tokens, options.repeats) == (48, 2)
    assert DecodeBench(quick=True, max_tokens=5, repeats=1, prompts_per_scenario=2).max_tokens == 5


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    lines = (
        {"scenario": "a", "prompt_ids": [1, 2], "id": "x"},
        "",
        {"prompt": "y"},
        {"scenario": "a", "messages": messages},
    )
    assert read_scenarios(DecodeBench(prompts=written(tmp_path, *lines))) == {
        "a": [BenchPrompt("x", [1, 2]), BenchPrompt("a-3", messages)],
        "custom": [BenchPrompt("custom-2", "y")],
    }


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[" * 100_000,
        "[]",
        {"scenario": "a"},
        {"prompt": "a", "prompt_ids": [1]},
        {"prompt": 3},
        {"prompt_ids": [1, True]},
        {"prompt_ids": 1},
        {"messages": []},
        {"messages": ["a"]},
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: Any) -> None:
    with pytest.raises(ConfigError, match=r"prompts\.jsonl, line 2"):
        read_scenarios(DecodeBench(prompts=written(tmp_path, {"prompt": "fine"}, line)))


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"poetry.*long_text, dialogue, code"):
        read_scenarios(DecodeBench(scenarios=("code", "poetry")))
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        read_scenarios(DecodeBench(prompts=tmp_path / "none.jsonl"))
    with pytest.raises(ConfigError, match="no prompts"):
        read_scenarios(DecodeBench(prompts=written(tmp_path)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": 0}, "repeats is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"prompts_per_scenario": 0}, "prompts_per_scenario is 0"),
        ({"threads": -1}, "threads is -1"),
        ({"block_sizes": (8, 65)}, r"block_sizes is \(8, 65\).*from 1 to 64"),
        ({"methods": ("lookup", "apd")}, "method is 'apd'.*dflash, lookup; ar is always measured"),
        ({"methods": ("lookup",), "block_sizes": (4,)}, "^block_size is 4, and the only method is 'lookup'"),
        ({"sweep": True, "methods": ("dflash", "lookup")}, "^method is 'dflash' and 'lookup', and --sweep"),
        ({"peers": ("vllm",)}, "peer is 'vllm'"),
        ({"peers": ("dflash-official", "transformers"), "temperatures": (1.0,)}, "temperature is 1.0.*dflash-official"),
        ({"peers": ("transformers",), "temperatures": (1.0,)}, "temperature is 1.0"),
        ({"peers": ("transformers",), "precision": "mixed"}, "precision is 'mixed'.*exact, half or int8"),
        ({"temperatures": (0.0, 1.0)}, "temperature is 0.0 and 1.0, without --sweep"),
        ({"settings": ("dflash",)}, "^setting is 'dflash', without --sweep.*Add --sweep"),
        ({"rescorer": "small"}, "rescorer is 'small', without --sweep"),
        ({"sweep": True, "block_sizes": (4, 8)}, "^block_size is 4 and 8, and --sweep.*dflash,block_size=8"),
        ({"sweep": True, "peers": ("transformers",)}, "^peer is 'transformers', and --sweep"),
        ({"sweep": True, "settings": ("ar",)}, "setting 'ar' begins with 'ar'.*: plain decoding is always measured"),
        ({"sweep": True, "settings": ("lookup,max_nodes=9",)}, "settings of dflash.*bench decode --method lookup"),
        ({"sweep": True, "settings": ("apd,alpha=2",)}, "settings of dflash.*bench quality measures"),
        (
            {"sweep": True, "settings": ("candidate_num=6",)},
            "begins with 'candidate_num=6'.*Write dflash,candidate_num",
        ),
        ({"sweep": True, "settings": ("dflash",), "rescorer": "x"}, "^rescorer is 'x', and setting is 'dflash'.*Write"),
        ({"sweep": True, "settings": ("dflash,nodes=3",)}, "setting 'dflash,nodes=3': nodes is 3"),
        ({"precision": "int3"}, "precision is 'int3'.*exact, mixed, half"),
        ({"inflate": 17}, "inflate is 17"),
        ({"peers": ("transformers-assisted",)}, "There is no assistant.*--assistant FOLDER"),
        (
            {"peers": ("transformers",), "assistant": "small"},
            "assistant is 'small', without its peer.*--peers transformers-assisted",
        ),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DecodeBench(**settings)
