"""The model cards of a build: what a model is, how it was made, and what was measured on it.

Reads a checkpoint's shape and the log of its training; the other figures are given. Knows nothing of how they were
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paceline.models.drafter_spec import drafter_spec
from paceline.models.safetensors_file import read_json, read_tensors
from paceline.models.spec import transformer_spec
from paceline.train.build.recipe import Recipe
from paceline.train.fit.log import read_log
from paceline.train.heldout import Score
from paceline.zoo.catalog import BUNDLED_DLLM, BUNDLED_DRAFTER, BUNDLED_TARGET, BUNDLED_VERIFIER

__all__ = ["dllm_card", "drafter_card", "score_table", "target_card", "verifier_card"]


def target_card(folder: Path, recipe: Recipe, scores: Iterable[Score], distinct: Mapping[str, float | None]) -> str:
    """The card of the target in `folder`; `distinct` is the share of distinct 4-grams in greedy answers by scenario."""
    spec = transformer_spec(read_json(folder / "config.json"))
    fit, unloop = recipe.target.fit, recipe.unloop.fit
    return f"""# {BUNDLED_TARGET}

The AR target of the bundled pair.

{spec.family.capitalize()} layout, {spec.num_layers} layers of width {spec.hidden_size} ({spec.num_heads} query heads,
{spec.num_kv_heads} key heads of {spec.head_dim}, SwiGLU {spec.intermediate_size}), {_millions(folder)} M parameters,
byte-level BPE of {spec.vocab_size} tokens with chat template and mask token, bfloat16.

**Made by** `paceline zoo build`: {fit.steps:,} steps of {recipe.target.windows_per_batch} windows of
{recipe.target.window_tokens} tokens at a peak rate of {fit.learning_rate:g} (Muon and AdamW, cosine schedule, bfloat16
autocast), then {recipe.rounds} rounds of up to {unloop.steps} steps at {unloop.learning_rate:g} in which greedy answers
to {recipe.loops.count} beginnings of training documents unlearn what they say again, beside windows of the corpus.
`curve.png` shows the training.

**Trained on** Python's standard library and pip (functions and classes), the language reference and long docstrings
that come with Python, and text of the generators in `paceline/zoo/`: {recipe.text.stories:,} stories and reports,
{recipe.text.dialogues:,} dialogues, {recipe.text.modules:,} small Python modules. Held out: whole files by a hash of
their name, and generator seeds from 1,000,000,000 on.

**Measured** on held-out text, in bits per byte, beside a 5-gram model (Kneser-Ney) of the same corpus:

{score_table(scores)}

Share of distinct 4-grams in greedy answers to held-out prompts: {_figures(distinct)}.

**For** trying out and testing decoding. It writes fluent stories, mails and code that looks right and means little; it
copies badly and calculates badly. Do not ask it for facts.
"""


def score_table(scores: Iterable[Score]) -> str:
    """Markdown: bits per byte of the model and of the 5-gram model."""
    lines = [f"| {each.kind} | {each.bytes:,} | {each.model:.3f} | {each.ngram:.3f} |" for each in scores]
    return "\n".join(("| kind | bytes | bits/byte | 5-gram |", "|---|---|---|---|", *lines))


def drafter_card(folder: Path, recipe: Recipe, expected: Mapping[str, float | None]) -> str:
    """The card of the drafter in `folder`; `expected` is the greedy acceptance length by scenario, held out."""
    spec = drafter_spec(read_json(folder / "config.json"))
    last = _last_evaluation(folder, "acceptance_length")
    config, answers, objective = recipe.drafter, recipe.answers, recipe.drafter.objective
    taps = ", ".join(map(str, spec.target_layer_ids))
    return f"""# {BUNDLED_DRAFTER}

The DFlash v1 drafter of {BUNDLED_TARGET}.

