"""Requests of every kind, for the oracles: families of models, temperatures, filters, penalties, and ways to end."""

from __future__ import annotations

import itertools
import random
from functools import cache
from typing import Any

from tiny import tiny_spec, tiny_transformer
from tiny_tokenizers import byte_level, wrap

from paceline.engine.loop import Answer, Job
from paceline.models.spec import Rope, Spec
from paceline.request import Sampling

VOCAB = 64
ENDS = frozenset({7, 40})
TOKENIZER = wrap(byte_level())  # ids 0 … 63 are the characters ! … `
BIAS = {5: 1.5, 6: -100.0, 63: 2.0, 11: 0.5}

FAMILIES: dict[str, Spec] = {
    "qwen3": tiny_spec("qwen3"),
    "qwen3, tied, padded vocabulary": tiny_spec("qwen3", tied_head=True),
    "qwen2, one sliding layer": tiny_spec("qwen2", windows=(None, 6)),
    "mistral, all layers sliding": tiny_spec("mistral", windows=(7, 7)),
    "llama3, one key head, biases": tiny_spec(
        "llama", num_kv_heads=1, qkv_bias=True, out_bias=True, mlp_bias=True, rope=Rope(1e4, 8.0, 1.0, 4.0, 32)
    ),
    "llama, short context": tiny_spec("llama", num_kv_heads=4, context_tokens=40),
}
USABLE = dict.fromkeys(FAMILIES, VOCAB) | {"qwen3, tied, padded vocabulary": VOCAB - 5}
TEMPERATURES = (0.0, 0.3, 1.0, 2.0)
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"top_k": 20, "top_p": 0.9, "min_p": 0.02},
)
PROCESSORS: tuple[dict[str, Any], ...] = (
    {},
    {"repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": -0.4},
    {"logit_bias": BIAS},
    {"repetition_penalty": 0.8, "frequency_penalty": 0.9, "logit_bias": BIAS},
)
OPTIONS = list(itertools.product(TEMPERATURES, range(len(FILTERS)), range(len(PROCESSORS))))
MAX_TOKENS = (1, 2, 5, 16, 17, 24, 36)
ENDINGS: tuple[dict[str, Any], ...] = ({}, {}, {"stop_token_ids": (3, 50)}, {"stop": ("Q", "AB", "7")})


@cache
def models(family: str) -> Any:
    return tiny_transformer(FAMILIES[family], seed=len(family))


def jobs_for(family: str, salt: int, options: list[Any]) -> list[Job]:
    """One request for each option, with a prompt, seed, budget and ending of its own."""
    jobs = []
    for index, (temperature, filtering, processing) in enumerate(options):
        rng = random.Random(f"{family} {salt} {index}")
        prompt = tuple(rng.randrange(USABLE[family]) for _ in range(rng.choice((1, 3, 8, 15, 30))))
        settings = {**FILTERS[filtering], **PROCESSORS[processing], **rng.choice(ENDINGS)}
        sampling = Sampling(max_tokens=MAX_TOKENS[index % 7], temperature=temperature, **settings)
        jobs.append(Job(prompt, sampling, rng.randrange(-(2**63), 2**63)))
    return jobs


def outcome(answer: Answer) -> tuple[list[int], str, str | None]:
    return answer.token_ids, answer.text, answer.finish_reason
