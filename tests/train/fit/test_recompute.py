"""Layers that are recomputed: the same losses, gradients and weights to the last bit, in less memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import same_weights, tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from paceline.models.attention import dense_attention
from paceline.models.diffusion_spec import Diffusion
from paceline.models.transformer import Layer, Transformer
from paceline.train.fit.loop import fit
from paceline.train.fit.recompute import layers_recomputed
from paceline.train.forward import next_logits
from paceline.train.losses import next_token_loss
from paceline.train.options import FitConfig

CONFIG = FitConfig(steps=6, learning_rate=0.02, warmup_steps=2, save_every=2, evaluate_every=3)
TOKENS = torch.randint(64, (5, 24), generator=torch.Generator().manual_seed(0))


def causal() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = tiny_transformer(tiny_spec(num_layers=3, windows=(None, 7, None))).requires_grad_(True)
    return model, lambda: next_logits(model, TOKENS).square().mean()


def both_sides() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = tiny_transformer(tiny_spec("qwen2", diffusion=Diffusion(63, 1))).requires_grad_(True)
    attend = dense_attention(5, (None, None), causal=False)
    return model, lambda: model(TOKENS.flatten(), torch.arange(24).repeat(5), attend).hidden.cos().mean()


def drafter() -> tuple[nn.Module, Callable[[], Tensor]]:
    target = tiny_transformer(tiny_spec())
    model = tiny_drafter(tiny_drafter_spec(target.spec), target).requires_grad_(True)
    attend = dense_attention(5, (None,), causal=False)

    def loss() -> Tensor:
        return model.logits(model(TOKENS.flatten(), torch.arange(24).repeat(5), attend)).square().mean()

    return model, loss


def gradients(model: nn.Module, loss: Callable[[], Tensor], recomputed: bool) -> dict[str, Tensor]:
    model.zero_grad()
    with layers_recomputed(model, recomputed):
        value = loss()
        value.backward()
    found = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    return {"loss": value.detach(), **found}


def kept_bytes(loss: Callable[[], Tensor]) -> int:
    """Of all that waits for the backward pass, each piece of memory once."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("made", [causal, both_sides, drafter])
def test_gradients_are_the_same(made: Callable[[], tuple[nn.Module, Callable[[], Tensor]]]) -> None:
    """float64 and `==`."""
    model, loss = made()
    plain, again = (gradients(model, loss, recomputed) for recomputed in (False, True))
    assert plain.keys() == again.keys()
    assert len(plain) > 5
    assert all(torch.equal(plain[name], again[name]) for name in plain)


def test_less_waits_for_the_backward_pass() -> None:
    """Of 8 layers with some 15 tensors of their width or more each, one is left: that between them."""
    model = tiny_transformer(tiny_spec(num_layers=8)).requires_grad_(True)

    def loss() -> Tensor:
        return next_logits(model, TOKENS).square().mean()

    plain = kept_bytes(loss)
    with layers_recomputed(model, True):
        assert kept_bytes(loss) < plain / 3


def test_they_are_recomputed_inside_only() -> None:
    both = nn.ModuleDict({"one": Transformer(tiny_spec()), "other": Transformer(tiny_spec())})
    layers = [each for each in both.modules() if isinstance(each, Layer)]
    assert len(layers) == 4
    with layers_recomputed(both, True):
        assert all(layer.recomputed for layer in layers)
    assert not any(layer.recomputed for layer in layers)


def train(run: Path, recomputed: bool, steps: int = 6, killed_at: int | None = None) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(tiny_spec())

    def batch_at(index: int) -> tuple[Tensor]:
        if index == killed_at:
            raise KeyError(index)
        return (torch.randint(64, (4, 17), generator=torch.Generator().manual_seed(index)),)

    def loss(tokens: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        assert all(layer.recomputed is recomputed for layer in model.layers)
        return next_token_loss(next_logits(model, tokens).flatten(0, 1), tokens[:, 1:].flatten()), {}

    fit(model, batch_at, loss, dict, replace(CONFIG, steps=steps, gradient_checkpointing=recomputed), run)
    return model


def losses_of(run: Path) -> list[tuple[float, float]]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [(line["loss"], line["gradient_norm"]) for line in lines]


def test_a_run_has_the_same_losses_and_weights(tmp_path: Path) -> None:
    """In mixed precision, as all runs are: `==` on a CPU."""
    plain, again = (train(tmp_path / str(recomputed), recomputed) for recomputed in (False, True))
    assert losses_of(tmp_path / "False") == losses_of(tmp_path / "True")
    assert same_weights(plain, again)


def test_a_run_without_it_goes_on_with_it(tmp_path: Path) -> None:
    """As one that ran out of memory would; and back."""
    whole = train(tmp_path / "whole", False)
    for recomputed, killed_at in ((False, 3), (True, 5)):
        with pytest.raises(KeyError):
            train(tmp_path / "other", recomputed, killed_at=killed_at)
    assert same_weights(train(tmp_path / "other", False), whole)
    assert losses_of(tmp_path / "other") == losses_of(tmp_path / "whole")
