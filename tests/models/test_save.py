"""Saving: what is loaded is what was saved, other tools open it, and a failed save leaves the old checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import (
    run_flat,
    same_weights,
    tiny_cache,
    tiny_drafter,
    tiny_drafter_spec,
    tiny_spec,
    tiny_transformer,
    write_checkpoint,
)
from torch import Tensor

from paceline.models.drafter_spec import DFlash2
from paceline.models.load import (
    load_drafter,
    load_transformer,
)
from paceline.models.save import save_drafter, save_transformer
from paceline.models.transformer import Transformer

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def logits(model: Transformer, tokens: list[int]) -> Tensor:
    out: Tensor = model.head(run_flat(model, [tokens], [tiny_cache(model)]).hidden)
    return out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_is_loaded_bit_for_bit(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec(family, eos_token_ids=(3,)), dtype=dtype)
    loaded = load_transformer(write_checkpoint(tmp_path / "new" / "folder", model))
    assert loaded.spec == model.spec
    assert same_weights(loaded, model)
    assert {parameter.dtype for parameter in loaded.parameters()} == {dtype}


def test_saving_rounds_to_bfloat16_once(tmp_path: Path) -> None:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    save_transformer(model, tmp_path)
    loaded = load_transformer(tmp_path)
    assert same_weights(loaded, model.to(torch.bfloat16))
    save_transformer(loaded, tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("v2", [None, DFlash2(2, 4, 3, 6)])
def test_a_saved_drafter_is_loaded_bit_for_bit(v2: DFlash2 | None, tmp_path: Path) -> None:
    target = tiny_transformer(tiny_spec(num_layers=4))
    drafter = tiny_drafter(tiny_drafter_spec(target.spec, final_logit_softcapping=9.0, v2=v2), target)
    loaded = load_drafter(write_checkpoint(tmp_path, drafter), target)
    assert loaded.spec == drafter.spec
    assert same_weights(loaded, drafter)
    save_drafter(drafter, tmp_path, torch.float32)
    assert load_drafter(tmp_path, target).fc.weight.dtype == torch.float64, "the target's precision"


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_transformer(tiny_spec(), dtype=torch.float32)
    write_checkpoint(tmp_path, model)

    def fail(_: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("paceline.models.save.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(tmp_path, tiny_transformer(tiny_spec(), seed=9))
    assert same_weights(load_transformer(tmp_path), model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "spec",
    [
        tiny_spec("llama", eos_token_ids=(3,)),
        tiny_spec("mistral", windows=(5, 5)),
        tiny_spec("qwen2", windows=(None, 6)),
        tiny_spec("qwen3", tied_head=True),
    ],
    ids=FAMILIES,
)
def test_transformers_opens_what_is_saved(spec: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = tiny_transformer(spec, dtype=torch.float32)
    write_checkpoint(tmp_path, model)
    reference, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens = [(7 * i) % 64 for i in range(20)]
    with torch.no_grad():
        theirs = reference(torch.tensor([tokens])).logits[0]
    assert reference.dtype == torch.float32
    assert float((logits(model, tokens) - theirs).abs().max()) < 1e-4
