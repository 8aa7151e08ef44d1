"""Other programs beside ours: what each is called with, what is read off it, and that all say the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from tiny import GOLDEN, tiny_spec, tiny_transformer, write_checkpoint

from paceline.bench.figures import all_identical
from paceline.bench.method import Task, pass_bytes
from paceline.bench.options import DecodeBench
from paceline.bench.peers import Given, open_peers
from paceline.bench.peers.hugging_face import _Rounds, load_model, model_bytes
from paceline.bench.peers.llama import llama_passes
from paceline.bench.peers.official import _clock_for, official
from paceline.bench.report import show
from paceline.bench.run import bench_decode
from paceline.errors import ConfigError
from paceline.models.load import load_transformer

TARGET, DRAFTER = GOLDEN / "dflash-v1-full" / "target", GOLDEN / "dflash-v1-full" / "draft"
ON_TRANSFORMERS = ("transformers", "transformers-lookup", "transformers-assisted", "dflash-official")
THEIR_WARNINGS = (
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
)


@pytest.fixture
def given() -> Given:
    return Given(TARGET, DRAFTER, None, torch.float32, torch.device("cpu"), True, frozenset({7}), 40)


@pytest.fixture
def options(tmp_path: Path) -> DecodeBench:
    """Two prompts; the second repeats itself, so that there is something to look up."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_ids": [3, 10, 17, 24]}\n{"prompt_ids": [5, 9, 13, 5, 9, 13, 5, 9]}\n')
    return DecodeBench(TARGET, DRAFTER, prompts=prompts, max_tokens=24, repeats=1)


def with_warnings(test: Any) -> Any:
    for mark in THEIR_WARNINGS:
        test = mark(test)
    return test


@pytest.mark.slow
@with_warnings
def test_all_say_the_same_and_the_official_loop_has_our_rounds(options: DecodeBench) -> None:
    for package in ("transformers", "dflash"):
        pytest.importorskip(package)
    result = bench_decode(replace(options, block_sizes=(8,), peers=ON_TRANSFORMERS, assistant=TARGET))
    methods = result["scenarios"]["custom"]
    assert list(methods) == ["ar", "dflash", *ON_TRANSFORMERS]
    for figures in methods.values():
        assert figures["identical"]
        assert figures["lossless"]
        assert figures["tokens"] == methods["ar"]["tokens"]
        assert figures["bytes_per_pass"] == methods["ar"]["bytes_per_pass"]
        assert figures["prompt_seconds"] > 0.0
    assert methods["dflash-official"]["tokens_per_round"] == methods["dflash"]["tokens_per_round"]
    assert methods["transformers"]["acceptance_length"] == 1.0
    assert methods["transformers-assisted"]["acceptance_length"] > 3.0, "the target drafts for itself"
    assert methods["transformers-assisted"]["verify_seconds"] == 0.0
    assert methods["transformers"]["verify_seconds"] > 0.0


