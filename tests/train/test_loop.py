"""The training loop on a toy: it learns, and a killed run that is resumed equals one that was not, bit for bit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import same_weights
from torch import Tensor, nn

from paceline.errors import TrainingError
from paceline.train.loop import FitConfig, fit

CONFIG = FitConfig(steps=9, learning_rate=0.02, warmup_steps=3, save_every=2, evaluate_every=4)


class Toy(nn.Module):
    """A matrix, an embedding and a bias: all that the two optimisers share out between them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.embed = nn.Embedding(10, 6)
        self.matrix = nn.Linear(6, 10)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)

    def loss(self, tokens: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        logits = self.matrix(self.embed(tokens[:, 0])).float()
        noise = torch.rand(()) * 0  # draws from the generator that `fit` seeds
        return nn.functional.cross_entropy(logits, tokens[:, 1]) + noise, {"figure": logits.mean()}


class KilledError(Exception):
    pass


def batch_at(index: int, killed_at: int | None = None) -> tuple[Tensor]:
    if index == killed_at:
        raise KilledError
    tokens = torch.randint(10, (8,), generator=torch.Generator().manual_seed(index))
    return (torch.stack((tokens, (tokens * 3 + 1) % 10), 1),)


def train(run: Path, config: FitConfig = CONFIG, killed_at: int | None = None, toy: Toy | None = None) -> Toy:
    toy = toy or Toy()
    fit(toy, lambda index: batch_at(index, killed_at), toy.loss, lambda: {"score": 1.5}, config, run)
    return toy


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("killed", [1, 2, 3, 4, 8])
def test_a_killed_run_that_is_resumed_equals_an_uninterrupted_one(
    killed: int, micro_batches: int, tmp_path: Path
) -> None:
    """KilledError in step `killed` + 1; checkpoints stand after every second step."""
    config = FitConfig(**{**vars_of(CONFIG), "micro_batches": micro_batches})
    whole = train(tmp_path / "whole", config)
    with pytest.raises(KilledError):
        train(tmp_path / "killed", config, killed_at=killed * micro_batches)
    steps: list[int] = []
    resumed = Toy()
    fit(resumed, lambda index: steps.append(index) or batch_at(index), resumed.loss, dict, config, tmp_path / "killed")
    assert steps[0] == killed // 2 * 2 * micro_batches, "it goes on where the last checkpoint stands"
    assert same_weights(resumed, whole)
    losses = [(line["step"], line["loss"]) for line in log_of(tmp_path / "killed")]
    assert losses == [(line["step"], line["loss"]) for line in log_of(tmp_path / "whole")], "each step once, in order"


def vars_of(config: FitConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = train(tmp_path)
    lines = log_of(tmp_path)
    assert same_weights(train(tmp_path, killed_at=0), first)
    assert log_of(tmp_path) == lines


def test_a_checkpoint_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    with pytest.raises(KilledError):
        train(tmp_path / "killed", killed_at=5)
    (tmp_path / "killed" / "checkpoint.pt.partial").write_bytes(b"torn")
    assert same_weights(train(tmp_path / "killed"), whole)


@pytest.mark.parametrize("change", [{"steps": 10}, {"learning_rate": 0.01}, {"seed": 1}, {"micro_batches": 2}])
def test_other_settings_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(TrainingError, match="other settings"):
        train(tmp_path, FitConfig(**{**vars_of(CONFIG), **change}))


def test_another_recipe_is_refused_and_told(tmp_path: Path) -> None:
    def run(**recipe: int) -> None:
        toy = Toy()
        fit(toy, batch_at, toy.loss, dict, CONFIG, tmp_path, recipe)

    run(windows=3)
    run(windows=3)
    with pytest.raises(TrainingError, match="other settings: windows 3 instead of 4"):
        run(windows=4)


def test_a_torn_line_of_the_log_is_dropped(tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        train(tmp_path, killed_at=5)
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"loss": 1.2')
    train(tmp_path)
    assert [line["step"] for line in log_of(tmp_path)] == list(range(1, 10))


def test_it_learns(tmp_path: Path) -> None:
    train(tmp_path, FitConfig(steps=60, learning_rate=0.05, warmup_steps=5))
    losses = [line["loss"] for line in log_of(tmp_path)]
    assert losses[0] > 2.0
    assert losses[-1] < 1.0


def test_the_schedule(tmp_path: Path) -> None:
    """A linear rise over the warm-up, then a cosine down to the final share."""
    train(tmp_path, FitConfig(steps=40, learning_rate=0.01, warmup_steps=10, final_share=0.1))
    rates = [line["learning_rate"] for line in log_of(tmp_path)]
    assert rates[:10] == pytest.approx([0.001 * (step + 1) for step in range(10)])
    for step in range(10, 40):
        falling = 0.5 * (1 + math.cos(math.pi * (step - 10) / 30))
        assert rates[step] == pytest.approx(0.01 * (0.1 + 0.9 * falling), abs=1e-6)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_the_log_says_what_happened(tmp_path: Path) -> None:
    train(tmp_path)
    lines = log_of(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, 10))
    assert [line["step"] for line in lines if "score" in line] == [4, 8, 9], "every fourth step and the last"
    for line in lines:
        assert line.keys() >= {"loss", "figure", "gradient_norm", "learning_rate", "seconds"}


def test_micro_batches_are_averaged(tmp_path: Path) -> None:
    """Two halves as micro batches give the step of the whole batch, up to rounding (bfloat16 products)."""
    toys = []
    for micro_batches in (1, 2):
        toy = Toy()
        toys.append(toy)

        def halves(index: int, parts: int = micro_batches) -> tuple[Tensor]:
            return (batch_at(index // parts)[0].chunk(parts)[index % parts],)

        config = FitConfig(steps=1, learning_rate=0.02, warmup_steps=1, micro_batches=micro_batches)
        fit(toy, halves, toy.loss, dict, config, tmp_path / str(micro_batches))
    assert log_of(tmp_path / "1")[0]["loss"] == pytest.approx(log_of(tmp_path / "2")[0]["loss"], rel=1e-2)
    assert log_of(tmp_path / "1")[0]["gradient_norm"] == pytest.approx(
        log_of(tmp_path / "2")[0]["gradient_norm"], rel=5e-2
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_the_run_before_it_is_saved(value: float, tmp_path: Path) -> None:
    toy = Toy()
    before = Toy()
    with pytest.raises(TrainingError, match="step 1"):
        fit(toy, batch_at, lambda t: (toy.loss(t)[0] * value, {}), dict, CONFIG, tmp_path)
    assert same_weights(toy, before)
    assert not (tmp_path / "checkpoint.pt").exists()


def test_frozen_parameters_stay(tmp_path: Path) -> None:
    toy = Toy()
    toy.embed.requires_grad_(False)
    train(tmp_path, toy=toy)
    assert torch.equal(toy.embed.weight, Toy().embed.weight)
    assert not torch.equal(toy.matrix.weight, Toy().matrix.weight)
