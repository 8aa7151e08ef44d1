"""What training and answering cost: floating-point operations by formula, seconds by trying it on this machine.

The trials are steps of the real loop and decoder, on random tokens and random weights of the bundled shapes. Knows
nothing of how many steps somebody plans.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from paceline.decode.lockstep import LockstepJob, decode_lockstep
from paceline.decode.target import Target
from paceline.models.drafter_spec import DrafterSpec
from paceline.models.spec import Spec
from paceline.models.transformer import Transformer, prepare
from paceline.request import Sampling
from paceline.train.drafter import new_drafter, train_drafter
from paceline.train.fit.log import read_log
from paceline.train.options import DrafterConfig, FitConfig, Objective, ResponsesConfig, TargetConfig
from paceline.train.responses import Responses
from paceline.train.target import train_target
from paceline.train.teacher import Teacher

__all__ = [
    "answer_seconds",
    "drafter_flops",
    "drafter_step_seconds",
    "forward_flops",
    "target_step_seconds",
    "training_flops",
]

_TRIAL_STEPS = 3
_TRIAL_TOKENS = 16


def forward_flops(spec: Spec, context_tokens: float) -> float:
    """Operations of one token's pass that sees `context_tokens`: two per weight of a matrix, four per head and key.

    The embedding is a lookup and costs nothing; the head is a matrix.
    """
    width, heads, kv_heads, dim = spec.hidden_size, spec.num_heads, spec.num_kv_heads, spec.head_dim
    matrices = width * dim * (2 * heads + 2 * kv_heads) + 3 * width * spec.intermediate_size
    layer = 2 * matrices + 4 * heads * dim * context_tokens
    return spec.num_layers * layer + 2 * width * spec.vocab_size


def training_flops(spec: Spec, window_tokens: int) -> float:
    """Operations of learning from one token of a window: its pass, and twice that backwards."""
    return 3 * forward_flops(spec, window_tokens / 2)


def drafter_flops(spec: DrafterSpec, width: int, block_rows: int) -> float:
    """Operations of filling `block_rows` slots of one answer of `width` tokens, context included."""
    block = spec.block
    taps = len(spec.target_layer_ids)
    keys_and_values = 2 * block.num_layers * block.num_kv_heads * block.head_dim
    context = 2 * block.hidden_size * (taps * block.hidden_size + keys_and_values)
    return width * context + block_rows * forward_flops(block, width + block_rows)


def target_step_seconds(spec: Spec, config: TargetConfig) -> float:
    """Seconds of one step of `train_target` here, the last of a few."""
    with TemporaryDirectory() as folder:
        corpus = Path(folder)
        documents = 2 * (config.windows_per_batch + 1)
        for name in ("train", "heldout"):
            _write_random_corpus(corpus / f"{name}.npz", spec.vocab_size, documents, config.window_tokens)
        trial = replace(config, corpus=corpus, evaluation_windows=1, fit=_few(config.fit))
        train_target(Transformer(spec), trial, corpus / "run")
        return _fastest(corpus / "run")


def drafter_step_seconds(target: Spec, spec: DrafterSpec, config: DrafterConfig, width: int) -> float:
    """Seconds of one step of `train_drafter` here, on answers of `width` tokens."""
    rows = max(8, min(64, 2 * config.rows_per_batch))
    tokens = _random_tokens(target.vocab_size, rows, width)
    answers = Responses(tokens, torch.full((rows,), width // 2), torch.full((rows,), width))
    model = Transformer(target).requires_grad_(False)
    with TemporaryDirectory() as folder:
        trial = replace(config, heldout_rows=1, fit=_few(config.fit))
        teacher = _random_teacher(tokens, target.vocab_size, config.objective)
        train_drafter(new_drafter(spec, model), model, answers, trial, Path(folder), teacher)
        return _fastest(Path(folder))


def answer_seconds(spec: Spec, config: ResponsesConfig) -> float:
    """Seconds of one token of one answer here, where as many are decoded together as `config` says."""
    model = Transformer(spec)
    prepare(model)
    target = Target(model, spec.vocab_size)
    prompts = _random_tokens(spec.vocab_size, config.batch, config.prompt_tokens[1])
    sampling = Sampling(max_tokens=_TRIAL_TOKENS)
    jobs = [LockstepJob(tuple(prompt.tolist()), sampling, seed=0) for prompt in prompts]
    started = time.perf_counter()
    list(decode_lockstep(target, jobs, frozenset()))
    return (time.perf_counter() - started) / (config.batch * _TRIAL_TOKENS)


def _few(fit: FitConfig) -> FitConfig:
    """The same, for a trial: neither saved nor evaluated on the way."""
    return replace(fit, steps=_TRIAL_STEPS, save_every=_TRIAL_STEPS, evaluate_every=_TRIAL_STEPS)


def _fastest(run: Path) -> float:
    """Seconds of the fastest step: the first one warms up, the last one evaluates."""
    return min(line["seconds"] for line in read_log(run / "log.jsonl"))


def _random_tokens(vocab_size: int, rows: int, width: int) -> Tensor:
    return torch.randint(vocab_size, (rows, width), generator=torch.Generator().manual_seed(0))


def _random_teacher(tokens: Tensor, vocab_size: int, objective: Objective) -> Teacher | None:
    """One that knows nothing, where the objective asks for one."""
    if objective.distill_share == 0.0:
        return None
    shape = (*tokens.shape, objective.teacher_top_k)
    even = torch.full(shape, -math.log(vocab_size), dtype=torch.float16)
    return Teacher(torch.arange(objective.teacher_top_k, dtype=torch.int32).expand(shape), even)


def _write_random_corpus(path: Path, vocab_size: int, documents: int, length: int) -> None:
    tokens = _random_tokens(vocab_size, documents, length).flatten().numpy().astype(np.uint32)
    starts = np.arange(documents + 1, dtype=np.int64) * length
    np.savez(path, tokens=tokens, starts=starts, kinds=np.zeros(documents, dtype=np.uint8))