@pytest.mark.slow
@with_warnings
def test_an_assistant_of_other_tokens_is_refused(given: Given, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    other = write_checkpoint(tmp_path, tiny_transformer(tiny_spec(), dtype=torch.float32))
    with pytest.raises(ConfigError, match="assistant has 64 ids, the target 256"):
        open_peers(("transformers-assisted",), replace(given, assistant_folder=other))


@pytest.mark.slow
@pytest.mark.parametrize("folder", [TARGET, GOLDEN / "qwen3-tied-tiny"], ids=["untied", "tied"])
def test_theirs_and_ours_read_equal_bytes(folder: Path, given: Given) -> None:
    pytest.importorskip("transformers")
    assert model_bytes(load_model(folder, given)) == pass_bytes(load_transformer(folder, torch.float32, trainable=True))


def test_rounds_are_told_by_the_streamer() -> None:
    rounds = _Rounds()
    for size in (5, 3, 1):  # the prompt, and two passes
        rounds.put(torch.zeros(size))
    rounds.end()
    assert rounds.sizes == [3, 1]
    assert rounds.first_seconds > 0.0


def test_the_clock_of_the_wheel_is_replaced_without_cuda_and_put_back() -> None:
    def needs_cuda() -> float:
        raise AssertionError

    library = SimpleNamespace(_cuda_time=needs_cuda)
    with _clock_for(library, torch.device("cpu")):
        assert library._cuda_time() > 0.0
    assert library._cuda_time is needs_cuda
    with pytest.raises(AssertionError), _clock_for(library, torch.device("cuda")):
        library._cuda_time()
    with pytest.raises(KeyError), _clock_for(library, torch.device("cpu")):
        raise KeyError
    assert library._cuda_time is needs_cuda


@pytest.mark.slow
@with_warnings
def test_the_official_loop_samples_with_the_seed_of_the_prompt(given: Given, options: DecodeBench) -> None:
    """It promises another text of the same law, gives the same one again, and leaves torch's random numbers alone."""
    for package in ("transformers", "dflash"):
        pytest.importorskip(package)
    method = open_peers(("dflash-official",), replace(given, temperature=2.0))["dflash-official"]
    assert not method.lossless
    torch.manual_seed(5)
    first, again, other = (method.decode(Task("a", (3, 10, 17, 24), 24, seed)).tokens for seed in (1, 1, 2))
    assert first == again != other
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    result = bench_decode(replace(options, temperatures=(2.0,), peers=("dflash-official",)))
    assert all_identical(result["scenarios"]), "it is measured, and not held to our text"
    console = Console(width=120)
    with console.capture() as capture:
        show(result, console)
    assert "custom, dflash-official: " in capture.get()
    assert "dentical" not in capture.get()


def test_the_official_loop_needs_a_drafter(given: Given) -> None:
    with pytest.raises(ConfigError, match=r"needs a drafter.*--drafter"):
        official(None, replace(given, drafter_folder=None))


@pytest.mark.parametrize(
    ("peer", "package"),
    [("transformers-lookup", "transformers"), ("llama.cpp-f16", "llama_cpp"), ("llama.cpp-f32", "llama_cpp")],
)
def test_a_missing_program_is_named(peer: str, package: str, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package}.*not installed.*pip install 'paceline\[peers\]'"):
        open_peers((peer,), given)


class ScriptedLlama:
    """llama_cpp.Llama as far as the peer uses it: counts upwards from the last token of the prompt."""

    def __init__(self, path: str, **settings: Any) -> None:
        assert Path(path).is_file()
        self.path, self.settings, self.resets = path, settings, 0
        self.n_tokens, self.read = 0, list[tuple[int, list[int]]]()

    def reset(self) -> None:
        self.resets += 1

    def eval(self, tokens: list[int]) -> None:
        self.read.append((self.n_tokens, tokens))
        self.n_tokens += len(tokens)

    def generate(self, tokens: list[int], **settings: Any) -> Iterator[int]:
        assert settings == {"temp": 0.0, "repeat_penalty": 1.0}
        for step in range(1, 100):
            if step == 1 or "draft_model" not in self.settings or step % 2 == 0:
                self.eval([step])
            yield tokens[-1] + step


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
def test_llama_cpp_is_called_as_documented(kind: str, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    made: list[ScriptedLlama] = []

    def llama(path: str, **settings: Any) -> ScriptedLlama:
        made.append(ScriptedLlama(path, **settings))
        return made[0]

    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=llama))
    method = open_peers((f"llama.cpp-{kind}",), given)[f"llama.cpp-{kind}"]
    assert method.lossless == (kind == "f32")
    assert not Path(made[0].path).exists()
    assert made[0].settings["n_ctx"] == 40
    assert made[0].settings["n_threads"] == made[0].settings["n_threads_batch"] == torch.get_num_threads()
    assert ("type_k" in made[0].settings) == (kind == "f32")
    ended, limited = method.decode(Task("a", (1, 4), 9, 0)), method.decode(Task("b", (1, 20), 3, 0))
    assert made[0].resets == 2, "nothing of the answer before is reused"
    assert (ended.tokens, ended.committed) == ((5, 6, 7), (1, 1))
    assert limited.tokens == (21, 22, 23)
    assert 0.0 < limited.prompt_seconds <= limited.total_seconds


def test_tokens_of_a_pass_with_drafts_are_counted(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    drafts = SimpleNamespace(LlamaPromptLookupDecoding=lambda num_pred_tokens: f"{num_pred_tokens} by lookup")

    def llama(path: str, **settings: Any) -> ScriptedLlama:
        assert (settings["n_ctx"], settings["draft_model"]) == (50, "10 by lookup"), "the last drafts need room, too"
        return ScriptedLlama(path, **settings)

    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=llama))
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", drafts)
    method = open_peers(("llama.cpp-f32-lookup",), given)["llama.cpp-f32-lookup"]
    for _ in range(2):
        sample = method.decode(Task("a", (1, 20), 6, 0))
        assert (sample.tokens, sample.committed) == ((21, 22, 23, 24, 25, 26), (2, 2, 1))


def test_llama_cpp_promises_nothing_in_half_precision_and_runs_on_a_cpu(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=ScriptedLlama))
    half = open_peers(("llama.cpp-f32",), replace(given, dtype=torch.bfloat16, exact=False))
    assert not half["llama.cpp-f32"].lossless
    with pytest.raises(ConfigError, match="--device cpu"):
        open_peers(("llama.cpp-f32",), replace(given, device=torch.device("meta")))


def test_passes_of_llama_cpp_all_begin_behind_the_context(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    made: list[ScriptedLlama] = []

    def llama(path: str, **settings: Any) -> ScriptedLlama:
        made.append(ScriptedLlama(path, **settings))
        return made[0]

    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=llama))
    read, nbytes = llama_passes("f32", given, (5, 6, 7))
    one, two = read([1]), read([1, 2])
    for call in (one, two, two):
        call()
    assert made[0].read == [(0, [5, 6, 7]), (3, [1]), (3, [1, 2]), (3, [1, 2])]
    assert made[0].settings["logits_all"], "of every row, as ours"
    assert nbytes > 0


@pytest.mark.slow
def test_llama_cpp_gives_the_same_tokens(options: DecodeBench) -> None:
    pytest.importorskip("llama_cpp")
    names = ("llama.cpp-f32", "llama.cpp-f16", "llama.cpp-bf16", "llama.cpp-q8_0")
    methods = bench_decode(replace(options, peers=names))["scenarios"]["custom"]
    assert methods["llama.cpp-f32"]["identical"]
    read = [methods[name]["bytes_per_pass"] for name in names]
    assert read == sorted(read, reverse=True)
    for name in names:
        assert methods[name]["acceptance_length"] == 1.0
        assert methods[name]["lossless"] == (name == "llama.cpp-f32")
