"""What a drafter learns from: answers of its own target, and the target's features along them.

Prompts are the beginnings of training documents; the answers come from the product's own decoding. Written once per
target as an .npz, in parts, so that a killed run goes on where it stopped.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.decode.lockstep import LockstepJob, decode_lockstep
from paceline.decode.target import Target
from paceline.errors import ConfigError, TrainingError
from paceline.files import write_atomically
from paceline.models.attention import dense_attention
from paceline.models.transformer import Transformer
from paceline.progress import progress
from paceline.request import Sampling
from paceline.train.data import load_documents
from paceline.train.fit.memory import memory_is_set_by
from paceline.train.options import ResponsesConfig
from paceline.train.parts import Part, parts_of, read_parts

__all__ = ["Responses", "beginnings", "features", "generate_responses", "load_responses", "temperatures"]


@dataclass(frozen=True, slots=True)
class Responses:
    """Prompts and answers, one row each, padded or cut to one width: tokens [rows, width], lengths [rows]."""

    tokens: Tensor
    prompt_lengths: Tensor
    lengths: Tensor


def generate_responses(
    target: Target,
    corpus: Path,
    turn_start: tuple[int, ...],
    config: ResponsesConfig,
    end_ids: frozenset[int],
    out: Path,
) -> None:
    """Generate answers into `out`, part by part; parts that exist are kept.

    Args:
        corpus: a token file (see train.data).
        turn_start: the ids that open an assistant's turn; a document that holds them is cut behind the last.
        end_ids: what ends an answer.
    """
    out.mkdir(parents=True, exist_ok=True)
    prompts = beginnings(corpus, turn_start, config)
    parts = parts_of(prompts, config.part, out)
    with progress("answers", len(parts)) as advance, memory_is_set_by("batch", config.batch):
        for part in parts:
            if not part.path.exists():
                _write(part.path, _answer(target, part, config, end_ids))
            advance(f"{len(part.prompts)} answers")


def load_responses(folder: Path, width: int) -> Responses:
    """Read all parts; rows longer than `width` are cut, answers of fewer than 8 tokens left out.

    Raises:
        TrainingError: nothing there, or it cannot be read.
    """
    rows, prompts = [], []
    for tokens, starts, prompt_lengths in read_parts(folder, ("tokens", "starts", "prompt_lengths")):
        for prompt, start, end in zip(prompt_lengths, starts[:-1], starts[1:], strict=True):
            row = tokens[start:end][:width]
            if len(row) >= prompt + 8:
                rows.append(row)
                prompts.append(prompt)
    if not rows:
        remedy = "Train the target longer, or raise max_tokens."
        raise TrainingError(f"No answer in {folder} has 8 tokens.", remedy=remedy)
    padded = np.zeros((len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    lengths = torch.tensor([len(row) for row in rows])
    return Responses(torch.from_numpy(padded), torch.tensor(np.array(prompts, dtype=np.int64)), lengths)


@torch.no_grad()
def features(target: Transformer, responses: Responses, taps: tuple[int, ...], batch: int = 32) -> Tensor:
    """The target's features along all rows: bfloat16 [rows, width, taps * hidden], 0 behind the end of a row.

    Rows of like length go together, so that little is computed for nothing, and no memory is touched for it.
    """
    rows, width = responses.tokens.shape
    found = torch.zeros(rows, width, len(taps) * target.spec.hidden_size, dtype=torch.bfloat16)
    parts = torch.split(responses.lengths.argsort(), batch)
    with progress("features", len(parts)) as advance:
        for part in parts:
            longest = int(responses.lengths[part].max())
            attend = dense_attention(len(part), target.spec.windows)
            tokens, positions = responses.tokens[part, :longest].reshape(-1), torch.arange(longest).repeat(len(part))
            output = target(tokens, positions, attend, taps)
            assert output.features is not None
            tapped = output.features.unflatten(0, (len(part), longest)).bfloat16()
            for row, own in zip(part.tolist(), tapped, strict=True):
                found[row, : responses.lengths[row]] = own[: responses.lengths[row]]
            advance("")
    return found


def beginnings(corpus: Path, turn_start: tuple[int, ...], config: ResponsesConfig) -> list[tuple[int, ...]]:
    """Beginnings of documents in a random order, turns of a chat and others in the share that is asked for.

    Where there are too few of one kind, more of the other take their place; where there are too few in all, a warning
    says so.

    Raises:
        ConfigError: no document is long enough.
    """
    documents = load_documents(corpus)
    rng = np.random.default_rng(config.seed)
    found: dict[bool, list[tuple[int, tuple[int, ...]]]] = {True: [], False: []}
    for place, index in enumerate(rng.permutation(len(documents))):
        is_chat, prompt = _beginning(documents[index], turn_start, rng, config)
        if prompt is not None:
            found[is_chat].append((place, prompt))
        if all(len(each) >= config.count for each in found.values()):
            break
    chats, others = found[True], found[False]
    if not chats and not others:
        told = f"prompt_tokens is {list(config.prompt_tokens)}: no document of {corpus} has such a beginning."
        raise ConfigError(told, remedy="Lower it, or build a larger corpus.", param="prompt_tokens")
    wanted = max(round(config.count * config.chat_share), config.count - len(others))
    chosen = chats[:wanted] + others[: config.count - min(wanted, len(chats))]
    if len(chosen) < config.count:
        low, high = config.prompt_tokens
        known = f"{corpus} has {len(chosen)} beginnings of {low} to {2 * high} tokens, count is {config.count}"
        warnings.warn(f"{known}: there will be no more texts. A larger corpus has more.", stacklevel=2)
    return [prompt for _, prompt in sorted(chosen)]


def temperatures(count: int, first: int, config: ResponsesConfig) -> list[float]:
    """Of the `count` answers from `first` on: 0 for the greedy ones, uniform in the range for the sampled share."""
    rng = np.random.default_rng((config.seed, first))
    sampled = rng.random(count) < config.sampled_share
    drawn: list[float] = np.where(sampled, rng.uniform(*config.temperatures, count), 0.0).tolist()
    return drawn


def _beginning(
    document: NDArray[np.integer], turn_start: tuple[int, ...], rng: np.random.Generator, config: ResponsesConfig
) -> tuple[bool, tuple[int, ...] | None]:
    """Whether a document is a chat, and its beginning, where that has a fair length."""
    low, high = config.prompt_tokens
    ids = [int(token) for token in document]
    turns = [i for i in range(len(ids) - len(turn_start)) if tuple(ids[i : i + len(turn_start)]) == turn_start]
    end = turns[-1] + len(turn_start) if turns else int(rng.integers(low, high + 1))
    return bool(turns), tuple(ids[:end]) if low <= end <= 2 * high and end < len(ids) else None


def _answer(
    target: Target, part: Part, config: ResponsesConfig, end_ids: frozenset[int]
) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    drawn = temperatures(len(part.prompts), part.first, config)
    jobs = [
        LockstepJob(prompt, Sampling(max_tokens=config.max_tokens, temperature=temperature), seed)
        for seed, (prompt, temperature) in enumerate(zip(part.prompts, drawn, strict=True), start=part.first)
    ]
    jobs.sort(key=lambda job: len(job.prompt))  # less padding, and turns of a chat with turns of a chat
    for start in range(0, len(jobs), config.batch):
        batch = jobs[start : start + config.batch]
        yield from zip((job.prompt for job in batch), decode_lockstep(target, batch, end_ids), strict=True)


def _write(path: Path, answers: Iterator[tuple[tuple[int, ...], list[int]]]) -> None:
    rows = [(len(prompt), [*prompt, *answer]) for prompt, answer in answers]
    starts = np.cumsum([0, *(len(row) for _, row in rows)], dtype=np.int64)
    tokens = np.array([token for _, row in rows for token in row], dtype=np.uint32)
    lengths = np.array([prompt for prompt, _ in rows], dtype=np.int64)
    write_atomically(path, lambda draft: np.savez(draft, tokens=tokens, starts=starts, prompt_lengths=lengths))
