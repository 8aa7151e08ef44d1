"""Every form of a product, and every pass, computes the same up to rounding: they are timed for the same work."""

from __future__ import annotations

import os
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer, write_checkpoint

from paceline import native
from paceline.bench.kernel_sweeps import Part, Sweep
from paceline.bench.passes import DRAFTER, TARGET, drafter_pass, load_models, target_pass, without_native
from paceline.bench.products import PLAIN, forms, linears, variants
from paceline.models.load import load_transformer
from paceline.models.options import Precision

PRECISIONS: tuple[Precision, ...] = ("exact", "mixed", "int8", "int8-32", "w8a8")


def near(variant: str, times: float = 1) -> dict[str, float]:
    """Rounding of what it computes with: float32 but where both factors or weights are rounded."""
    rounds = variant.startswith("native ")
    return dict.fromkeys(("atol", "rtol"), times * (4e-2 if rounds else 2e-3))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    target = tiny_transformer(tiny_spec("qwen2", tied_head=True), dtype=torch.float32)
    drafter = tiny_drafter(tiny_drafter_spec(target.spec), target)
    return write_checkpoint(folder / "target", target), write_checkpoint(folder / "drafter", drafter)


@torch.inference_mode()
def test_all_forms_compute_the_same(folders: tuple[Path, Path]) -> None:
    with without_native():
        products = linears(load_transformer(folders[0], torch.float32))
    assert [name for name, _ in products] == [*(2 * ["qkv", "out", "gate_up", "down"]), "head"]
    plain = forms(PLAIN, products)
    for variant in variants(PRECISIONS):
        for form, oracle in zip(forms(variant, products), plain, strict=True):
            assert form[:3] == oracle[:3]
            x = torch.randn(3, form.inputs)
            torch.testing.assert_close(form.product(x), oracle.product(x), **near(variant))


@torch.inference_mode()
@pytest.mark.parametrize(("name", "make"), [(TARGET, target_pass), (DRAFTER, drafter_pass)])
def test_all_passes_compute_the_same(name: str, make: Any, folders: tuple[Path, Path]) -> None:
    """Behind equal contexts: they are random, and the same for the same seed of torch."""
    logits = {}
    for variant in variants(PRECISIONS):
        torch.manual_seed(0)
        logits[variant] = make(load_models(variant, *folders)[name], 5)()
    assert logits[PLAIN].shape == (5, 64)
    for variant, found in logits.items():
        torch.testing.assert_close(found, logits[PLAIN], **near(variant, 5))


@torch.inference_mode()
def test_a_pass_can_be_made_again(folders: tuple[Path, Path]) -> None:
    """Nothing is committed: the second time the same rows see the same context."""
    run = target_pass(load_models(PLAIN, *folders)[TARGET], 3)
    assert torch.equal(run(), run())


def test_a_sweep_calls_in_order_and_counts_all_but_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    called, ticks = list[str](), count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(ticks)))
    calls = tuple((name, partial(called.append, name)) for name in ("a", "b", "a"))
    parts = {"a": Part(2, 1, 1), "b": Part(1, 1, 1)}
    assert Sweep(TARGET, PLAIN, "float32", 1, 0, parts, calls).seconds(8.0) == {"a": 1.0, "b": 1.0}
    assert called == 3 * ["a", "b", "a"], "one that does not count, and two that last eight seconds"


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "baseline"):
        monkeypatch.delenv(native.VARIABLE, raising=False)
        if before is not None:
            monkeypatch.setenv(native.VARIABLE, before)
        with without_native():
            assert native.why_not() == f"{native.VARIABLE} is off."
        assert os.environ.get(native.VARIABLE) == before
