"""Commands, run as a user runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from talking import DRAFT, TARGET, Run, run, talking_pair

from paceline import LLM, Sampling
from paceline.bench.kernel_options import KernelBench
from paceline.bench.memory_options import MemoryBench
from paceline.bench.options import CurveBench, DecodeBench
from paceline.bench.quality_options import FrontierBench, QualityBench
from paceline.cli.bench import curve, decode, frontier, kernels, memory, quality
from paceline.cli.blocks import Blocks, Part, plain_marks, styled
from paceline.cli.output import printable
from paceline.completion import Chunk, Round

__all__ = ["run"]  # a fixture

MUTE = ("--model", TARGET, "--drafter", DRAFT)
IDS = [58, 83, 11, 40]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return talking_pair(tmp_path_factory.mktemp("pair"), max_position_embeddings=2048)


@pytest.fixture(scope="module")
def talking(pair: tuple[Path, Path]) -> tuple[object, ...]:
    return ("--model", pair[0], "--drafter", pair[1])


@pytest.fixture(scope="module")
def expected(pair: tuple[Path, Path]) -> str:
    return LLM(pair[0], drafter=pair[1]).generate("hello", Sampling(max_tokens=20))[0].text


# the whole


def test_importing_the_commands_imports_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "numpy", "tokenizers", "matplotlib", "huggingface_hub", "accelerate", "yaml"}
    code = f"import sys, paceline.cli; assert not {heavy!r} & set(sys.modules), {heavy!r} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_names_every_command(run: Run) -> None:
    told = run("--help")
    assert told.code == 0
    assert "Usage: paceline" in told.out
    for command in ("generate", "chat", "demo", "config", "zoo", "train", "bench"):
        assert command in told.out


@pytest.mark.parametrize(
    "command",
    [
        *("generate", "chat", "demo", "config show", "zoo list", "zoo corpus"),
        *("train target", "train drafter", "bench decode", "bench curve", "bench memory"),
        *("bench quality", "bench frontier", "bench kernels"),
    ],
)
def test_every_command_explains_itself(run: Run, command: str) -> None:
    told = run(*command.split(), "--help")
    assert told.code == 0
    assert f"paceline {command}" in told.out


def test_version(run: Run) -> None:
    assert run("--version").out.startswith("paceline 0.")


# failures


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((*MUTE, "--prompt-ids", "1,999"), 2, "token id 999"),
        ((*MUTE, "--prompt-ids", "1;2"), 2, "Write integers: 1,2,3"),
        ((*MUTE, "--prompt-ids", ""), 2, "prompt is empty"),
        ((*MUTE, "--prompt-ids", "1", "text"), 2, "more than one prompt"),
        ((*MUTE, "--prompt-ids", "1", "--chat"), 2, "--chat"),
        ((*MUTE, "--prompt-ids", "1", "--json", "--show-blocks"), 2, "exclude each other"),
        ((*MUTE, "--prompt-ids", "1", "--block-size", 99), 2, "block_size is 99"),
        ((*MUTE, "--prompt-ids", "1", "--stop", "a"), 2, "no tokenizer"),
        ((*MUTE, "text"), 2, "no tokenizer"),
        ((*MUTE, "text", "--top-p", 3), 2, "top_p is 3"),
        ((*MUTE, "text", "--method", "x"), 2, "method is 'x'"),
        ((*MUTE, "text", "--method", "ar"), 2, "and the method is 'ar', which uses none"),
        (
            ("--model", TARGET, "text", "--method", "ar", "--block-size", 4),
            2,
            "block_size is set, and the method is 'ar'",
        ),
        (("--model", TARGET, "--method", "dflash", "text"), 2, "--drafter"),
        ((*MUTE, "--prompt-ids", "1", "--method", "lookup"), 2, "uses none"),
        ((*MUTE, "--prompt-ids", "1", "--lookup-file", "x"), 2, "and lookup is 0"),
        (("--model", "/no/such/folder", "text"), 2, "model is '/no/such/folder': there is no such model"),
        (("--model", TARGET, "--drafter", TARGET, "--prompt-ids", "1"), 2, "DFlashDraftModel"),
        (("--model", TARGET, "--drafter", "/no", "--prompt-ids", "1"), 2, "drafter is '/no': there is no such model"),
        ((*MUTE, "--prompt-ids", "1", "--rescorer", "/no"), 2, "rescorer is '/no': there is no such model. Give a"),
        (("--model", TARGET, "--method", "lookup", "--lookup-file", "x", "a"), 2, "lookup_file is 'x': it cannot be"),
    ],
)
def test_a_failure_is_one_line_on_stderr(run: Run, arguments: Any, code: int, message: str) -> None:
    told = run("generate", *arguments)
    assert told.code == code
    assert told.out == ""
    assert message in told.err
    assert told.err.startswith("Error: ")
    assert told.err.count("\n") == 1


def test_a_wrong_option_is_explained(run: Run) -> None:
    told = run("generate", "--max-tokens", "many", "hi")
    assert (told.code, told.out) == (2, "")
    assert told.err == "Error: max_tokens is 'many'. It must be an integer from 1 to 2147483648.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "--pruning-threshold", "nan"), "pruning_threshold is nan. It must be a number from 0 to 1."),
        (("generate", "--temperature", "inf"), "temperature is inf. It must be a number from 0 to 100."),
        (("generate", "--lookup", 300), "lookup is 300. It must be an integer from 0 to 256."),
        (("generate", "--threads", 0), "threads is 0. It must be an integer from 1 to 1024, or null."),
        (("generate", "--seed", "1.5"), "seed is 1.5. It must be an integer from -9223372036854775808 to"),
        (("generate", "--top-p", 0), "top_p is 0.0. It must be a number above 0 and of at most 1."),
        (("generate", "--block-size", "many"), "block_size is 'many'. It must be an integer from 1 to 64, or 'auto'."),
        (("generate", "--window", 0), "window is 0. It must be an integer of at least 1, or all"),
        (("generate", "--method", "fast"), "method is 'fast'. It must be 'auto' or 'ar' or"),
        (("generate", "--config", "/no/such.yaml"), "/no/such.yaml cannot be read"),
        (("generate", "--file", "/no/such"), "file is '/no/such': there is no such file. Name a file."),
        (("generate", "--file", "/"), "file is '/': that is no file."),
        (("demo", "--repeats", 0), "repeats is 0. It must be an integer of at least 1."),
        (("bench", "decode", "--block-size", 65), "block_sizes is (65,). It must be a list, each an integer from 1 to"),
        (("bench", "kernels", "--json", "/"), "json is '/': that is no file. Name a file."),
        (("train", "target", "--corpus", "/no", "--out", "x"), "corpus is '/no': there is no such folder."),
        (("train", "target", "--corpus", "/", "--out", "x", "--clip", "nan"), "clip is nan. It must be a number of at"),
        (("train", "drafter", "--prompt-tokens", "a", "3"), "prompt_tokens is ('a', 3). It must be a list of 2"),
        (("zoo", "build", "x", "--scale", 2), "scale is 2.0. It must be a number above 0 and of at most 1."),
        (("zoo", "corpus", "x", "--stories", -1), "stories is -1. It must be an integer of at least 0, or null."),
    ],
)
def test_a_value_that_is_refused_is_told_in_our_words(run: Run, arguments: tuple[str, ...], message: str) -> None:
    needed = ("--target", "x", "--corpus", "/", "--out", "x") if arguments[:2] == ("train", "drafter") else ()
    told = run(*arguments, *needed, *(("hi",) if arguments[0] == "generate" and "--file" not in arguments else ()))
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(f"Error: {message}")
    assert told.err.count("\n") == 1


def test_a_full_disk_is_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("paceline.cli.generate.write", full)
    told = run("generate", *MUTE, "--prompt-ids", "1", "--max-tokens", 2)
    assert told.code == 1
    assert "No space left" in told.err


def test_a_warning_is_one_line(run: Run) -> None:
    folder = TARGET.parents[1] / "dflash-v1-one-layer"  # names no taps
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.filters", [("always", None, Warning, None, 0)])
        told = run("generate", "--model", folder / "target", "--drafter", folder / "draft", "--prompt-ids", "1,2")
    assert told.code == 0
    assert told.err.startswith("Warning: ")
    assert "target_layer_ids" in told.err
    assert told.err.count("\n") == 1


# generate


def test_the_prompt_comes_from_argument_file_or_pipe(
    run: Run, talking: Any, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompt.txt").write_text("hello")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(read=lambda: "hello", isatty=lambda: False))
    for source in (("hello",), ("--file", tmp_path / "prompt.txt"), ()):
        told = run("generate", *talking, *source, "--max-tokens", 20)
        assert (told.code, told.out, told.err) == (0, f"{expected}\n", "")


def test_no_prompt_at_a_terminal(run: Run, talking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    assert "There is no prompt" in run("generate", *talking).err


def test_a_file_that_is_no_text(run: Run, talking: Any, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes(b"\xff")
    told = run("generate", *talking, "--file", tmp_path / "prompt.txt")
    assert told.code == 2
    assert "UTF-8" in told.err


def test_chat_applies_the_template(run: Run, pair: tuple[Path, Path], talking: Any) -> None:
    found = json.loads(run("generate", *talking, "hi", "--chat", "--json", "--max-tokens", 5).out)
    chat = [{"role": "user", "content": "hi"}]
    assert found["token_ids"] == LLM(pair[0]).generate(chat, Sampling(max_tokens=5))[0].token_ids


def test_json_holds_the_whole_completion(run: Run, talking: Any, expected: str) -> None:
    told = run("generate", *talking, "hello", "--max-tokens", 20, "--json", "--seed", 5)
    found = json.loads(told.out)
    assert set(found) == {"text", "token_ids", "finish_reason", "usage", "stats", "seed", "rounds"}
    assert (found["text"], found["finish_reason"], found["seed"]) == (expected, "length", 5)
    assert found["usage"] == {"prompt_tokens": 5, "completion_tokens": 20, "total_tokens": 25}
    assert len(found["token_ids"]) == 20 == 1 + sum(found["stats"]["accepted_per_round"])
    assert found["stats"]["rounds"] == len(found["rounds"])
    assert found["stats"]["acceptance_length"] == 19 / len(found["rounds"])
    assert {"proposed", "reference", "committed", "accepted"} < set(found["rounds"][0])


def test_every_setting_arrives(run: Run, pair: tuple[Path, Path], talking: Any) -> None:
    flags = {"temperature": 1.5, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 3, "repetition_penalty": 1.2}
    flags |= {"presence_penalty": 0.3, "frequency_penalty": 0.4, "max_tokens": 30}
    spelled = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", value)]
    found = json.loads(run("generate", "--model", pair[0], "hello", "--json", *spelled, "--method", "ar").out)
    whole = LLM(pair[0]).generate("hello", Sampling(**flags))[0]
    assert found["token_ids"] == whole.token_ids
    assert found["stats"]["method"] == "ar"
    stops = ["--stop", whole.text[3:5], "--stop", "never"]
    stopped = json.loads(run("generate", *talking, "hello", "--json", *spelled, *stops, "--block-size", 3).out)
    assert stopped["text"] == whole.text[: whole.text.index(whole.text[3:5])]
    assert stopped["finish_reason"] == "stop"
    assert max(len(round["proposed"]) for round in stopped["rounds"]) == 2


def test_without_a_tokenizer_ids_are_printed(run: Run) -> None:
    ids = LLM(TARGET).generate(IDS, Sampling(max_tokens=12))[0].token_ids
    told = run("generate", *MUTE, "--prompt-ids", "58, 83 11,40", "--max-tokens", 12)
    assert [int(part) for part in told.out.split()] == ids


def test_stats_are_said_beside_the_text(run: Run, talking: Any, expected: str) -> None:
    told = run("generate", *talking, "hello", "--max-tokens", 20, "--stats", "--seed", 5)
    assert told.out == f"{expected}\n"
    for word in ("dflash: 20 tokens", "tokens/s", "acceptance length", "rounds", "draft", "verify", "other", "seed 5"):
        assert word in told.err
    assert "seed 5" in run("generate", *talking, "hello", "--json", "--stats", "--seed", 5).err


def test_lookup_needs_no_drafter(run: Run, pair: tuple[Path, Path], expected: str, tmp_path: Path) -> None:
    alone = ("generate", "--model", pair[0], "--method", "lookup", "hello", "--max-tokens", 20)
    told = run(*alone, "--prompt-lookup-min", 1, "--candidate-num", 3, "--stats", "--show-blocks")
    assert told.out.replace("⟦", "").replace("⟧", "") == f"{expected}\n"
    for word in ("lookup: 20 tokens", "acceptance length", "rounds"):
        assert word in told.err
    (tmp_path / "known.txt").write_text("hello hello", encoding="utf-8")
    found = json.loads(run(*alone, "--lookup-file", tmp_path / "known.txt", "--json").out)
    assert (found["text"], found["stats"]["method"]) == (expected, "lookup")
    missing = run(*alone, "--lookup-file", tmp_path / "none.txt")
    assert (missing.code, missing.out, missing.err.count("\n")) == (2, "", 1)
    assert "lookup_file" in missing.err


# blocks


def test_blocks_are_readable_without_colour(run: Run, talking: Any, expected: str) -> None:
    told = run("generate", *talking, "hello", "--max-tokens", 20, "--block-size", 8, "--show-blocks")
    assert told.out.replace("⟦", "").replace("⟧", "") == f"{expected}\n"
    assert told.out.count("⟦") == told.out.count("⟧") > 1


def test_blocks_of_ids(run: Run) -> None:
    found = json.loads(run("generate", *MUTE, "--prompt-ids", "58,83,11,40", "--max-tokens", 30, "--json").out)
    told = run("generate", *MUTE, "--prompt-ids", "58,83,11,40", "--max-tokens", 30, "--show-blocks").out
    shown = [str(found["token_ids"][0])]
    for round in found["rounds"]:
        drafted, own = round["committed"][: round["accepted"]], round["committed"][round["accepted"] :]
        shown += [f"⟦{' '.join(map(str, drafted))} ⟧"] * bool(drafted) + [str(token) for token in own]
    assert told.split() == " ".join(shown).replace(" ⟧ ", " ⟧").split()


def test_held_back_text_counts_to_the_round_that_made_it() -> None:
    def chunk(text: str, drafted: tuple[int, ...], own: tuple[int, ...]) -> Chunk:
        return Chunk(text, drafted + own, Round(drafted, drafted + own, drafted + own, len(drafted), 0.0, 0.0))

    tokenizer: Any = SimpleNamespace(raw_bytes=lambda token: bytes([token]), replaces_each_byte=False)
    blocks = Blocks(tokenizer)
    a, b, c, d = b"abcd"
    assert blocks.split(Chunk("a", (a,), None)) == [Part("a", 0, False)]
    assert blocks.split(chunk("b", (b, c), (d,))) == [Part("b", 1, True)]
    parts = blocks.split(chunk("cda", (a,), (b,)))
    assert parts == [Part("c", 1, True), Part("d", 1, False), Part("a", 2, True)]
    assert blocks.split(Chunk("b\ufffd", (), None)) == [Part("b\ufffd", 2, False)]


def test_marks_enclose_the_drafts_of_each_round() -> None:
    parts = [Part("a", 0, False), Part("b", 1, True), Part("c", 1, True), Part("d", 2, True), Part("e", 2, False)]
    assert "".join(plain_marks(iter(parts))) == "a⟦bc⟧⟦d⟧e"
    assert "".join(plain_marks(iter(parts[:2]))) == "a⟦b⟧"


def test_colours_alternate_and_the_targets_own_token_is_underlined() -> None:
    texts = [styled(Part("a", number, drafted)).style for number in (1, 2) for drafted in (True, False)]
    assert len({str(style) for style in texts}) == 4
    assert all("underline" not in str(style) for style in texts[::2])
    assert all("underline" in str(style) for style in texts[1::2])


def test_a_terminal_is_not_given_control_characters() -> None:
    assert printable("a\x1b[2J\n\tb\x7f") == "a␛[2J\n\tb␡"


# demo


def test_demo_decodes_both_ways_and_compares(run: Run, talking: Any, tmp_path: Path) -> None:
    svg = tmp_path / "blocks.svg"
    told = run("demo", *talking, "--prompt", "hello", "--max-tokens", 24, "--repeats", 1, "--svg", svg)
    assert told.code == 0, told.err
    assert re.search(r"× (faster|slower) than plain decoding · identical output: yes", told.out.splitlines()[-1])
    assert "⟦" in told.out
    picture = svg.read_text()
    assert picture.startswith("<svg")
    assert "url(http" not in picture
    assert "identical" in picture


def test_demo_says_so_where_the_text_differs(run: Run, talking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.cli.demo._compare", lambda *_: (False, 0))
    told = run("demo", *talking, "--prompt", "hello", "--max-tokens", 8, "--repeats", 1)
    assert told.code == 1
    assert "identical output: NO" in told.out


def test_demo_takes_a_held_out_prompt_of_each_kind(run: Run, talking: Any) -> None:
    told = run("demo", *talking, "--max-tokens", 4, "--repeats", 1)
    assert told.code == 0, told.err
    for scenario in ("long_text", "dialogue", "code", "all together"):
        assert f"== {scenario} ==" in told.out
    assert run("demo", *talking, "--scenario", "x").code == 2


# bench


def test_bench_decode_measures_and_writes(run: Run, talking: Any, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"scenario": "own", "prompt": "hello"}) + "\n")
    shape = ("--prompts", tmp_path / "prompts.jsonl", "--max-tokens", 8, "--repeats", 1, "--quick")
    told = run("bench", "decode", *talking, *shape, "--block-size", 4, "--json", tmp_path / "out.json")
    assert told.code == 0, told.err
    methods = json.loads((tmp_path / "out.json").read_text())["scenarios"]["own"]
    assert set(methods) == {"ar", "dflash"}
    assert all(figures["identical"] for figures in methods.values())
    assert "own" in told.out
    assert run("bench", "decode", *talking, *shape, "--scenario", "x").code == 2


def test_bench_decode_ends_with_1_where_the_output_differs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"scenarios": {"code": {"ar": {"identical": True}, "dflash": {"identical": False}}}}
    monkeypatch.setattr("paceline.bench.run.bench_decode", lambda _: result)
    monkeypatch.setattr("paceline.bench.report.show", lambda _: None)
    assert run("bench", "decode").code == 1


def test_peers_are_repeated_or_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DecodeBench] = []
    monkeypatch.setattr("paceline.bench.run.bench_decode", lambda options: asked.append(options) or {"scenarios": {}})
    monkeypatch.setattr("paceline.bench.report.show", lambda _: None)
    names = ("transformers", "llama.cpp-f32", "dflash-official")
    assert run("bench", "decode", "--peers", "transformers,llama.cpp-f32", "--peer", "dflash-official").code == 0
    assert asked[0].peers == names
    assert run("bench", "decode", "--peers", "transformers,vllm").code == 2
    assert run("bench", "decode", "--method", "dflash", "--method", "lookup").code == 0
    assert asked[1].methods == ("dflash", "lookup")
    assert "methods is ('ar',). It must be a list, each 'dflash'" in run("bench", "decode", "--method", "ar").err


def test_bench_flags_are_the_fields_of_its_settings() -> None:
    asked = (
        *((decode, DecodeBench), (curve, CurveBench), (memory, MemoryBench)),
        *((quality, QualityBench), (frontier, FrontierBench), (kernels, KernelBench)),
    )
    for command, config in asked:
        flags = set(signature(command).parameters) - {"json", "plot", "config", "context"}
        assert flags == {field.name for field in fields(config)}


def test_bench_decode_is_configured_by_a_file(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[DecodeBench] = []
    monkeypatch.setattr("paceline.bench.run.bench_decode", lambda options: asked.append(options) or {"scenarios": {}})
    monkeypatch.setattr("paceline.bench.report.show", lambda _: None)
    (tmp_path / "run.yaml").write_text("precision: half\nblock_sizes: [4, 8]\nmodel: some/folder\nquick: true\n")
    assert run("bench", "decode", "--config", tmp_path / "run.yaml", "--repeats", 1).code == 0
    assert asked == [DecodeBench(model="some/folder", precision="half", block_sizes=(4, 8), quick=True, repeats=1)]
    (tmp_path / "run.yaml").write_text("precision: int3\n")
    told = run("bench", "decode", "--config", tmp_path / "run.yaml")
    assert told.code == 2
    assert "'exact' or 'mixed' or 'half'" in told.err


def test_bench_sweep_measures_and_writes(run: Run, talking: Any, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"scenario": "own", "prompt": "hello"}) + "\n")
    shape = ("--prompts", tmp_path / "prompts.jsonl", "--max-tokens", 8, "--repeats", 1)
    asked = ("--sweep", "--setting", "dflash,candidate_num=3", "--temperature", 0, "--temperature", 2)
    told = run("bench", "decode", *talking, *shape, *asked, "--json", tmp_path / "out.json")
    assert told.code == 0, told.err
    result = json.loads((tmp_path / "out.json").read_text())
    found = [(each["temperature"], each["setting"]) for each in result["points"]]
    assert found == [(heat, name) for heat in (0.0, 2.0) for name in ("ar", "chain 8", "dflash,candidate_num=3")]
    assert "Temperature 2: " in told.out


def test_bench_sweep_ends_with_1_where_an_answer_is_not_the_plain_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.bench.sweep.bench_sweep", lambda _: {"points": [{"identical": False}]})
    monkeypatch.setattr("paceline.bench.sweep_report.show_sweep", lambda _: None)
    assert run("bench", "decode", "--sweep").code == 1
    told = run("bench", "decode", "--temperature", 0, "--temperature", 1)
    assert told.code == 2
    assert "temperature is 0.0 and 1.0, without --sweep" in told.err


def test_bench_curve_measures_and_writes(run: Run, talking: Any, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"scenario": "own", "prompt": "hello"}) + "\n")
    shape = ("--prompts", tmp_path / "prompts.jsonl", "--max-tokens", 8, "--repeats", 1)
    points = ("--block-size", 1, "--block-size", 4, "--precision", "exact", "--precision", "mixed")
    told = run("bench", "curve", *talking, *shape, *points, "--json", tmp_path / "out.json")
    assert told.code == 0, told.err
    result = json.loads((tmp_path / "out.json").read_text())
    found = [(each["precision"], each["block_size"]) for each in result["points"]]
    assert found == [("exact", 1), ("exact", 4), ("mixed", 1), ("mixed", 4)]
    assert "Sweet spot: " in told.out


def test_bench_curve_ends_with_1_where_an_answer_is_not_its_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.bench.curve.bench_curve", lambda _: {"points": [{"identical": False}]})
    monkeypatch.setattr("paceline.bench.curve_report.show_curve", lambda _: None)
    assert run("bench", "curve").code == 1


def test_bench_kernels_measures_and_writes(run: Run, talking: Any, tmp_path: Path) -> None:
    shape = ("--rows", 2, "--repeats", 1, "--seconds", 0)
    told = run("bench", "kernels", *talking, *shape, "--json", tmp_path / "out.json")
    assert told.code == 0, told.err
    assert "A pass of the drafter" in told.out
    assert {point["rows"] for point in json.loads((tmp_path / "out.json").read_text())["points"]} == {2}
    assert "peer is 'transformers'" in run("bench", "kernels", "--peer", "transformers").err


# precision


@pytest.mark.parametrize("command", [("generate", "x"), ("chat",), ("demo",), ("bench", "decode"), ("bench", "curve")])
def test_an_unknown_precision_is_refused_with_the_list(run: Run, command: tuple[str, ...]) -> None:
    told = run(*command, "--precision", "int3")
    assert told.code == 2
    assert "int3" in told.err
    assert "'exact' or 'mixed' or 'half' or 'int8' or 'int8-32' or 'w8a8'." in told.err


@pytest.mark.parametrize("precision", ["exact", "mixed", "half"])
def test_generate_answers_in_every_precision(run: Run, talking: Any, precision: str) -> None:
    told = run("generate", "hello", *talking, "--precision", precision, "--max-tokens", 8, "--json")
    assert told.code == 0, told.err
    assert len(json.loads(told.out)["token_ids"]) == 8


def test_generate_is_configured_by_a_file(run: Run, talking: Any, expected: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"model: {talking[1]}\ndrafter: {talking[3]}\nmax_tokens: 20\nstop: [no such]\n")
    assert run("generate", "hello", "--config", tmp_path / "run.yaml").out == expected + "\n"


@pytest.mark.parametrize("name", ["json", "as_json"])
def test_a_file_calls_a_setting_as_its_flag_is_called(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "run.yaml").write_text(f"{name}: true\n")
    told = run("generate", *MUTE, "--prompt-ids", "1,2", "--max-tokens", 2, "--config", tmp_path / "run.yaml")
    assert json.loads(told.out)["finish_reason"] == "length", told.err
