"""Plain decoding at temperature 0 gives the tokens of `transformers` on the same folder, `==` in float32."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted import answer_all, plain, scripted
from tiny import tiny_spec, tiny_transformer, write_checkpoint

from paceline.engine.loop import Job
from paceline.models.load import load_transformer
from paceline.models.spec import Rope, Spec
from paceline.request import Sampling

PROMPTS = ((5,), (1, 2, 3, 4), tuple(range(10, 33)))
SPECS: dict[str, Spec] = {
    "qwen3": tiny_spec("qwen3"),
    "qwen3 tied": tiny_spec("qwen3", tied_head=True),
    "qwen2": tiny_spec("qwen2"),
    "llama3 rope": tiny_spec("llama", rope=Rope(1e4, 8.0, 1.0, 4.0, 32)),
    "mistral": tiny_spec("mistral", windows=(9, 9)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_greedy_tokens(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tiny_transformer(SPECS[name], seed=3, dtype=torch.float32))
    model = load_transformer(tmp_path, torch.float32)
    jobs = [Job(prompt, Sampling(max_tokens=40), seed=0) for prompt in PROMPTS]
    ours = [answer.token_ids for answer in answer_all(plain(model), jobs, batch=3)]
    assert ours == theirs(tmp_path, PROMPTS, 40)
    drafted = answer_all(scripted(model, 6, lambda _, slots: [7] * slots), jobs, batch=2)
    assert [answer.token_ids for answer in drafted] == ours


def theirs(folder: Path, prompts: Any, max_tokens: int) -> list[list[int]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's own imports
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
        answers = []
        for prompt in prompts:
            ids = torch.tensor([prompt])
            whole = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_tokens,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
            answers.append(whole[0, len(prompt) :].tolist())
    return answers
