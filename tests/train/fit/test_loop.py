"""The training loop on a toy: it learns, and a killed run that is resumed equals one that was not, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import same_weights
from torch import Tensor
from toy import CONFIG, Toy, batch_at, log_of

from paceline.errors import ConfigError, TrainingError
from paceline.train.fit import loop
from paceline.train.fit.loop import fit
from paceline.train.options import FitConfig


class KilledError(Exception):
    pass


def until(killed_at: int | None) -> Callable[[int], tuple[Tensor]]:
    """Batches up to one at which the run is killed."""

    def batch(index: int) -> tuple[Tensor]:
        if index == killed_at:
            raise KilledError
        return batch_at(index)

    return batch


def train(run: Path, config: FitConfig = CONFIG, killed_at: int | None = None, toy: Toy | None = None) -> Toy:
    toy = toy or Toy()
    fit(toy, until(killed_at), toy.loss, toy.score, config, run)
    return toy


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn in test_plot.py; here they would take most of the time."""
    monkeypatch.setattr(loop, "save_plot", lambda path, lines, heldout: None)


@pytest.mark.parametrize(("micro_batches", "ema_decay"), [(1, 0.0), (2, 0.0), (1, 0.7)])
@pytest.mark.parametrize("killed", [1, 2, 3, 4, 8])
def test_a_killed_run_that_is_resumed_equals_an_uninterrupted_one(
    killed: int, micro_batches: int, ema_decay: float, tmp_path: Path
) -> None:
    """KilledError in step `killed` + 1; checkpoints stand after every second step."""
    config = replace(CONFIG, micro_batches=micro_batches, ema_decay=ema_decay)
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


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = train(tmp_path)
    lines = log_of(tmp_path)
    assert same_weights(train(tmp_path, killed_at=0), first)
    assert log_of(tmp_path) == lines


def test_a_checkpoint_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    with pytest.raises(KilledError):
        train(tmp_path / "killed", killed_at=5)
    torn = tmp_path / "killed" / ".123.checkpoint.pt"
    torn.write_bytes(b"torn")
    assert same_weights(train(tmp_path / "killed"), whole)
    assert not torn.exists()


@pytest.mark.parametrize(
    "change", [{"steps": 10}, {"learning_rate": 0.01}, {"seed": 1}, {"micro_batches": 2}, {"ema_decay": 0.5}]
)
def test_other_settings_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(TrainingError, match="other settings"):
        train(tmp_path, replace(CONFIG, **change))


def test_a_setting_that_a_checkpoint_is_too_old_to_know_has_its_default(tmp_path: Path) -> None:
    whole = train(tmp_path)
    state = torch.load(tmp_path / "checkpoint.pt")
    del state["settings"]["ema_decay"], state["average"]
    torch.save(state, tmp_path / "checkpoint.pt")
    assert same_weights(train(tmp_path, killed_at=0), whole)
    with pytest.raises(TrainingError, match=r"ema_decay 0\.0 instead of 0\.5"):
        train(tmp_path, replace(CONFIG, ema_decay=0.5))


def test_another_recipe_is_refused_and_told(tmp_path: Path) -> None:
    def run(**recipe: int) -> None:
        toy = Toy()
        fit(toy, batch_at, toy.loss, dict, CONFIG, tmp_path, recipe)

    run(windows=3)
    run(windows=3)
    with pytest.raises(TrainingError, match="other settings: windows 3 instead of 4"):
        run(windows=4)
    with pytest.raises(TrainingError, match="other settings: windows 3 instead of None"):
        run(answers=4)


def test_what_was_added_to_a_recipe_later_is_not_held_against_an_older_run(tmp_path: Path) -> None:
    whole, again = Toy(), Toy()
    fit(whole, batch_at, whole.loss, dict, CONFIG, tmp_path, {"windows": 3})
    fit(again, until(0), again.loss, dict, CONFIG, tmp_path, {"windows": 3, "mask_token_id": 1})
    assert same_weights(again, whole)


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


