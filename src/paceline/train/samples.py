"""What a verifier learns from: a diffusion model's own texts, and the rows from which it drew each of their tokens.

The model fills its answers from left to right, and what it said of a token at the moment when that was fixed is
logged: the likeliest ids and their log-probabilities, before temperature. Written once, in parts, so that a killed run
goes on where it stopped. Knows nothing of how a verifier is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.decode.canvas import Canvas
from paceline.decode.denoiser import Denoiser
from paceline.decode.sampling import choose
from paceline.decode.windows import in_sight, slide
from paceline.errors import ConfigError
from paceline.files import write_atomically
from paceline.progress import progress
from paceline.request import Sampling
from paceline.train.diffusion_options import SamplesConfig
from paceline.train.fit.memory import memory_is_set_by
from paceline.train.parts import Part, parts_of, read_parts
from paceline.train.responses import Responses, beginnings, temperatures
from paceline.train.teacher import Teacher

__all__ = ["Sample", "generate_samples", "load_samples", "sample"]


class _Finished(NamedTuple):
    """What is kept of a text: its place among the prompts, its tokens, how many are the prompt, and what was logged."""

    place: int
    tokens: list[int]
    prompt_tokens: int
    ids: Tensor
    log_probabilities: Tensor


@dataclass(slots=True)
class Sample:
    """One text in the making.

    Attributes:
        canvas: where it stands.
        ids, log_probabilities: [k] for each token of the answer, likeliest first.
    """

    canvas: Canvas
    ids: list[Tensor] = field(default_factory=list)
    log_probabilities: list[Tensor] = field(default_factory=list)

    @property
    def answer(self) -> list[int]:
        """The tokens drawn so far."""
        start = self.canvas.hole.start
        return self.canvas.tokens[start : start + len(self.ids)]


def generate_samples(
    dllm: Denoiser,
    corpus: Path,
    turn_start: tuple[int, ...],
    config: SamplesConfig,
    end_ids: frozenset[int],
    out: Path,
) -> None:
    """Let `dllm` go on with beginnings of documents, part by part into `out`; parts that exist are kept.

    A part holds its texts in the order of their prompts, which is random.

    Args:
        corpus: a token file (see train.data).
        turn_start: the ids that open an assistant's turn; a document that holds them is cut behind the last.
        end_ids: what ends a text.

    Raises:
        ConfigError: teacher_top_k is more than the tokens that may be drawn. ContextOverflow: a prompt is too long.
    """
    drawable = dllm.model.spec.vocab_size - len(set(dllm.banned().tolist()))
    if config.teacher_top_k > drawable:
        told = f"teacher_top_k is {config.teacher_top_k}, of {drawable} tokens."
        raise ConfigError(told, remedy="Lower teacher_top_k.", param="teacher_top_k")
    out.mkdir(parents=True, exist_ok=True)
    asked = config.texts
    prompts = beginnings(corpus, turn_start, asked)
    for prompt in prompts:
        dllm.check(prompt, Sampling(max_tokens=asked.max_tokens))
    parts = parts_of(prompts, asked.part, out)
    with progress("samples", len(parts)) as advance, memory_is_set_by("batch", asked.batch):
        for part in parts:
            if not part.path.exists():
                _write(part.path, sorted(_samples(dllm, part, config, end_ids)))
            advance(f"{len(part.prompts)} samples")


def load_samples(folder: Path) -> tuple[Responses, Teacher]:
    """Read all parts: the texts, and what the dLLM said behind each of their tokens (0 behind those of the prompts).

    Raises:
        TrainingError: nothing there, or it cannot be read.
    """
    names = ("tokens", "starts", "prompt_lengths", "ids", "log_probabilities")
    rows = [row for part in read_parts(folder, names) for row in _rows(*part)]
    width, k = max(len(tokens) for tokens, *_ in rows), rows[0][2].shape[1]
    tokens = torch.zeros(len(rows), width, dtype=torch.int64)
    said = Teacher(
        torch.zeros(len(rows), width, k, dtype=torch.int32), torch.zeros(len(rows), width, k, dtype=torch.float16)
    )
    for row, (text, prompt, ids, values) in enumerate(rows):
        tokens[row, : len(text)] = torch.from_numpy(text.astype(np.int64))
        behind = slice(prompt - 1, len(text) - 1)
        said.ids[row, behind] = torch.from_numpy(ids.astype(np.int32))
        said.log_probabilities[row, behind] = torch.from_numpy(values)
    prompts, lengths = (torch.tensor(each) for each in zip(*((row[1], len(row[0])) for row in rows), strict=True))
    return Responses(tokens, prompts, lengths), said


@torch.inference_mode()
def sample(dllm: Denoiser, canvases: list[Canvas], config: SamplesConfig, end_ids: frozenset[int]) -> list[Sample]:
    """Fill all canvases together, `tokens_per_step` at a time from left to right, each up to its first end token."""
    samples = [Sample(canvas) for canvas in canvases]
    active = samples
    while active:
        _step(dllm, active, config)
        active = [each for each in active if each.canvas.masked and not end_ids.intersection(each.answer)]
    for each in samples:
        _cut(each, end_ids)
    return samples


def _step(dllm: Denoiser, samples: list[Sample], config: SamplesConfig) -> None:
    canvases = [each.canvas for each in samples]
    masks = [canvas.masked[: config.tokens_per_step] for canvas in canvases]
    rows = [in_sight(canvas, canvas.cache.length, config.window) for canvas in canvases]
    for each, own, places, scores in zip(samples, rows, masks, dllm.scores(canvases, rows, masks), strict=True):
        values, ids = scores.float().log_softmax(-1).topk(config.teacher_top_k)
        each.ids += ids.unbind()
        each.log_probabilities += values.unbind()
        drawn = choose(scores, each.canvas.sampling, each.canvas.noise, places).tolist()
        each.canvas.fix(places, drawn)
        if config.kv_window is not None:
            slide(each.canvas.cache, len(own), places[0], config.kv_window)


def _cut(each: Sample, end_ids: frozenset[int]) -> None:
    """Forget what was logged behind the first end token."""
    ends = [index for index, token in enumerate(each.answer) if token in end_ids]
    kept = ends[0] + 1 if ends else len(each.ids)
    del each.ids[kept:], each.log_probabilities[kept:]


def _samples(dllm: Denoiser, part: Part, config: SamplesConfig, end_ids: frozenset[int]) -> Iterator[_Finished]:
    """Shorter prompts first, which leaves less to wait for. Canvases, whose caches are large, go with their batch."""
    drawn = temperatures(len(part.prompts), part.first, config.texts)
    asked = sorted(zip(part.prompts, drawn, count(part.first), strict=False), key=lambda one: len(one[0]))
    for start in range(0, len(asked), config.texts.batch):
        batch = asked[start : start + config.texts.batch]
        canvases = [
            dllm.open(prompt, Sampling(max_tokens=config.texts.max_tokens, temperature=temperature), seed)
            for prompt, temperature, seed in batch
        ]
        for (prompt, _, index), each in zip(batch, sample(dllm, canvases, config, end_ids), strict=True):
            logs = torch.stack(each.ids), torch.stack(each.log_probabilities).half()
            yield _Finished(index, [*prompt, *each.answer], len(prompt), *logs)


def _write(path: Path, samples: list[_Finished]) -> None:
    tokens = np.array([token for each in samples for token in each.tokens], dtype=np.uint32)
    starts = np.cumsum([0, *(len(each.tokens) for each in samples)], dtype=np.int64)
    lengths = np.array([each.prompt_tokens for each in samples], dtype=np.int64)
    ids = torch.cat([each.ids for each in samples]).numpy().astype(np.uint32)
    said = torch.cat([each.log_probabilities for each in samples]).numpy()
    text: dict[str, NDArray[Any]] = {"tokens": tokens, "starts": starts, "prompt_lengths": lengths}
    write_atomically(path, lambda draft: np.savez(draft, allow_pickle=False, ids=ids, log_probabilities=said, **text))


def _rows(
    tokens: NDArray[Any], starts: NDArray[Any], prompt_lengths: NDArray[Any], ids: NDArray[Any], values: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], int, NDArray[Any], NDArray[Any]]]:
    """The texts of a part: their tokens, how many are the prompt, and what was said of each of the others."""
    told = 0
    for start, stop, prompt in zip(starts[:-1], starts[1:], prompt_lengths.tolist(), strict=True):
        behind = slice(told, told + int(stop - start) - prompt)
        yield tokens[start:stop], prompt, ids[behind], values[behind]
        told = behind.stop
