"""APD: a diffusion LLM decodes left to right, as far as a small autoregressive model follows (arXiv 2506.00413).

    propose   the dLLM draws a token for every mask it sees, all from one pass: its marginals
    read      the verifier reads these tokens in one pass: the joint that the marginals lack
    agree     the first token always; of the next ones as many as the product of both models would draw too
    commit    these are fixed for good; both models keep keys and values of the committed prefix

Both draws use the noise of their position, so the text is a function of its own request: of its seed and settings, the
two models' probabilities, and nothing else. (The authors' code draws without noise where it verifies.)
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from paceline.cache.store import SequenceCache
from paceline.decode.adaptive import Adaptive, dllm_weight, next_window
from paceline.decode.agree import equal_prefix, product
from paceline.decode.canvas import Canvas
from paceline.decode.confidence import confidence
from paceline.decode.diffusion import MaskedDiffusion
from paceline.decode.processors import process
from paceline.decode.sampling import choose
from paceline.decode.target import Target
from paceline.request import Round, Sampling

__all__ = ["APD"]


@dataclass(frozen=True, slots=True)
class APD:
    """A diffusion model, the small autoregressive model that checks it, and how far it is trusted."""

    dllm: MaskedDiffusion
    verifier: Target
    settings: Adaptive
    name = "apd"

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded; see `MaskedDiffusion.check` and `Target.check`, which refuses holes."""
        self.dllm.check(prompt, sampling)
        self.verifier.check(prompt, sampling, suffix)

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Canvas:
        """An answer of masks with room for the verifier's keys and values, for a request that `check` let pass."""
        assert not suffix, "`check` refuses holes"
        canvas = self.dllm.open(prompt, sampling, seed)
        spec, model = self.verifier.model.spec, self.verifier.model
        shape = (spec.num_layers, spec.num_kv_heads, spec.head_dim, len(canvas.tokens))
        canvas.verifier_cache = SequenceCache(*shape, model.dtype, self.verifier.device)
        canvas.open_block(canvas.hole)
        canvas.visible = next_window(self.settings, len(canvas.masked), 1.0)
        return canvas

    def prefill(self, canvases: Many[Canvas]) -> list[tuple[int, ...]]:
        """Nothing to do: both models read the prompts in the first step."""
        return [()] * len(canvases)

    @torch.inference_mode()
    def step(self, canvases: Many[Canvas]) -> list[Round]:
        """One pass of each model over answers that have masks: what was committed to each."""
        started = time.perf_counter()
        masks = [canvas.masked[: canvas.visible] for canvas in canvases]
        windows = [self.window(canvas) for canvas in canvases]
        marginals = self.dllm.scores(canvases, windows, masks)
        drafts = [
            self._up_to_end(canvas, choose(scores, canvas.sampling, canvas.noise, own).tolist())
            for canvas, own, scores in zip(canvases, masks, marginals, strict=True)
        ]
        proposed = time.perf_counter()
        joints = self.read(canvases, drafts)
        agreed = [
            self._commit(canvas, window, draft, marginal[: len(draft)], joint)
            for canvas, window, draft, marginal, joint in zip(canvases, windows, drafts, marginals, joints, strict=True)
        ]
        draft_seconds = (proposed - started) / len(canvases)
        verify_seconds = (time.perf_counter() - proposed) / len(canvases)
        return [
            Round(tuple(draft), reference, run, len(run), draft_seconds, verify_seconds)
            for draft, (reference, run) in zip(drafts, agreed, strict=True)
        ]

    def window(self, canvas: Canvas) -> range:
        """What the dLLM computes: the masks it sees, and the tokens before them whose keys and values are not kept."""
        return range(0 if self.settings.kv_window is None else canvas.cache.length, canvas.settled + canvas.visible)

    def read(self, canvases: Many[Canvas], drafts: Many[list[int]]) -> list[Tensor]:
        """The verifier's scores [drafts, vocab of the dLLM] for each draft, given what stands before it."""
        caches = [_verifier_cache(canvas) for canvas in canvases]
        rows = [
            [*canvas.tokens[cache.length : canvas.settled], *draft[:-1]]
            for canvas, cache, draft in zip(canvases, caches, drafts, strict=True)
        ]
        hidden = torch.split(self.verifier.forward(rows, caches).hidden, [len(own) for own in rows])
        for cache, own in zip(caches, rows, strict=True):
            cache.advance(len(own))
        counts = [len(draft) for draft in drafts]
        last = torch.cat([own[-count:] for own, count in zip(hidden, counts, strict=True)])
        logits = _aligned(self.verifier.model.head(last), self.dllm.model.spec.vocab_size)
        banned = self.dllm.banned()
        return [
            process(own, canvas.sampling, canvas.counts, draft[:-1], banned)
            for own, canvas, draft in zip(torch.split(logits, counts), canvases, drafts, strict=True)
        ]

    def _commit(
        self, canvas: Canvas, window: range, draft: list[int], marginal: Tensor, joint: Tensor
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Fix the part of the draft on which both agree, and keep the keys and values that stay right.

        Returns:
            What both would draw, and what was fixed.
        """
        sure = float(confidence(joint, torch.tensor(draft, device=joint.device), "low_confidence").mean())
        scores = product(marginal, joint, dllm_weight(self.settings, sure))
        places = range(canvas.settled, canvas.settled + len(draft))
        reference = choose(scores, canvas.sampling, canvas.noise, places).tolist()
        count = 1 + equal_prefix(draft[1:], reference[1:])
        if self.settings.kv_window is not None:
            canvas.cache.advance(len(window))
            canvas.cache.truncate(max(0, canvas.settled - (self.settings.kv_window - 1)))
        run = canvas.fix(places[:count], draft[:count])
        _verifier_cache(canvas).truncate(canvas.settled - 1)
        canvas.visible = next_window(self.settings, len(canvas.masked), sure)
        return tuple(reference), run

    def _up_to_end(self, canvas: Canvas, draft: list[int]) -> list[int]:
        """A draft without what stands behind its first end token, which nobody would read."""
        end_ids = {*self.dllm.model.spec.eos_token_ids, *canvas.sampling.stop_token_ids}
        ends = [index for index, token in enumerate(draft) if token in end_ids]
        return draft[: ends[0] + 1] if ends else draft


def _aligned(logits: Tensor, vocab_size: int) -> Tensor:
    """Logits cut or filled up to another height of the table; what is missing has probability 0."""
    return pad(logits, (0, vocab_size - logits.shape[-1]), value=-torch.inf)


def _verifier_cache(canvas: Canvas) -> SequenceCache:
    assert canvas.verifier_cache is not None, "the answer was opened by another method"
    return canvas.verifier_cache