arXiv 2602.06036: {spec.block.num_layers} Qwen3 layers of the target's width, block {spec.block_size}, taps behind
layers {taps} of the target, {_millions(folder)} M parameters of its own (embedding and head are the target's).

**Made by** `paceline zoo build`: up to {answers.count:,} answers of {BUNDLED_TARGET} to beginnings of its training
documents, {answers.sampled_share:.0%} of them drawn at temperatures, for {config.fit.steps:,} steps of
{config.rows_per_batch} answers at a peak rate of {config.fit.learning_rate:g}. Blocks of {config.shortest_block} to
{spec.block_size} behind random anchors; slots are weighted by {objective.weighting} (see `train/losses.py`), and
{objective.distill_share:.0%} of the loss is KL divergence to the target's {objective.teacher_top_k} likeliest tokens,
the rest cross-entropy. `curve.png` shows the training.

**Measured**: acceptance length {last["acceptance_length"]:.2f} on answers kept back. Expect, on held-out prompts,
greedy, the free token of the target included: {_figures(expected)}. It is worth what its target's text is worth:
templates and boilerplate are easy to draft.
"""


def dllm_card(folder: Path, recipe: Recipe, points: Iterable[Mapping[str, Any]]) -> str:
    """The card of the diffusion model in `folder`; `points` are those of `bench quality` on held-out tasks."""
    spec = transformer_spec(read_json(folder / "config.json"))
    config, text, last = recipe.dllm, recipe.checked_text, _last_evaluation(folder, "heldout_runs")
    practice, tasks = recipe.practice, recipe.practice_text
    batch, batched = config.batch
    return f"""# {BUNDLED_DLLM}

A diffusion language model of the size and the tokens of {BUNDLED_TARGET}, for masked diffusion and APD.

{spec.family.capitalize()} layout and a section `paceline`: {spec.num_layers} layers of width {spec.hidden_size},
attention to both sides, row i predicts token i + 1. {_millions(folder)} M parameters, bfloat16.

**Made by** `paceline zoo build`: {BUNDLED_TARGET} with its attention opened, then {config.fit.steps:,} steps of
{batched:,} {batch.removesuffix("_per_batch")} at a peak rate of {config.fit.learning_rate:g}, in rows of
{config.shortest_row} to {config.longest_row} tokens; {config.run_share:.0%} of the rows lost one run of up to
{config.longest_run} tokens, the others a random share (arXiv 2502.09992). Then {practice.fit.steps:,} steps of the same
on tasks and sums, at {practice.fit.learning_rate:g}, which `curve.png` shows.

**Trained on** the library text of {BUNDLED_TARGET}, and of the generators {text.stories:,} stories and reports,
{text.dialogues:,} dialogues, {text.modules:,} modules and up to {text.tasks:,} tasks with answers that can be checked.
Then on {tasks.tasks:,} tasks, {tasks.drills:,} times eight sums, and {tasks.dialogues:,} dialogues. Held out: as
there, and tasks by a hash of their question, too.

**Measured**: held-out loss {last["heldout_scattered"]:.3f} nats per token where random tokens are masked,
{last["heldout_runs"]:.3f} where a run is. Share of {recipe.problems} held-out tasks that are solved greedily, with 95 %
intervals; APD has the help of {BUNDLED_VERIFIER}:

{_solved_table(points)}

**For** trying out and testing decoding. It knows three kinds of task in their own words, and no facts.
"""


def verifier_card(folder: Path, recipe: Recipe) -> str:
    """The card of the verifier in `folder`."""
    spec = transformer_spec(read_json(folder / "config.json"))
    config, samples, last = recipe.verifier, recipe.samples, _last_evaluation(folder, "heldout_divergence")
    return f"""# {BUNDLED_VERIFIER}

The verifier of {BUNDLED_DLLM}: a small autoregressive model of the same tokens.

{spec.family.capitalize()} layout, {spec.num_layers} layers of width {spec.hidden_size}, {_millions(folder)} M
parameters, bfloat16.

**Made by** `paceline zoo build`: {samples.texts.count:,} texts that {BUNDLED_DLLM} continued from left to right, with
{samples.tokens_per_step} token(s) per pass, then {config.fit.steps:,} steps at a peak rate of
{config.fit.learning_rate:g}.
{config.distill_share:.0%} of the loss is KL divergence to what it said of each of these tokens, the rest are next
tokens of its corpus. `curve.png` shows the training.

**Measured**: KL divergence {last["heldout_divergence"]:.3f} nats per token on texts kept back, held-out loss of the
corpus {last["heldout_loss"]:.3f} nats per token.
"""


def _last_evaluation(folder: Path, figure: str) -> Mapping[str, float]:
    """The last line of the training's log that has a figure."""
    return [line for line in read_log(folder / "run" / "log.jsonl") if figure in line][-1]


def _solved_table(points: Iterable[Mapping[str, Any]]) -> str:
    """Markdown: a row for each setting, a column for each kind of task."""
    rows = {each["setting"]: each["kinds"] for each in points}
    kinds = list(next(iter(rows.values())))
    lines = [f"| `{name}` | {' | '.join(_share(found[kind]) for kind in kinds)} |" for name, found in rows.items()]
    return "\n".join((f"| setting | {' | '.join(kinds)} |", "|---" * (1 + len(kinds)) + "|", *lines))


def _share(right: Mapping[str, Any]) -> str:
    low, high = right["accuracy_interval"]
    return f"{right['accuracy']:.0%} ({low:.0%} to {high:.0%})"


def _millions(folder: Path) -> str:
    return f"{sum(tensor.numel() for tensor in read_tensors(folder).values()) / 1e6:.1f}"


def _figures(by_scenario: Mapping[str, float | None]) -> str:
    return ", ".join(f"{figure:.2f} {name}" for name, figure in by_scenario.items() if figure is not None)
