"""What settings name on disk, told of before any weights are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from talking import DRAFT, TARGET, talking, talking_pair
from tiny import GOLDEN
from tiny_tokenizers import byte_level, save

from paceline import LLM
from paceline.bench.options import DecodeBench
from paceline.bench.quality import bench_quality
from paceline.bench.quality_options import QualityBench
from paceline.bench.sweep import bench_sweep
from paceline.decode.adaptive import Adaptive
from paceline.decode.named import NGRAMS, check_files, find_lookup_file, find_ngrams, find_rescorer, named_by
from paceline.decode.remasking import Remasking
from paceline.decode.speculation import Lookup, Speculation
from paceline.errors import CheckpointError, ConfigError, UnsafeCheckpoint, VocabularyMismatch

DREAM = GOLDEN / "apd-tiny" / "dream"


@pytest.fixture
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading any fails; relative names are of an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("paceline.models.load.read_tensors", lambda _: pytest.fail("read weights"))


@pytest.mark.parametrize(
    ("settings", "param", "told"),
    [
        ({"drafter": "nowhere"}, "drafter", "drafter is 'nowhere': there is no such model. Give a folder"),
        ({"drafter": "."}, "drafter", "drafter is '.': config.json cannot be read: No such file"),
        ({"drafter": TARGET}, "drafter", "A drafter must be one of: DFlashDraftModel"),
        ({"drafter": "pace-13m-dflash"}, "drafter", "num_target_layers is 16; the target has 6 layers. Take the"),
        ({"drafter": DRAFT, "rescorer": "nowhere"}, "rescorer", "rescorer is 'nowhere': there is no such model."),
        ({"drafter": DRAFT, "rescorer": "."}, "rescorer", "rescorer is '.': config.json cannot be read"),
        ({"drafter": DRAFT, "rescorer": DRAFT}, "rescorer", "is a DFlash drafter, not a model. Give"),
        ({"drafter": DRAFT, "rescorer": DREAM}, "rescorer", "a diffusion language model: it has no next token. Give a"),
        (
            {"drafter": DRAFT, "dflash_params": {"rescorer": "x"}},
            "rescorer",
            "rescorer is 'x': there is no such model.",
        ),
        (
            {"drafter": DRAFT, "lookup": 3, "lookup_file": "x"},
            "lookup_file",
            "lookup_file is 'x': it cannot be read: No",
        ),
        ({"method": "lookup", "lookup_file": "."}, "lookup_file", "Is a directory. Name a file of UTF-8 text."),
    ],
)
def test_what_is_named_wrongly_is_told_before_weights_are_read(
    settings: dict[str, Any], param: str, told: str, no_weights: None
) -> None:
    with pytest.raises(ConfigError) as caught:
        LLM(TARGET, **settings)
    assert told in str(caught.value)
    assert (caught.value.param, bool(caught.value.remedy)) == (param, True)


def test_a_rescorer_of_other_tokens_is_told_before_weights_are_read(tmp_path: Path, no_weights: None) -> None:
    pair = talking_pair(tmp_path)
    other = talking(TARGET, tmp_path / "other")
    save(other, byte_level(), {})
    with pytest.raises(VocabularyMismatch, match=f"^rescorer is '{other}': The tokenizers have") as caught:
        LLM(pair[0], drafter=pair[1], rescorer=other)
    assert caught.value.param == "rescorer"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"rescorer": "nowhere"}, "rescorer is 'nowhere': there is no such model."),
        ({"settings": ("dflash,candidate_num=6,rescorer=x",)}, "rescorer is 'x': there is no such model."),
        ({"settings": ("dflash,lookup=6,lookup_file=x",)}, "lookup_file is 'x': it cannot be read: No such file"),
        ({"drafter": "nowhere"}, "drafter is 'nowhere': there is no such model."),
        ({"drafter": "nowhere", "inflate": 2}, "drafter is 'nowhere': there is no such model."),
    ],
)
def test_a_sweep_tells_it_before_weights_are_read(settings: dict[str, Any], told: str, no_weights: None) -> None:
    with pytest.raises(ConfigError, match=told):
        bench_sweep(DecodeBench(**{"model": TARGET, "drafter": DRAFT, "sweep": True, **settings}))


def test_so_does_a_benchmark_of_quality(no_weights: None) -> None:
    asked: dict[str, Any] = {"target": TARGET, "reference": "ar", "problems": 1}
    with pytest.raises(ConfigError, match=r"ngrams is 'x': it has no ngrams\.npz"):
        bench_quality(QualityBench(**asked, settings=("apd,ngrams=x",)))
    with pytest.raises(ConfigError, match="dllm is 'x': there is no such model"):
        bench_quality(QualityBench(**asked, dllm="x", settings=("diffusion",)))


def test_what_does_not_count_is_not_looked_for() -> None:
    for settings in (None, Speculation(), Lookup(), Adaptive(), Remasking()):
        check_files(settings)
    assert find_rescorer(Speculation(block_size=4, rescorer="x")) is None  # a chain
    assert find_lookup_file(Speculation(lookup_file="x")) is None


def test_tables_are_known_by_their_file(tmp_path: Path) -> None:
    (tmp_path / NGRAMS).touch()
    found = find_rescorer(Speculation(rescorer=tmp_path))
    assert found is not None
    assert (found.folder, found.spec) == (tmp_path, None)
    assert find_ngrams(Adaptive(ngrams=str(tmp_path))) == tmp_path


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    """Whoever opens one waits for its other end, and what was read of it is gone."""
    os.mkfifo(tmp_path / "pipe")
    assert find_lookup_file(Lookup(lookup_file=tmp_path / "pipe")) == tmp_path / "pipe"


@pytest.mark.parametrize("kind", [UnsafeCheckpoint, VocabularyMismatch])
def test_what_else_a_checkpoint_can_be_stays_what_it_is(kind: type[CheckpointError]) -> None:
    with pytest.raises(kind, match=r"^drafter is 'x': told\. Do that\.") as caught, named_by("drafter", "x"):
        raise kind("told.", remedy="Do that.")
    assert caught.value.param == "drafter"
