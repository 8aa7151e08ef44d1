"""DFlash whose drafts are written down beforehand, and targets whose next token is.

Everything but the proposals is the real thing: the read, the agreement, both caches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec
from torch import Tensor, nn

from paceline.completion import Round
from paceline.decode.autoregressive import Autoregressive
from paceline.decode.dflash import DFlash
from paceline.decode.sequence import Sequence as Decoded
from paceline.decode.speculation import Plan, Speculation
from paceline.decode.target import Target
from paceline.decode.tree import Proposal
from paceline.decode.tree import chain as one_chain
from paceline.engine.loop import Answer, Decoder, Job, run
from paceline.models.drafter import Drafter
from paceline.models.transformer import Transformer
from paceline.request import Sampling
from paceline.text import Tokenizer

Script = Callable[[Decoded, int], Sequence[int] | Proposal]
"""(sequence, slots) -> at most so many drafts."""

Answers = Mapping[tuple[tuple[int, ...], int], Sequence[int]]
"""(prompt, seed) -> what plain decoding answers."""


@dataclass(frozen=True, slots=True)
class ScriptedDFlash(DFlash):
    """DFlash with the drafts of `script`; its drafter only remembers the context."""

    script: Script = field(kw_only=True)

    def _propose(self, sequences: Sequence[Decoded], plans: Sequence[Plan]) -> list[Proposal]:
        slots = [
            min(plan.block_size - 1, sequence.remaining_tokens) for sequence, plan in zip(sequences, plans, strict=True)
        ]
        drafts = [self.script(sequence, count) for sequence, count in zip(sequences, slots, strict=True)]
        return [draft if isinstance(draft, Proposal) else one_chain(draft) for draft in drafts]


@dataclass(slots=True)
class Watched:
    """A decoder, and the prompts that took part in each of its steps."""

    decoder: Decoder[Any]
    steps: list[list[tuple[int, ...]]] = field(default_factory=list)
    sequences: dict[tuple[int, ...], Decoded] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.decoder.name

    def check(self, prompt: Sequence[int], sampling: Sampling, suffix: Sequence[int] = ()) -> None:
        self.decoder.check(prompt, sampling, suffix)

    def open(self, prompt: Sequence[int], sampling: Sampling, seed: int, suffix: Sequence[int] = ()) -> Decoded:
        self.sequences[tuple(prompt)] = self.decoder.open(prompt, sampling, seed)
        return self.sequences[tuple(prompt)]

    def prefill(self, sequences: Sequence[Decoded]) -> list[tuple[int, ...]]:
        return self.decoder.prefill(sequences)

    def step(self, sequences: Sequence[Decoded]) -> list[Round]:
        self.steps.append([prompt_of(sequence) for sequence in sequences])
        return self.decoder.step(sequences)


def scripted(model: Transformer, block_size: int, script: Script, usable: int | None = None) -> ScriptedDFlash:
    """A scripted decoder for `model`, with a random drafter that taps the first and the last layer."""
    drafter = drafter_of(model)
    target = Target(model, usable or model.spec.vocab_size, drafter.spec.target_layer_ids)
    return ScriptedDFlash(target, drafter, Speculation(block_size=block_size), script=script)


def plain(model: Transformer, usable: int | None = None) -> Autoregressive:
    """The oracle."""
    return Autoregressive(Target(model, usable or model.spec.vocab_size))


def drafter_of(model: Transformer, **changes: Any) -> Drafter:
    """A random drafter for `model`, whatever its width."""
    return tiny_drafter(tiny_drafter_spec(model.spec, **changes), model)


def copying(answers: Answers, probability: float, vocab_size: int, salt: object = 0) -> Script:
    """Drafts that copy plain decoding: each slot with `probability` its token, else another id."""

    def script(sequence: Decoded, slots: int) -> list[int]:
        done = len(sequence.tokens) - sequence.prompt_tokens
        rng = random.Random(f"{salt} {sequence.seed} {done}")
        drafts = []
        for token in truth(answers, sequence, slots):
            copy = rng.random() < probability
            drafts.append(token if copy else (token + rng.randrange(1, vocab_size)) % vocab_size)
        return drafts

    return script


def accepting(answers: Answers, counts: Mapping[tuple[int, ...], Sequence[int]], vocab_size: int) -> Script:
    """Drafts of which exactly counts[prompt][round] are right, then the last count again and again."""
    rounds: dict[tuple[int, ...], int] = {}

    def script(sequence: Decoded, slots: int) -> list[int]:
        prompt = prompt_of(sequence)
        turn = rounds[prompt] = rounds.get(prompt, -1) + 1
        right = counts[prompt][min(turn, len(counts[prompt]) - 1)]
        drafts = truth(answers, sequence, slots)
        if right < len(drafts):
            drafts[right] = (drafts[right] + 1) % vocab_size
        return drafts

    return script


def truth(answers: Answers, sequence: Decoded, slots: int) -> list[int]:
    """The next `slots` tokens of plain decoding; zeros behind its end."""
    done = len(sequence.tokens) - sequence.prompt_tokens
    known = list(answers[prompt_of(sequence), sequence.seed])[done : done + slots]
    return known + [0] * (slots - len(known))


def prompt_of(sequence: Decoded) -> tuple[int, ...]:
    return tuple(sequence.tokens[: sequence.prompt_tokens])


def answer_all(
    decoder: Decoder[Any],
    jobs: Iterable[Job],
    *,
    tokenizer: Tokenizer | None = None,
    ends: frozenset[int] = frozenset(),
    batch: int = 1,
) -> list[Answer[Any]]:
    """Decode `jobs`; the answers in their order. Checks what every stream must hold."""
    jobs = list(jobs)
    done: dict[int, Answer[Any]] = {}
    streamed: dict[int, tuple[str, list[int]]] = {id(job): ("", []) for job in jobs}
    for answer, chunk in run(decoder, jobs, tokenizer, ends, batch):
        key = id(answer.job)
        assert key not in done, "a chunk after the end"
        streamed[key] = (streamed[key][0] + chunk.text, [*streamed[key][1], *chunk.token_ids])
        if chunk.finish_reason is not None:
            done[key] = answer
    answers = [done[id(job)] for job in jobs]
    for answer in answers:
        assert streamed[id(answer.job)] == (answer.text, answer.token_ids)
        first = [] if decoder.name in ("diffusion", "apd") else answer.token_ids[:1]
        assert first + [token for round in answer.rounds for token in round.committed] == answer.token_ids
        assert len(answer.token_ids) <= answer.job.sampling.max_tokens
    return answers


def answers_of(
    decoder: Decoder[Any], jobs: Iterable[Job], **options: Any
) -> dict[tuple[tuple[int, ...], int], list[int]]:
    """Token ids by (prompt, seed), each job decoded alone."""
    return {(job.prompt, job.seed): answer_all(decoder, [job], **options)[0].token_ids for job in jobs}


def markov(table: Tensor) -> Transformer:
    """A target whose logits after token t are exactly row t of `table` [vocab, vocab], whatever came before."""
    vocab = len(table)
    spec = tiny_spec(vocab_size=vocab, hidden_size=vocab, num_layers=1)
    model = Transformer(spec).to(table.dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.weight.copy_(torch.eye(vocab))
        model.norm.weight.fill_((1 / vocab + spec.norm_eps) ** 0.5)
        model.head.weight.copy_(table.T)
    return model.eval().requires_grad_(False)


def chain(successors: Mapping[int, int], vocab_size: int = 64) -> Transformer:
    """A target whose greedy token after t is successors[t], else t + 1."""
    table = torch.zeros(vocab_size, vocab_size, dtype=torch.float64)
    for token in range(vocab_size):
        table[token, successors.get(token, (token + 1) % vocab_size)] = 5.0
    return markov(table)


def constant(logits: Sequence[float]) -> Transformer:
    """A target with the same logits everywhere."""
    return markov(torch.tensor(logits, dtype=torch.float64).expand(len(logits), -1))


def zero_matrices(module: nn.Module) -> None:
    """Let every layer pass its input on."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                parameter.zero_()