def test_micro_batches_are_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two halves as micro batches give the step of the whole batch, up to rounding (bfloat16 products)."""
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda hidden, share: hidden)  # halves would draw another
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
    with pytest.raises(TrainingError, match=f"The loss is {value} at step 1. Lower learning_rate"):
        fit(toy, batch_at, lambda t: (toy.loss(t)[0] * value, {}), dict, CONFIG, tmp_path)
    assert same_weights(toy, before)
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_gradient_that_is_not_finite_is_told_as_what_it_is(tmp_path: Path) -> None:
    """The slope of a root at 0 is infinite, where its value is not."""
    toy = Toy()
    with pytest.raises(TrainingError, match=r"The norm of the gradient is (nan|inf) at step 1. Lower learning_rate"):
        fit(toy, batch_at, lambda t: ((toy.matrix.bias * 0).sum().sqrt(), {}), dict, CONFIG, tmp_path)
    assert same_weights(toy, Toy())


def test_frozen_parameters_stay(tmp_path: Path) -> None:
    toy = Toy()
    toy.embed.requires_grad_(False)
    train(tmp_path, toy=toy)
    assert torch.equal(toy.embed.weight, Toy().embed.weight)
    assert not torch.equal(toy.matrix.weight, Toy().matrix.weight)


# the average


def weights_of(toy: Toy) -> list[Tensor]:
    return [p.detach().clone() for p in toy.parameters()]


def close(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.allclose(one, other, atol=1e-6) for one, other in zip(ours, theirs, strict=True))


def test_the_average_is_evaluated_and_left_and_saved_beside_the_weights(tmp_path: Path) -> None:
    """By its definition, from the weights before every batch; to average changes nothing of the training itself."""
    runs: dict[float, list[list[Tensor]]] = {0.0: [], 0.3: []}
    evaluated: list[list[Tensor]] = []
    toys = {decay: Toy() for decay in runs}
    for decay, toy in toys.items():

        def batch(index: int, toy: Toy = toy, seen: list[list[Tensor]] = runs[decay]) -> tuple[Tensor]:
            seen.append(weights_of(toy))
            return batch_at(index)

        def evaluate(toy: Toy = toy) -> dict[str, float]:
            evaluated.append(weights_of(toy))
            return {}

        config = replace(CONFIG, steps=4, ema_decay=decay, evaluate_every=2)
        fit(toy, batch, toy.loss, evaluate, config, tmp_path / str(decay))
    for plain, averaged in zip(*runs.values(), strict=True):
        assert close(plain, averaged)
    trajectory = [*runs[0.0], weights_of(toys[0.0])]
    averages = [trajectory[0]]
    for weights, decay in zip(trajectory[1:], (2 / 11, 3 / 12, 0.3, 0.3), strict=True):
        averages.append([decay * old + (1 - decay) * new for old, new in zip(averages[-1], weights, strict=True)])
    assert close(evaluated[2], averages[2])
    assert close(evaluated[3], averages[4])
    assert close(weights_of(toys[0.3]), averages[4])
    saved = torch.load(tmp_path / "0.3" / "checkpoint.pt")
    assert close(list(saved["module"].values()), trajectory[4])
    assert close(list(saved["average"].values()), averages[4])


@pytest.mark.parametrize("decay", [-0.1, 1.0, 2.0])
def test_an_average_that_would_not_move_is_refused(decay: float) -> None:
    with pytest.raises(ConfigError, match="ema_decay"):
        replace(CONFIG, ema_decay=decay)


# memory


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
)
def test_out_of_memory_names_the_setting_to_lower(error: Exception, tmp_path: Path) -> None:
    def loss(tokens: Tensor) -> Any:
        raise error

    with pytest.raises(TrainingError, match=r"with windows 3\. Lower windows; raise micro_batches") as told:
        fit(Toy(), batch_at, loss, dict, CONFIG, tmp_path, {"windows": 3}, batch_setting="windows")
    assert told.value.param == "windows"
    with pytest.raises(TrainingError, match=r"Lower the size of a micro batch; .*; or set gradient_checkpointing"):
        fit(Toy(), batch_at, loss, dict, CONFIG, tmp_path)
    with pytest.raises(TrainingError, match=r"a step learns from as many\.$"):
        fit(Toy(), batch_at, loss, dict, replace(CONFIG, gradient_checkpointing=True), tmp_path)


def test_what_torch_says_without_memory_is_understood(tmp_path: Path) -> None:
    def loss(tokens: Tensor) -> Any:
        return torch.empty(2**55), {}

    with pytest.raises(TrainingError, match="Out of memory"):
        fit(Toy(), batch_at, loss, dict, CONFIG, tmp_path)


def test_other_errors_are_left_as_they_are(tmp_path: Path) -> None:
    def loss(tokens: Tensor) -> Any:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        fit(Toy(), batch_at, loss, dict, CONFIG, tmp_path)
