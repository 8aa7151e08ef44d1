"""Attention's bytes grow slower than length^1.5 in every kind of pass; they are counted, so nothing here is random."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import tiny_spec
from torch.nn.functional import scaled_dot_product_attention

from paceline.bench.footprint import TensorMemory
from paceline.bench.memory import PASSES, bench_memory, exponent, passes
from paceline.bench.memory_options import MemoryBench
from paceline.bench.memory_report import show_memory
from paceline.bench.report import save_plot
from paceline.errors import ConfigError, UnsupportedModel
from paceline.models.diffusion_spec import Diffusion
from paceline.models.save import save_transformer
from paceline.models.transformer import Transformer

LENGTHS = (256, 512, 1024, 2048, 4096)


@pytest.mark.parametrize("windows", [(None, None), (None, 300)])
def test_every_pass_grows_slower_than_the_issue_asks(windows: tuple[int | None, ...]) -> None:
    spec, dllm = (tiny_spec(num_heads=2, num_kv_heads=1, windows=each) for each in (windows, (None, None)))
    found = [passes(spec, dllm, length) for length in LENGTHS]
    assert set(found[0]) == set(PASSES)
    for name in PASSES:
        assert exponent(LENGTHS, [each[name] for each in found]) <= 1.5, name
    assert found[:2] == [passes(spec, dllm, length) for length in LENGTHS[:2]], "counted, so the same every time"


def test_a_square_is_seen_as_one() -> None:
    """What the bytes would be with a mask for all rows at once, by the same count."""
    sizes = []
    for length in LENGTHS[:3]:
        q = torch.zeros(1, 1, length, 4)
        with torch.inference_mode(), TensorMemory() as memory:
            scaled_dot_product_attention(q, q, q, attn_mask=torch.zeros(length, length))
        assert memory.peak_bytes >= 4 * length**2
        sizes.append(memory.peak_bytes)
    assert exponent(LENGTHS[:3], sizes) > 1.9


def test_the_exponent_is_that_of_a_power_law() -> None:
    assert exponent((10, 20, 40), (300, 1200, 4800)) == pytest.approx(2.0)
    assert exponent((10, 20, 40), (7, 7, 7)) == pytest.approx(0.0)


def test_the_result_is_shown_kept_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    save_transformer(Transformer(tiny_spec()), tmp_path / "ar", torch.float32)
    result = bench_memory(MemoryBench(model=tmp_path / "ar", lengths=(16, 32)))
    assert result == json.loads(json.dumps(result))
    show_memory(result)
    assert "keys and values" in capsys.readouterr().out
    save_plot(result, tmp_path / "memory.svg")
    assert "kv_window" in (tmp_path / "memory.svg").read_text()


def test_models_of_the_wrong_kind_and_single_lengths_are_refused(tmp_path: Path) -> None:
    save_transformer(Transformer(tiny_spec()), tmp_path / "ar", torch.float32)
    save_transformer(Transformer(tiny_spec(diffusion=Diffusion(63, 0))), tmp_path / "dllm", torch.float32)
    with pytest.raises(UnsupportedModel, match=r"model is '.*dllm', a diffusion language model\. Name it with --dllm"):
        bench_memory(MemoryBench(model=tmp_path / "dllm"))
    with pytest.raises(UnsupportedModel):
        bench_memory(MemoryBench(model=tmp_path / "ar", dllm=tmp_path / "ar"))
    with pytest.raises(ConfigError, match="lengths"):
        MemoryBench(lengths=(64, 64))
    assert bench_memory(MemoryBench(model=tmp_path / "ar", dllm=tmp_path / "dllm", lengths=(8, 16)))["exponents"]
