"""config.json -> DrafterSpec: where its keys stand, what is guessed, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from tiny import GOLDEN, tiny_drafter_spec, tiny_spec

from paceline.errors import CheckpointError, UnsafeCheckpoint, UnsupportedModel
from paceline.models.drafter_spec import DFlash2, DrafterSpec, default_target_layer_ids, drafter_spec
from paceline.models.save import drafter_config
from paceline.models.spec import transformer_spec


def drafter(**changes: Any) -> dict[str, Any]:
    """The configuration of the golden drafter; `...` removes a key."""
    config = {**json.loads((GOLDEN / "dflash-v1-full" / "draft" / "config.json").read_text()), **changes}
    return {key: value for key, value in config.items() if value is not ...}


@pytest.mark.parametrize("module", ["dflash", "modeling_dflash"])
def test_the_code_that_drafters_were_released_with_is_not_run_and_does_no_harm(module: str) -> None:
    theirs = {"AutoModel": f"{module}.DFlashDraftModel"}
    assert drafter_spec({**drafter(), "auto_map": theirs}) == drafter_spec(drafter())
    for evil in (
        {"AutoModelForCausalLM": "modeling_evil.Evil"},
        {"AutoModel": f"{module}.Evil"},
        {**theirs, "AutoConfig": "evil.Config"},
        {"AutoModel": 7},
    ):
        with pytest.raises(UnsafeCheckpoint, match="auto_map"):
            drafter_spec({**drafter(), "auto_map": evil})
    target = json.loads((GOLDEN / "llama-tiny" / "config.json").read_text())
    with pytest.raises(UnsafeCheckpoint, match="auto_map"):
        transformer_spec({**target, "auto_map": theirs})
    with pytest.raises(UnsupportedModel, match="architectures"):
        drafter_spec({**drafter(), "auto_map": theirs, "architectures": ["Evil"]})


def test_default_taps_match_the_published_table() -> None:
    table = json.loads((GOLDEN / "dflash-v1-sliding" / "cases.json").read_text())["default_target_layer_ids"]
    assert len(table) > 20
    for key, taps in table.items():
        assert list(default_target_layer_ids(*map(int, key.split(",")))) == taps


LOADING_01 = {"num_hidden_layers": 5, "block_size": 8, "num_target_layers": 64, "layer_types": ...}


def test_missing_taps_are_guessed_and_marked() -> None:
    spec = drafter_spec(drafter(**LOADING_01, dflash_config={"mask_token_id": 151669}, vocab_size=151936))
    assert (spec.target_layer_ids, spec.guessed_taps) == ((1, 16, 31, 46, 61), True)
    assert not drafter_spec(drafter()).guessed_taps


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 9, 99]}}, "target_layer_ids contains 99.*64"),
        ({"target_layer_ids": [1, 9, 64], "dflash_config": {"mask_token_id": 5}}, "target_layer_ids contains 64"),
        ({"dflash_config": {"target_layer_ids": [1, 9, 17]}}, "mask_token_id is None"),
        ({"dflash_config": {"mask_token_id": 5}, "block_size": ...}, "block_size is None"),
        ({"dflash_config": {"mask_token_id": 5}, "num_target_layers": ...}, "num_target_layers is None"),
    ],
)
def test_a_drafter_that_lacks_something_is_refused_by_key(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        drafter_spec(drafter(**{**LOADING_01, **changes}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sample_from_anchor": True}, "slot 0"),
        ({"dflash_config": {"mask_token_id": 5, "conv_kernel_size": 2}}, "conv_kernel_size is 2, which is of DFlash 2"),
        ({"selector_top_k": 16}, "selector_top_k is 16, which is of DFlash 2"),
        ({"architectures": ["DFlash3DraftModel"]}, "DFlash3DraftModel"),
        ({"architectures": ["DFlashDraftModel", "DFlash2DraftModel"]}, "architectures is"),
        ({"architectures": None}, "None"),
    ],
)
def test_other_drafters_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        drafter_spec(drafter(**changes))


def second(**changes: Any) -> dict[str, Any]:
    """The configuration of the golden DFlash 2 drafter, with other sizes; `...` removes one."""
    config = json.loads((GOLDEN / "dflash-v2" / "draft" / "config.json").read_text())
    inner = {**config["dflash_config"], **changes}
    return {**config, "dflash_config": {key: value for key, value in inner.items() if value is not ...}}


def test_the_second_version() -> None:
    assert drafter_spec(second()).v2 == DFlash2(2, 16, 8, 8)
    outer = {"conv_kernel_size": 3, "conv_group_size": 48, "selector_rank": 5, "selector_top_k": 256}
    assert drafter_spec({**second(**dict.fromkeys(outer, ...)), **outer}).v2 == DFlash2(3, 48, 5, 256)
    assert drafter_spec(drafter()).v2 is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"conv_kernel_size": ...}, "conv_kernel_size is None"),
        ({"conv_kernel_size": 0}, "conv_kernel_size is 0"),
        ({"conv_kernel_size": 10**9}, "conv_kernel_size is 1000000000"),
        ({"conv_group_size": ...}, "conv_group_size is None"),
        ({"conv_group_size": 20}, "conv_group_size is 20, hidden_size is 48.*multiple"),
        ({"conv_group_size": 96}, "conv_group_size is 96"),
        ({"selector_rank": ...}, "selector_rank is None"),
        ({"selector_rank": 10**6}, "selector_rank is 1000000"),
        ({"selector_rank": "8"}, "selector_rank is '8'"),
        ({"selector_top_k": ...}, "selector_top_k is None"),
        ({"selector_top_k": 257}, "selector_top_k is 257.*from 1 to 256"),
    ],
)
def test_sizes_of_the_second_version_that_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        drafter_spec(second(**changes))


def test_dflash_config_wins_over_top_level() -> None:
    inner = {"mask_token_id": 7, "block_size": 5, "target_layer_ids": [0, 1]}
    spec = drafter_spec(drafter(mask_token_id=9, block_size=8, target_layer_ids=[2], dflash_config=inner))
    assert (spec.mask_token_id, spec.block_size, spec.target_layer_ids) == (7, 5, (0, 1))
    outer = drafter_spec(drafter(mask_token_id=9, block_size=8, target_layer_ids=[2], dflash_config=None))
    assert (outer.mask_token_id, outer.block_size, outer.target_layer_ids) == (9, 8, (2,))


def test_sliding_draft_layers_are_causal_unless_told_otherwise() -> None:
    """loading-04: four sliding layers and a full one."""
    kinds = ["sliding_attention"] * 4 + ["full_attention"]
    config = drafter(num_hidden_layers=5, layer_types=kinds, sliding_window=2048)
    spec = drafter_spec(config)
    assert (spec.block.windows, spec.causal) == ((2048,) * 4 + (None,), (True,) * 4 + (False,))
    assert drafter_spec({**config, "is_causal": False}).causal == (False,) * 5
    assert drafter_spec({**config, "dflash_config": {"mask_token_id": 1, "is_causal": True}}).causal == (True,) * 5
    with pytest.raises(UnsupportedModel, match="chunked"):
        drafter_spec({**config, "layer_types": [*kinds[:4], "chunked_attention"]})


@pytest.mark.parametrize(
    "spec",
    [
        tiny_drafter_spec(tiny_spec()),
        tiny_drafter_spec(tiny_spec(num_layers=4), causal=(True,), mask_token_id=1, block_size=16),
        tiny_drafter_spec(tiny_spec(), v2=DFlash2(3, 16, 1, 1)),
        tiny_drafter_spec(tiny_spec(), input_embedding_scale=8.0, output_multiplier=0.5, final_logit_softcapping=15.0),
    ],
)
def test_a_written_drafter_config_is_read_back_as_the_same_spec(spec: DrafterSpec) -> None:
    assert drafter_spec(json.loads(json.dumps(drafter_config(spec, torch.float32)))) == spec
