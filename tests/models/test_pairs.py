"""A drafter and its target: taps, sizes and vocabularies agree, or loading says what does not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from tiny import (
    GOLDEN,
    edit_config,
    run_flat,
    tiny_cache,
    tiny_drafter,
    tiny_drafter_spec,
    tiny_spec,
    tiny_transformer,
    write_checkpoint,
)

from paceline.errors import CheckpointError, VocabularyMismatch
from paceline.models.load import (
    check_same_tokens,
    load_drafter,
    load_transformer,
    shared_vocabulary,
)
from paceline.models.transformer import Transformer

DRAFTERS = sorted(path.parent.name for path in GOLDEN.glob("dflash-v1-*/draft"))


@pytest.mark.parametrize("case", DRAFTERS)
def test_golden_drafters_load(case: str) -> None:
    content = json.loads((GOLDEN / case / "cases.json").read_text())
    target = load_transformer(GOLDEN / case / "target")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        drafter = load_drafter(GOLDEN / case / "draft", target)
    assert list(drafter.spec.target_layer_ids) == content["target_layer_ids"]
    assert drafter.spec.mask_token_id == content["mask_token_id"]
    assert drafter.spec.block_size == content["block_size"]
    assert (drafter.head, drafter.embed) == (target.head, target.embed)
    guessed = [str(warning.message) for warning in caught if str(content["target_layer_ids"]) in str(warning.message)]
    assert len(guessed) == (case in ("dflash-v1-one-layer", "dflash-v1-sliding"))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Transformer]:
    """A drafter's folder, and a target of four layers, 32 wide, with 64 ids."""
    target = tiny_transformer(tiny_spec(num_layers=4), dtype=torch.float32)
    return write_checkpoint(tmp_path, tiny_drafter(tiny_drafter_spec(target.spec), target)), target


def test_missing_taps_warn_with_the_layers_taken(pair: tuple[Path, Transformer]) -> None:
    folder, target = pair
    edit_config(folder, dflash_config={"mask_token_id": 63}, num_target_layers=...)
    with pytest.raises(CheckpointError, match=r"fc\.weight"), pytest.warns(UserWarning, match=r"layers \[2\]"):
        load_drafter(folder, target)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_hidden_layers": 3}, "num_target_layers is 4; the target has 3"),
        ({"hidden_size": 48}, "hidden_size is 32, the target's is 48"),
        ({"vocab_size": 63}, "mask_token_id is 63; the target's vocabulary has 63"),
    ],
)
def test_a_drafter_for_another_target_is_refused(
    changes: dict[str, int], named: str, pair: tuple[Path, Transformer]
) -> None:
    names = {"num_hidden_layers": "num_layers"}
    spec = tiny_spec(**{"num_layers": 4, **{names.get(key, key): value for key, value in changes.items()}})
    with pytest.raises(CheckpointError, match=named):
        load_drafter(pair[0], tiny_transformer(spec))


def test_tap_i_is_the_output_of_layer_i() -> None:
    """loading-01's toy: layer l adds 10^l to every element, and nothing else."""
    model = tiny_transformer(tiny_spec("llama", num_layers=4, mlp_bias=True))
    for parameter in model.parameters():
        parameter.zero_()
    model.norm.weight.fill_(1.0)
    for index, layer in enumerate(model.layers):
        layer.down.bias.fill_(10.0**index)
    features = run_flat(model, [[1, 2]], [tiny_cache(model)], (0, 1, 2, 3)).features
    assert features is not None
    assert features[0].unflatten(0, (4, 32))[:, 0].tolist() == pytest.approx([1, 11, 111, 1])  # the last after the norm
    reordered = run_flat(model, [[1, 2]], [tiny_cache(model)], (2, 0)).features
    assert reordered is not None
    assert reordered[0, ::32].tolist() == pytest.approx([111, 1])


# tokenizer-03: vocabularies


def test_padding_is_no_mismatch() -> None:
    assert shared_vocabulary(152064, 151936, 151669) == 151669
    assert shared_vocabulary(151936, 152064, 151936) == 151936


@pytest.mark.parametrize("sizes", [(152064, 32002), (32002, 152064), (151668, 151668)])
def test_a_table_smaller_than_the_tokenizer_is_refused_with_both_sizes(sizes: tuple[int, int]) -> None:
    with pytest.raises(VocabularyMismatch, match=f"{sizes[0]} and {sizes[1]}.*151669"):
        shared_vocabulary(*sizes, 151669)


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"a": 0, "c": 1, "b": 2}, "3 and 3 tokens.*id 1: 'b' and 'c'"),
        ({"a": 0, "b": 1}, "3 and 2 tokens.*id 2: 'c' and None"),
        ({"a": 0, "b": 1, "c": 2, "d": 3}, "3 and 4 tokens.*id 3: None and 'd'"),
        ({}, "3 and 0 tokens.*id 0: 'a' and None"),
    ],
)
def test_tokenizers_are_compared_token_by_token(others: dict[str, int], named: str) -> None:
    with pytest.raises(VocabularyMismatch, match=named):
        check_same_tokens({"a": 0, "b": 1, "c": 2}, others)


def test_the_first_may_have_more_tokens_at_the_end_where_that_is_allowed() -> None:
    """tokenizer-03: a diffusion model has its mask there, and its small verifier has none."""
    check_same_tokens({"a": 0, "b": 1, "mask": 2}, {"a": 0, "b": 1}, more=True)
    for others, named in (({"b": 0, "a": 1}, "id 0"), ({"a": 0, "b": 1, "mask": 2, "c": 3}, "id 3"), ({}, "id 0")):
        with pytest.raises(VocabularyMismatch, match=f"3 and {len(others)} tokens.*{named}"):
            check_same_tokens({"a": 0, "b": 1, "mask": 2}, others, more=True)


def test_equal_tokenizers_in_another_order_pass() -> None:
    check_same_tokens({"a": 0, "b": 1}, {"b": 1, "a": 0})
