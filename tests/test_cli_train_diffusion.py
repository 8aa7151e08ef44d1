"""Commands that make the models of APD: a diffusion language model, and its verifier."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_zoo import build_small
from talking import Run, run
from tiny import tiny_spec, tiny_transformer, write_checkpoint

from paceline import LLM, Sampling
from paceline.models.safetensors_file import read_json, read_tensors
from paceline.train.diffusion_options import DllmConfig
from paceline.train.dllm import train_dllm as train_in_full
from paceline.train.options import FitConfig
from paceline.train.shape import ShapeConfig

__all__ = ["run"]  # a fixture


@pytest.fixture
def built(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return build_small(run, tmp_path / "corpus", monkeypatch)


def train_dllm(run: Run, corpus: Path, out: Path, *more: object) -> SimpleNamespace:
    rows = ("--longest-row", 64, "--tokens-per-batch", 128, "--evaluation-rows", 2)
    return run("train", "dllm", "--corpus", corpus, "--steps", 2, "--warmup-steps", 1, *rows, "--out", out, *more)


def train_verifier(run: Run, corpus: Path, dllm: Path, out: Path, *more: object) -> SimpleNamespace:
    texts = ("--count", 12, "--max-tokens", 8, "--part", 6, "--batch", 6, "--prompt-tokens", 8, 60)
    sizes = ("--window-tokens", 16, "--windows-per-batch", 2, "--samples-per-batch", 2, "--heldout-samples", 2)
    common = ("--corpus", corpus, "--steps", 2, "--warmup-steps", 1, *texts, *sizes)
    return run("train", "verifier", *common, "--dllm", dllm, "--out", out, *more)


def test_a_trained_pair_decodes_by_apd(run: Run, built: Path, tmp_path: Path) -> None:
    target, dllm, verifier = (tmp_path / name for name in ("target", "dllm", "verifier"))
    windows = ("--window-tokens", 16, "--windows-per-batch", 2, "--evaluation-windows", 2)
    assert run("train", "target", "--corpus", built, "--steps", 2, *windows, "--out", target).code == 0
    told = train_dllm(run, built, dllm, "--start", target)
    assert told.code == 0, told.err
    assert read_json(dllm / "config.json")["paceline"]["diffusion"]["shifted"] is True
    told = train_verifier(run, built, dllm, verifier)
    assert told.code == 0, told.err
    assert {path.name for path in verifier.iterdir()} == {
        "config.json", "model.safetensors", "run", "samples", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    llm = LLM(dllm, verifier=verifier)
    for prompt in ("Once", [{"role": "user", "content": "hi"}]):
        (answer,) = llm.generate([prompt], Sampling(max_tokens=20))
        assert 1 <= len(answer.token_ids) <= 20
        assert answer.stats.method == "apd"


def test_a_table_of_ngrams_helps_the_verifier_it_was_made_of(run: Run, built: Path, tmp_path: Path) -> None:
    """From a YAML file with a flag over it; nothing but the table is left in its folder."""
    dllm, verifier, other, out = (tmp_path / name for name in ("dllm", "verifier", "other", "ngrams"))
    assert train_dllm(run, built, dllm).code == 0
    assert train_verifier(run, built, dllm, verifier).code == 0
    (tmp_path / "ngram.yaml").write_text(f"corpus: {built}\ncontext_tokens: 1\ncontexts: 5\nwindow_tokens: 16\n")
    make = ("train", "ngram", "--verifier", verifier, "--config", tmp_path / "ngram.yaml", "--out", out)
    for contexts in (7, 200):
        told = run(*make, "--contexts", contexts, "--top-k", 8)
        assert told.code == 0, told.err
        assert f"Wrote {out}: {contexts} contexts." in " ".join(told.err.split())
        assert {path.name for path in out.iterdir()} - {".lock"} == {"ngrams.npz"}
    asked = ("generate", "Once", "--model", dllm, "--max-tokens", 30, "--json", "--stats", "--ngrams", out)
    told = run(*asked, "--verifier", verifier)
    assert told.code == 0, told.err
    found = json.loads(told.out)
    ours = LLM(dllm, verifier=verifier, ngrams=out).generate(["Once"], Sampling(max_tokens=30))[0]
    assert found["token_ids"] == ours.token_ids
    stats = found["stats"]
    assert 0 < stats["verifier_skips"] <= stats["rounds"]
    assert 0 < stats["contexts_found"] <= stats["contexts_looked_up"]
    assert stats["verifier_skip_rate"] == ours.stats.verifier_skip_rate
    assert f"{ours.stats.verifier_skip_rate:.0%} of the verifier's passes skipped" in told.err
    assert f"({ours.stats.context_hit_rate:.0%} of the contexts found)" in told.err
    assert train_verifier(run, built, dllm, other, "--seed", 5).code == 0
    told = run(*asked, "--verifier", other)
    assert told.code == 2
    assert "is of another verifier: its weights checksum is" in told.err


def test_what_no_table_is_made_of(run: Run, built: Path, tmp_path: Path) -> None:
    dllm, out = tmp_path / "dllm", tmp_path / "out"
    assert train_dllm(run, built, dllm).code == 0
    told = run("train", "ngram", "--verifier", dllm, "--corpus", built, "--out", out)
    assert told.code == 2
    assert "is a diffusion model" in told.err
    told = run("train", "ngram", "--verifier", "pace-13m", "--corpus", built, "--out", out)
    assert told.code == 2
    assert "The tokenizers have 8192 and 400 tokens" in told.err
    assert not out.exists()


def test_without_a_start_it_begins_with_random_weights(run: Run, built: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        assert train_dllm(run, built, tmp_path / f"dllm-{seed}", "--seed", seed).code == 0
    one, other = (read_tensors(tmp_path / f"dllm-{seed}")["model.embed_tokens.weight"] for seed in (1, 2))
    assert (one != other).float().mean() > 0.9


def test_a_verifier_is_adapted_to_other_text(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_dllm(run, built, tmp_path / "dllm").code == 0
    assert train_verifier(run, built, tmp_path / "dllm", tmp_path / "first").code == 0
    for rate in ("0", "0.01"):
        begun = ("--start", tmp_path / "first", "--learning-rate", rate)
        told = train_verifier(run, built, tmp_path / "dllm", tmp_path / rate, *begun)
        assert told.code == 0, told.err
    first, same, learnt = (read_tensors(tmp_path / name) for name in ("first", "0", "0.01"))
    assert all(torch.equal(tensor, same[name]) for name, tensor in first.items())
    assert not all(torch.equal(tensor, learnt[name]) for name, tensor in first.items())


def test_a_dllm_begins_with_the_weights_of_its_start(run: Run, built: Path, tmp_path: Path) -> None:
    """At a rate of 0 it keeps those of the autoregressive model, and of the diffusion model that was made of that."""
    windows = ("--window-tokens", 16, "--windows-per-batch", 2, "--evaluation-windows", 2)
    assert run("train", "target", "--corpus", built, "--steps", 2, *windows, "--out", tmp_path / "0").code == 0
    for start, out in (("0", "1"), ("1", "2")):
        told = train_dllm(run, built, tmp_path / out, "--start", tmp_path / start, "--learning-rate", 0)
        assert told.code == 0, told.err
    target, *dllms = (read_tensors(tmp_path / name) for name in ("0", "1", "2"))
    assert all(torch.equal(tensor, dllm[name]) for dllm in dllms for name, tensor in target.items())


def sample_file(out: Path) -> Path:
    """dllm.yaml of docs/train.md, as it stands there."""
    page = (Path(__file__).parent.parent / "docs" / "train.md").read_text()
    file = out / "dllm.yaml"
    file.write_text(page[page.index("# dllm.yaml") :].split("```")[0])
    return file


def test_the_sample_file_of_the_documents(run: Run, built: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Shrunk by flags, which win."""
    asked: list[DllmConfig] = []
    monkeypatch.setattr(
        "paceline.train.diffusion_recipes.train_dllm",
        lambda model, config, *others: (asked.append(config), train_in_full(model, config, *others)),
    )
    monkeypatch.chdir(tmp_path)
    width = ("--hidden-size", 24, "--num-heads", 2, "--num-layers", 3)
    rows = ("--rows-per-batch", 2, "--micro-batches", 2, "--longest-row", 64, "--evaluation-rows", 2)
    told = run("train", "dllm", "--config", sample_file(tmp_path), *width, *rows, "--steps", 2)
    assert told.code == 0, told.err
    assert asked == [
        DllmConfig(
            Path("corpus"),
            FitConfig(2, learning_rate=1e-4, micro_batches=2, gradient_checkpointing=True),
            longest_row=64,
            rows_per_batch=2,
            diffusion_steps=2000,
            evaluation_rows=2,
        )
    ]
    config = read_json(tmp_path / "my-dllm" / "config.json")
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    assert [config[name] for name in names] == [24, 3, 2, 1, 12]
    assert LLM(tmp_path / "my-dllm").generate(["Once"], Sampling(max_tokens=5))[0].token_ids


