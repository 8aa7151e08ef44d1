"""Files with sections, profiles, and `paceline config show`: who wins, and what is told of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from talking import DRAFT, TARGET, Run, run
from tiny import GOLDEN

from paceline import native
from paceline.cli.app import app
from paceline.cli.options import Decoding

__all__ = ["run"]  # a fixture

FILE = """
dflash_params:
  block_size: 12
  overlap: 3
  diffusion_steps: 5
  candidate_num: 6
  temperature: {initial: 1.1, final: 0.4}
  pruning_threshold: 0.45
apd_params:
  alpha: 0.6
  tau: 0.4
  window: 24        # window_size is accepted, too
  kv_window: 8
"""
DREAM, SMALL = GOLDEN / "apd-tiny" / "dream", GOLDEN / "apd-tiny" / "qwen2"
PAIR = ("--model", TARGET, "--drafter", DRAFT)
DRAFTED = {
    **{"block_size": 12, "overlap": 3, "diffusion_steps": 5, "candidate_num": 6, "draft_temperature": "adaptive"},
    **{"initial_temperature": 1.1, "final_temperature": 0.4, "pruning_threshold": 0.45},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(FILE)
    return tmp_path / "run.yaml"


def shown(run: Run, *arguments: object) -> dict[str, Any]:
    """What `config show --json -` says."""
    told = run("config", "show", "--json", "-", *arguments)
    assert told.code == 0, told.err
    found: dict[str, Any] = json.loads(told.out)
    return found


def pick(found: dict[str, Any], *names: str) -> dict[str, tuple[Any, str]]:
    return {name: (found["settings"][name]["value"], found["settings"][name]["from"]) for name in names}


def test_both_sections_stand_in_one_file_and_each_counts_for_its_method(run: Run, file: Path) -> None:
    found = shown(run, *PAIR, "--config", file)
    assert found["method"] == "dflash"
    assert pick(found, *DRAFTED) == {name: (value, "file") for name, value in DRAFTED.items()}
    assert found["settings"]["overlap"]["name"] == str(file)
    assert "alpha" not in found["settings"]
    found = shown(run, "--method", "apd", "--config", file)
    own = {"alpha": (0.6, "file"), "tau": (0.4, "file"), "window": (24, "file"), "kv_window": (8, "file")}
    assert pick(found, *own) == own
    assert "block_size" not in found["settings"]
    assert shown(run, "--method", "ar", "--config", file)["method"] == "ar"


def test_flags_win_over_the_file_the_file_over_the_profile(run: Run, file: Path) -> None:
    file.write_text("profile: cloud\nmax_tokens: 20\nprecision: exact\ndflash_params: {block_size: 12}\n")
    names = ("precision", "max_batch", "block_size", "diffusion_steps", "max_tokens", "overlap", "profile")
    found = shown(run, *PAIR, "--config", file, "--block-size", "auto", "--max-tokens", 9)
    assert pick(found, *names) == {
        **{"precision": ("exact", "file"), "max_batch": (8, "profile"), "block_size": ("auto", "flag")},
        **{"diffusion_steps": (6, "profile"), "max_tokens": (9, "flag"), "overlap": (0, "default")},
        "profile": ("cloud", "file"),
    }
    assert found["settings"]["max_batch"]["name"] == "cloud"
    for order in (("--profile", "edge", "--config", file), ("--config", file, "--profile", "edge")):
        found = shown(run, *PAIR, *order)
        assert pick(found, *names[:4]) == {
            **{"precision": ("exact", "file"), "max_batch": (1, "profile")},
            **{"block_size": (12, "file"), "diffusion_steps": (4, "profile")},
        }


def test_the_settings_outside_of_sections_win_over_a_profile_too(run: Run, file: Path) -> None:
    file.write_text("block_size: 6\n")
    found = shown(run, *PAIR, "--config", file, "--profile", "edge")
    assert pick(found, "block_size", "diffusion_steps") == {
        "block_size": (6, "file"),
        "diffusion_steps": (4, "profile"),
    }
    for text in ("block_size: auto", "dflash_params: {block_size: auto}"):
        file.write_text(text)
        found = shown(run, *PAIR, "--config", file, "--profile", "edge")
        assert pick(found, "block_size") == {"block_size": ("auto", "file")}


@pytest.mark.parametrize(
    ("flags", "schedule"),
    [((), ("adaptive", "file")), (("--draft-temperature", "off"), ("off", "flag")),
     (("--initial-temperature", 2), ("adaptive", "flag"))],
)  # fmt: skip
def test_temperatures_mean_a_schedule(run: Run, file: Path, flags: Any, schedule: tuple[str, str]) -> None:
    assert pick(shown(run, *PAIR, "--config", file, *flags), "draft_temperature") == {"draft_temperature": schedule}


def test_all_that_generate_and_chat_read_can_stand_in_the_file(run: Run, file: Path) -> None:
    file.write_text("json: true\nstats: true\nsystem: Be brief.\nstop: [a, b]\nseed: 3\n")
    names = pick(shown(run, "--config", file, "a prompt"), "stop", "seed")
    assert names == {"stop": (["a", "b"], "file"), "seed": (3, "file")}
    told = run("config", "show", "--config", file, "--stop", "c")
    assert told.code == 0
    assert "{" not in told.out


def test_every_setting_of_decoding_is_shown(run: Run) -> None:
    found = shown(run)
    general = {"model", "drafter", "verifier", "method", "precision", "device", "threads", "max_batch", "profile"}
    assert {"max_tokens", "temperature", "repetition_penalty", "block_size", *general} <= found["settings"].keys()
    assert general | {"settings"} == set(Decoding.__dataclass_fields__)
    assert {each["from"] for each in found["settings"].values()} == {"default"}
    models = {"model": ("pace-13m", "default"), "drafter": ("pace-13m-dflash", "default")}
    assert pick(found, *models) == models


def test_the_table_has_a_line_for_each(run: Run, file: Path, tmp_path: Path) -> None:
    told = run("config", "show", *PAIR, "--config", file, "--profile", "edge", "--window", "all", "--method", "auto")
    assert (told.code, told.out) == (2, ""), "window is a setting of another method"
    told = run("config", "show", *PAIR, "--config", file, "--profile", "edge", "--threads", 1)
    lines = {line.split()[0]: line.split()[1:] for line in told.out.splitlines()}
    assert lines["method"] == ["auto:", "dflash", "default"]
    assert lines["precision"] == ["half", "profile", "edge"]
    assert lines["block_size"] == ["12", "file", str(file)]
    assert (lines["threads"], lines["rescorer"]) == (["1", "flag"], ["-", "default"])
    told = run("config", "show", "--method", "apd", "--window", "all", "--json", tmp_path / "out.json")
    assert told.out == ""
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["settings"]["window"] == {"value": None, "from": "flag", "name": None}


def test_native_passes_are_told_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> tuple[str, list[str]]:
        return shown(run)["native"], run("config", "show").out.splitlines()[-1].split(maxsplit=2)

    monkeypatch.delenv(native.VARIABLE, raising=False)
    extension = ModuleType("extension")
    vars(extension)["instruction_sets"] = lambda: ["a", "b"]
    monkeypatch.setattr("paceline.native.choice._load", lambda: extension)
    assert told() == ("a", ["native", "a", "machine"])
    monkeypatch.setenv(native.VARIABLE, "b")
    assert told() == ("b", ["native", "b", "PACELINE_NATIVE"])
    monkeypatch.setenv(native.VARIABLE, "off")
    assert told() == ("PACELINE_NATIVE is off.", ["native", "off", "PACELINE_NATIVE is off."])
    monkeypatch.setenv(native.VARIABLE, "c")
    refused = run("config", "show")
    assert (refused.code, refused.out) == (2, "")
    assert "PACELINE_NATIVE is 'c'" in refused.err
    monkeypatch.delenv(native.VARIABLE)
    monkeypatch.setattr("paceline.native.choice._load", lambda: None)
    reason, row = told()
    assert reason.startswith("The native extension was not built")
    assert row == ["native", "off", reason]


@pytest.mark.parametrize(
    ("arguments", "method", "message"),
    [
        (("--model", "/no/such"), None, "model is '/no/such': there is no such model. Give a folder"),
        (("--model", "/no/such", "--drafter", DRAFT), "dflash", "the method is taken to be dflash"),
        (("--model", "/no/such", "--verifier", TARGET), "apd", "the method is taken to be apd"),
        (("--model", "/no/such", "--method", "diffusion"), "diffusion", "the method is taken to be diffusion"),
    ],
)
def test_a_model_that_is_not_here(run: Run, arguments: Any, method: str | None, message: str) -> None:
    told = run("config", "show", "--json", "-", *arguments)
    assert told.code == 0
    assert json.loads(told.out)["method"] == method
    assert message in told.err
    assert told.err.count("\n") == 1
    assert run("config", "show", *arguments).code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--drafter", "/no"), "drafter is '/no': there is no such model."),
        (("--drafter", "owner/name"), "drafter is 'owner/name': it is no folder here, and was not downloaded before."),
        (("--drafter", TARGET), "A drafter must be one of"),
        (("--drafter", DRAFT, "--rescorer", "/no"), "rescorer is '/no': there is no such model."),
        (
            ("--drafter", DRAFT, "--lookup", 3, "--lookup-file", "/no"),
            "lookup_file is '/no': it cannot be read: No such",
        ),
        (("--method", "lookup", "--lookup-file", "/no"), "lookup_file is '/no': it cannot be read: No such"),
        (("--model", "/none", "--drafter", "/no"), "drafter is '/no': there is no such model."),
        (("--model", DREAM, "--verifier", "/no"), "verifier is '/no': there is no such model."),
        (("--model", DREAM, "--verifier", SMALL, "--ngrams", "/no"), "ngrams is '/no': it has no ngrams.npz."),
    ],
)
def test_whatever_is_not_here_is_warned_of(run: Run, arguments: Any, told: str) -> None:
    found = run("config", "show", "--model", TARGET, *arguments)
    assert found.code == 0
    assert told in found.err
    assert found.err.count("\n") == found.err.count("Warning: ") == 1 + ("/none" in arguments)


def test_showing_creates_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    assert run("config", "show", "--json", "-", "--drafter", "owner/name").code == 0
    told = run("config", "show", "--json", tmp_path / "missing" / "out.json")
    assert (told.code, told.out) == (2, "")
    assert f"there is no folder '{tmp_path / 'missing'}'. Make it first, or give - for stdout." in told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("generate", "text"), ("config", "show")])
@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (
            "dflash_params: {blok_size: 4}",
            (),
            "sets 'dflash_params.blok_size' to 4: no such setting. Did you mean dflash_",
        ),
        ("dflash_params: {block_size: 65}", (), "dflash_params.block_size is 65 in"),
        ("dflash_params: {block_size: 65}", ("--method", "ar"), "from 1 to 64"),
        ("dflash_params: {temperature: {initial: 0}}", (), "dflash_params.temperature.initial is 0 in"),
        ("dflash_params: {temperature: {first: 1}}", (), "Allowed are: dflash_params.block_size"),
        ("dflash_params: 12", (), "dflash_params is 12 in"),
        ("apd_params: {window: 4, window_size: 5}", (), "apd_params.window is 4 and apd_params.window_size is 5 in"),
        ("dflash_params: {block_size: 4}\nblock_size: 5", (), "dflash_params.block_size is 4 and block_size is 5 in"),
        ("apd_params: {block_size: 4}", (), "sets 'apd_params.block_size' to 4: no such setting."),
        ("alpha: 0.5", (), "run.yaml, and the method is 'dflash': it is a setting of apd."),
        ("profile: phone", (), "profile is 'phone' in"),
        ("", ("--profile", "phone"), "profile is 'phone'. It must be 'edge' or 'cloud' or null."),
        ("", ("--top-p", 3), "top_p is 3"),
        ("max_batch: 0", (), "max_batch is 0 in"),
    ],
)
def test_what_cannot_be_is_one_line(run: Run, file: Path, command: Any, text: str, flags: Any, message: str) -> None:
    file.write_text(text)
    told = run(*command, "--config", file, *flags)
    assert (told.code, told.out) == (2, "")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_generate_decodes_by_the_file_and_the_profile(run: Run, file: Path) -> None:
    def rounds(*arguments: object) -> list[dict[str, Any]]:
        told = run("generate", *PAIR, "--prompt-ids", "58,83,11,40", "--max-tokens", 24, "--json", *arguments)
        assert told.code == 0, told.err
        found: list[dict[str, Any]] = json.loads(told.out)["rounds"]
        return found

    file.write_text("dflash_params: {block_size: 5}\napd_params: {alpha: 0.6}\n")
    assert max(len(each["proposed"]) for each in rounds("--config", file)) == 4
    assert max(len(each["proposed"]) for each in rounds("--config", file, "--block-size", 3)) == 2
    assert max(len(each["proposed"]) for each in rounds("--profile", "edge")) == 7
    file.write_text(FILE)
    assert any(each["parents"] for each in rounds("--config", file)), "six candidates are a tree"


def test_it_answers_without_torch(file: Path) -> None:
    code = (
        "import sys, pytest\n"
        "from paceline.cli import main\n"
        f"with pytest.raises(SystemExit): main(['config', 'show', '--config', {str(file)!r}])\n"
        "assert not {'torch', 'transformers', 'tokenizers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_command_is_there() -> None:
    assert "config" in [group.name for group in app.registered_groups]


BESIDE = "dflash_params.prompt_lookup_max is 4 in {}. The first must not be greater."


@pytest.mark.parametrize("command", [("generate", "text"), ("config", "show")])
@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (
            "dflash_params: {lookup: 9, prompt_lookup_min: 9, prompt_lookup_max: 4}",
            (),
            "dflash_params.prompt_lookup_min is 9 in {}, and " + BESIDE,
        ),
        (
            "dflash_params: {lookup: 9, prompt_lookup_max: 4}",
            ("--prompt-lookup-min", 9),
            "prompt_lookup_min is 9, and " + BESIDE,
        ),
        ("overlap: 9", ("--block-size", 4), "overlap is 9 in {}, and block_size is 4: the largest that has an effect"),
        ("overlap: 9", ("--profile", "edge"), "overlap is 9 in {}, and dflash_params.block_size is 8 in profile edge:"),
        ("tau: 0.5", ("--method", "dflash"), "tau is set in {}, and the method is 'dflash': it is a setting of apd."),
        ("drafter: x", ("--method", "ar"), "drafter is 'x' in {}, and the method is 'ar', which uses none."),
        ("diffusion_params: {steps: 4, threshold: 0.5}", (), "diffusion_params.threshold is 0.5 in {}, and diffusion_"),
        ("block_size: 4", ("--block-size", 2, "--overlap", 1), "overlap is 1, and block_size is 2: it has no effect."),
        (
            "candidate_num: 010\nblock_size: 1",
            (),
            "candidate_num is 10 in {}, and block_size is 1 in {}: it has no eff",
        ),
    ],
)
def test_settings_at_odds_are_told_with_section_and_file(
    run: Run, file: Path, command: Any, text: str, flags: Any, message: str
) -> None:
    file.write_text(text)
    told = run(*command, "--config", file, *flags)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("Error: " + message.replace("{}", str(file)))


def test_a_profile_beside_a_smaller_block_is_let_be(run: Run, file: Path) -> None:
    found = shown(run, *PAIR, "--profile", "cloud", "--block-size", 2)
    assert pick(found, "block_size", "diffusion_steps") == {
        "block_size": (2, "flag"),
        "diffusion_steps": (6, "profile"),
    }


def test_one_text_that_ends_the_answer(run: Run, file: Path) -> None:
    file.write_text("stop: abc\n")
    assert pick(shown(run, "--config", file), "stop") == {"stop": (["abc"], "file")}
