"""Dream and LLaDA against the reference implementations: hidden states and logits of tiny checkpoints."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import GOLDEN, run_flat, same_weights, tiny_cache, write_checkpoint
from torch import Tensor

from paceline.errors import CheckpointError, UnsafeCheckpoint, UnsupportedModel
from paceline.models.diffusion_spec import Diffusion
from paceline.models.load import load_transformer
from paceline.models.safetensors_file import read_json
from paceline.models.spec import transformer_spec

TOLERANCE = 1e-4
CASES = {"dream-tiny": Diffusion(254, 1), "llada-tiny": Diffusion(254, 0)}


@cache
def expected(case: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / case / "expected.safetensors")


def config_of(case: str, **changes: Any) -> dict[str, Any]:
    return {**read_json(GOLDEN / case / "config.json"), **changes}


def close(actual: Tensor, reference: Tensor) -> bool:
    return actual.shape == reference.shape and float((actual - reference).abs().max()) < TOLERANCE


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("trainable", [False, True], ids=["prepared", "plain"])
def test_a_ragged_batch_gives_reference_logits_and_hidden_states(case: str, trainable: bool) -> None:
    model = load_transformer(GOLDEN / case, torch.float32, trainable=trainable).requires_grad_(False)
    values, sequences = expected(case), json.loads((GOLDEN / case / "cases.json").read_text())["sequences"]
    layers = range(model.spec.num_layers)
    output = run_flat(model, sequences, [tiny_cache(model) for _ in sequences], layers)
    assert close(model.head(output.hidden), torch.cat([values["logits0"], values["logits1"]]))
    assert close(model.embed(torch.tensor(sequences[0])), values["hidden_states0.0"])
    assert output.features is not None
    for layer, states in zip(layers, output.features[: len(sequences[0])].chunk(len(layers), -1), strict=True):
        assert close(states, values[f"hidden_states0.{layer + 1}"])


@pytest.mark.parametrize("case", CASES)
def test_the_specification_says_what_decoding_must_know(case: str) -> None:
    spec = transformer_spec(config_of(case))
    assert spec.diffusion == CASES[case]
    assert spec.eos_token_ids == (255,)


@pytest.mark.parametrize("case", CASES)
def test_a_saved_model_is_read_back_as_the_same(case: str, tmp_path: Any) -> None:
    model = load_transformer(GOLDEN / case, torch.float32, trainable=True)
    again = load_transformer(write_checkpoint(tmp_path, model), torch.float32, trainable=True)
    assert again.spec == model.spec
    assert same_weights(again, model)


def test_a_section_of_ours_makes_any_family_a_diffusion_model(tmp_path: Any) -> None:
    ours = config_of("dream-tiny", model_type="qwen2", paceline={"diffusion": {"mask_token_id": 7, "shifted": True}})
    assert transformer_spec(ours).diffusion == Diffusion(7, 1)
    assert transformer_spec({**ours, "paceline": {"diffusion": {"mask_token_id": 7}}}).diffusion == Diffusion(7, 0)
    assert transformer_spec({**ours, "paceline": {}}).diffusion is None


def test_the_code_they_were_released_with_is_not_run_and_does_no_harm() -> None:
    theirs = {"AutoConfig": "configuration_llada.LLaDAConfig", "AutoModel": "modeling_llada.LLaDAModelLM"}
    assert transformer_spec(config_of("llada-tiny", auto_map=theirs)).family == "llada"
    for evil in ({"AutoModel": "evil.Model"}, {**theirs, "AutoModelForCausalLM": "evil.Model"}, {"AutoModel": 7}):
        with pytest.raises(UnsafeCheckpoint, match="auto_map"):
            transformer_spec(config_of("llada-tiny", auto_map=evil))
    with pytest.raises(UnsafeCheckpoint, match="auto_map"):
        transformer_spec(config_of("dream-tiny", auto_map=theirs))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alibi", True),
        ("layer_norm_type", "default"),
        ("block_type", "sequential"),
        ("rope", False),
        ("scale_logits", 1),
    ],
)
def test_other_switches_of_lladas_code_are_refused(key: str, value: object) -> None:
    with pytest.raises(UnsupportedModel, match=key):
        transformer_spec(config_of("llada-tiny", **{key: value}))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("value", [None, -1, "x", 1.5])
def test_a_mask_token_that_is_none_is_refused(case: str, value: object) -> None:
    with pytest.raises(CheckpointError, match="mask_token_id"):
        transformer_spec(config_of(case, mask_token_id=value))