def test_the_sample_file_asks_for_what_the_article_says(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("paceline.train.diffusion_recipes.make_dllm", lambda *given: asked.extend(given))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    told = run("train", "dllm", "--config", sample_file(tmp_path))
    assert told.code == 0, told.err
    _, shape, recipe, *_ = asked
    assert shape == ShapeConfig("DiT-XL", hidden_size=2048, num_heads=32)
    assert recipe.rows_per_batch * recipe.fit.micro_batches == 512
    assert (recipe.fit.learning_rate, recipe.diffusion_steps) == (1e-4, 2000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {type: unet}", "model.type is 'unet' in"),
        ("model: {type: unet}", "It must be 'pace-13m' or 'DiT-S' or 'DiT-B' or 'DiT-L' or 'DiT-XL' or null."),
        ("model: {hidden_size: 33}", "run.yaml, and num_heads is 4. Give a multiple of the heads, or head_dim."),
        ("model: {hidden_size: 12}", "head_dim is 3, of hidden_size 12 and num_heads 4."),
        ("model: {depth: 3}", "sets 'model.depth' to 3: no such setting."),
        ("training: {batch_size: 0}", "training.batch_size is 0 in"),
        ("training: {batch_size: 4}", "run.yaml, and tokens_per_batch is 128."),
        ("training: {diffusion_steps: 0}", "training.diffusion_steps is 0 in"),
    ],
)
def test_words_of_a_file_that_cannot_be(run: Run, built: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    told = train_dllm(run, built, tmp_path / "out", "--config", tmp_path / "run.yaml")
    assert told.code == 2
    assert message in told.err
    assert not (tmp_path / "out").exists()


def test_a_start_has_a_shape_of_its_own(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_dllm(run, built, tmp_path / "dllm").code == 0
    told = train_dllm(run, built, tmp_path / "out", "--start", tmp_path / "dllm", "--num-heads", 2)
    assert told.code == 2
    assert f"num_heads is 2, and training begins with {tmp_path / 'dllm'}, which has a shape." in told.err
    assert train_dllm(run, built, tmp_path / "dllm", "--num-layers", 2).code == 1, "another shape is not resumed"


def test_samples_of_other_settings_or_of_another_model_are_not_mixed(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_dllm(run, built, tmp_path / "dllm").code == 0
    assert train_dllm(run, built, tmp_path / "other", "--seed", 5).code == 0
    assert train_verifier(run, built, tmp_path / "dllm", tmp_path / "out").code == 0
    told = train_verifier(run, built, tmp_path / "dllm", tmp_path / "out", "--window", 5)
    assert told.code == 1
    assert "window 32 instead of 5" in told.err
    told = train_verifier(run, built, tmp_path / "other", tmp_path / "out")
    assert told.code == 1
    assert "dllm_checksum" in told.err
    with np.load(built / "train.npz") as file:
        text = dict(file)
    np.savez(built / "train.npz", **{**text, "tokens": np.roll(text["tokens"], 1)})
    told = train_verifier(run, built, tmp_path / "dllm", tmp_path / "out")
    assert told.code == 1
    assert "corpus_checksum" in told.err


def test_another_start_is_not_resumed(run: Run, built: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        assert train_dllm(run, built, tmp_path / f"{seed}", "--seed", seed).code == 0
    assert train_dllm(run, built, tmp_path / "out", "--start", tmp_path / "1").code == 0
    for other in (("--start", tmp_path / "2"), ()):
        told = train_dllm(run, built, tmp_path / "out", *other)
        assert told.code == 1
        assert "start " in told.err


def test_what_cannot_be_begun_with(run: Run, built: Path, tmp_path: Path) -> None:
    assert train_dllm(run, built, tmp_path / "dllm").code == 0
    told = train_verifier(run, built, tmp_path / "dllm", tmp_path / "out", "--start", tmp_path / "dllm")
    assert told.code == 2
    assert "is a diffusion model" in told.err
    assert not (tmp_path / "out").exists()
    told = train_dllm(run, built, tmp_path / "new", "--mask-token", "<nothing>")
    assert told.code == 2
    assert "lacks the mask token '<nothing>'" in told.err
    told = train_dllm(run, built, tmp_path / "new", "--start", tmp_path / "dllm", "--mask-token", "<|endoftext|>")
    assert told.code == 2
    assert "The mask token has id 0, that of" in told.err
    folder = tmp_path / "low"
    write_checkpoint(folder, tiny_transformer(tiny_spec(vocab_size=1), dtype=torch.float32))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tmp_path / "dllm" / name).read_bytes())
    told = train_dllm(run, built, tmp_path / "new", "--start", folder)
    assert told.code == 2
    assert f"and {folder} has 1 ids" in told.err


def test_both_are_trained_together(run: Run, built: Path, tmp_path: Path) -> None:
    dllm, verifier, out = tmp_path / "dllm", tmp_path / "verifier", tmp_path / "out"
    assert train_dllm(run, built, dllm).code == 0
    assert train_verifier(run, built, dllm, verifier).code == 0
    rows = ("--longest-row", 64, "--tokens-per-batch", 128, "--evaluation-rows", 2)
    common = ("--corpus", built, "--steps", 2, "--learning-rate", 0.02, *rows)
    told = run("train", "joint", *common, "--dllm", dllm, "--verifier", verifier, "--out", out)
    assert told.code == 0, told.err
    for name, before in (("dllm", dllm), ("verifier", verifier)):
        old, new = (read_tensors(folder)["model.embed_tokens.weight"] for folder in (before, out / name))
        assert (old != new).any()
    answer = LLM(out / "dllm", verifier=out / "verifier").generate(["Once"], Sampling(max_tokens=5))[0]
    assert answer.token_ids
    swapped = run("train", "joint", *common, "--dllm", verifier, "--verifier", dllm, "--out", tmp_path / "swapped")
    assert swapped.code == 2
    assert "is an autoregressive model" in swapped.err


def test_a_shape_beyond_all_memory_is_one_line(run: Run, built: Path, tmp_path: Path) -> None:
    told = run("train", "dllm", "--corpus", built, "--out", tmp_path / "dllm", "--hidden-size", 1_000_000)
    assert (told.code, told.out) == (2, "")
    assert "hidden_size 1000000" in told.err
    assert told.err.count("\n") == 1
