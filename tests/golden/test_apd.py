"""APD as its authors' implementation decodes: tokens, passes, what each step committed, and both models' logits."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from diffusing import Request, uncover
from safetensors.torch import load_file
from tiny import GOLDEN

from paceline.decode.adaptive import Adaptive
from paceline.decode.apd import APD
from paceline.decode.canvas import Canvas
from paceline.decode.denoiser import Denoiser
from paceline.decode.target import Target
from paceline.models.load import load_transformer
from paceline.request import Sampling

TOLERANCE = 1e-4
ENDS = frozenset({255})
FOLDER = GOLDEN / "apd-tiny"
FILE = json.loads((FOLDER / "cases.json").read_text())
CASES = [i for i, case in enumerate(FILE["cases"]) if case["strategy"] == "apd" and case["must_match"]]


@pytest.fixture(scope="module")
def models() -> tuple[Denoiser, Target]:
    dllm, verifier = (load_transformer(FOLDER / name, torch.float32) for name in ("dream", "qwen2"))
    return Denoiser(dllm, 256), Target(verifier, 256)


def both(apd: APD, canvas: Canvas) -> tuple[torch.Tensor, torch.Tensor]:
    """What the two models say in the next step: scores of every proposal, the mask ruled out."""
    assert canvas.verifier_cache is not None
    read = canvas.verifier_cache.length
    with torch.inference_mode():
        (marginal,) = apd.dllm.scores([canvas], [apd.rows(canvas)], [canvas.masked[: canvas.visible]])
        (joint,) = apd.read([canvas], [marginal.argmax(-1).tolist()])
    canvas.verifier_cache.truncate(read)
    return marginal, joint


def settings_of(case: dict[str, Any]) -> Adaptive:
    """With a fixed schedule R is alpha, and the window stays."""
    return Adaptive(case["R"], schedule="fixed", window=case["max_lookahead"], kv_window=case["kv_window"])


@pytest.mark.parametrize("index", CASES)
def test_an_answer_is_the_references(models: tuple[Denoiser, Target], index: int) -> None:
    case = FILE["cases"][index]
    request = Request(FILE["prompts"][case["prompt_index"]], Sampling(max_tokens=case["max_new_tokens"]), 0)
    (answer,) = uncover(APD(*models, settings_of(case), ENDS), [request])
    assert answer.tokens == case["output_ids"]
    assert answer.unmasked_per_step == case["accepted_per_step"]
    assert answer.forward_passes == case["dllm_forward_passes"] == case["verifier_forward_passes"]


@pytest.mark.parametrize("index", [i for i, case in enumerate(FILE["cases"]) if "trace" in case])
def test_both_models_say_what_the_references_say(models: tuple[Denoiser, Target], index: int) -> None:
    """Step by step; the verifier's first row is left out, which the reference carries over from the step before."""
    case = FILE["cases"][index]
    expected = load_file(FOLDER / "expected.safetensors")
    apd = APD(*models, settings_of(case), ENDS)
    canvas = apd.open(FILE["prompts"][case["prompt_index"]], Sampling(max_tokens=case["max_new_tokens"]), 0)
    ids = slice(0, 254)  # the mask is ruled out here
    for step in case["trace"]:
        marginal, joint = both(apd, canvas)
        assert range(*step["window"]) == range(canvas.settled, canvas.settled + len(marginal))
        assert apd.rows(canvas)[0] == step["recomputed_from"]
        for scores, name, first in ((marginal, "dllm_logits", 0), (joint, "ar_logits", 1)):
            difference = (scores - expected[f"{step['key']}.{name}"])[first:, ids]
            assert float(difference.abs().max()) < TOLERANCE
        apd.step([canvas])


def test_there_are_many_cases() -> None:
    assert len(CASES) == 210
    assert {FILE["cases"][index]["kv_window"] for index in CASES} == {None, 16, 8, 1}
