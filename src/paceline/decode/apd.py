"""APD: a diffusion LLM decodes left to right, as far as a small autoregressive model follows (arXiv 2506.00413).

    propose   the dLLM draws a token for every mask it sees, all from one pass: its marginals
    read      the verifier reads these tokens in one pass: the joint that the marginals lack
    agree     the first token always; of the next ones as many as the product of both models would draw too
    commit    these are fixed for good; both models keep keys and values of the committed prefix

A hole is filled in the same way: the dLLM sees both of its sides, the verifier what stands left of the draft. Both draw
with the noise of their position, so the text is a function of its own request: of its seed and settings, the two
models' probabilities, and nothing else. (The authors' code draws without noise where it verifies.)

A table of n-grams stands in for the verifier where it has the contexts of the draft up to the first token that is not
kept, or all of them. The verifier's cache then falls behind, and catches up when it is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from paceline.cache.store import SequenceCache
from paceline.completion import Round
from paceline.decode.adaptive import Adaptive, dllm_weight, next_window
from paceline.decode.agree import equal_prefix, product
from paceline.decode.canvas import Canvas
from paceline.decode.confidence import confidence
from paceline.decode.denoiser import Denoiser
from paceline.decode.ngram_table import NgramTable
from paceline.decode.processors import process
from paceline.decode.sampling import choose
from paceline.decode.target import Target
from paceline.decode.tree import chain
from paceline.decode.windows import in_sight, slide
from paceline.errors import BadRequest, ContextOverflow
from paceline.request import Sampling

__all__ = ["APD"]


class Draft(NamedTuple):
    """What the dLLM proposes for the masks that it sees.

    Attributes:
        tokens: up to the first end token.
        marginal: [masks, vocab], its scores.
        places: of each token, where the table of n-grams has its context; None where it has not. Empty without a table.
    """

    tokens: list[int]
    marginal: Tensor
    places: list[int | None]


class Verdict(NamedTuple):
    """What was decided of a draft.

    Attributes:
        judged: the tokens that were judged, from the first of the draft on.
        reference: what both models' product draws for all of them but the first; accepted: how many agree.
        sure: the verifier's mean probability of them, where the schedule is adaptive.
        by_table: whether the table of n-grams said it, and not the verifier.
    """

    judged: list[int]
    reference: list[int]
    accepted: int
    sure: float
    by_table: bool = False


@dataclass(frozen=True, slots=True)
class APD:
    """A diffusion model, the small autoregressive model that checks it, and how far it is trusted.

    Attributes:
        end_token_ids: what ends an answer, besides the stop tokens of its request.
        ngrams: what the verifier says behind frequent contexts, and is not asked where that is enough.
    """

    dllm: Denoiser
    verifier: Target
    settings: Adaptive
    end_token_ids: frozenset[int]
    ngrams: NgramTable | None = None
    name = "apd"

    def check(self, prompt: Many[int], sampling: Sampling, suffix: Many[int] = ()) -> None:
        """Refuse what cannot be decoded; see `Denoiser.check` and `Target.check`: the verifier reads what stands left.

        Raises:
            BadRequest: a hole with nothing before it. ContextOverflow: one that ends behind the verifier's context.
        """
        self.dllm.check(prompt, sampling, suffix)
        if suffix:
            self._check_hole(prompt, sampling)
        self.verifier.check(prompt, sampling)

    def open(self, prompt: Many[int], sampling: Sampling, seed: int, suffix: Many[int] = ()) -> Canvas:
        """An answer of masks that fits both contexts, for a request that `check` let pass."""
        spec, model = self.verifier.model.spec, self.verifier.model
        room = min(sampling.max_tokens, spec.context_tokens - len(prompt))
        canvas = self.dllm.open(prompt, replace(sampling, max_tokens=room), seed, suffix)
        shape = (spec.num_layers, spec.num_kv_heads, spec.head_dim, canvas.hole.stop)
        canvas.verifier_cache = SequenceCache(*shape, model.dtype, self.verifier.device)
        canvas.visible = next_window(self.settings, len(canvas.masked), 1.0)
        return canvas

    def prefill(self, canvases: Many[Canvas]) -> list[tuple[int, ...]]:
        """Nothing to do: both models read the prompts in the first step."""
        return [()] * len(canvases)

    @torch.inference_mode()
    def step(self, canvases: Many[Canvas]) -> list[Round]:
        """One pass of each model over answers that have masks: what was committed to each."""
        started = time.perf_counter()
        rows = [self.rows(canvas) for canvas in canvases]
        masks = [canvas.masked[: canvas.visible] for canvas in canvases]
        marginals = self.dllm.scores(canvases, rows, masks)
        drafts = [self._draft(*each) for each in zip(canvases, masks, marginals, strict=True)]
        proposed = time.perf_counter()
        verdicts = self._judge(canvases, drafts)
        rounds = [self._commit(*each) for each in zip(canvases, rows, drafts, verdicts, strict=True)]
        draft_seconds = (proposed - started) / len(canvases)
        verify_seconds = (time.perf_counter() - proposed) / len(canvases)
        return [replace(round, draft_seconds=draft_seconds, verify_seconds=verify_seconds) for round in rounds]

    def rows(self, canvas: Canvas) -> list[int]:
        """What the dLLM computes: tokens whose keys and values are not kept, the masks it sees, and the suffix."""
        return in_sight(canvas, 0 if self.settings.kv_window is None else canvas.cache.length, canvas.visible)

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
        logits = torch.split(self.verifier.model.head(last), counts)
        return [self._scores(*each) for each in zip(logits, canvases, drafts, strict=True)]

    def _scores(self, logits: Tensor, canvas: Canvas, draft: list[int]) -> Tensor:
        """The verifier's logits [drafts, its vocab] as scores [drafts, vocab of the dLLM]."""
        aligned = _aligned(logits, self.dllm.model.spec.vocab_size)
        return process(aligned, canvas.sampling, canvas.counts, chain(draft[:-1]), self.dllm.banned())

    def _draft(self, canvas: Canvas, masks: list[int], marginal: Tensor) -> Draft:
        """The dLLM's tokens for `masks`, without what stands behind an end token, which nobody would read."""
        tokens: list[int] = choose(marginal, canvas.sampling, canvas.noise, masks).tolist()
        end_ids = self.end_token_ids.union(canvas.sampling.stop_token_ids)
        ends = [index for index, token in enumerate(tokens) if token in end_ids]
        kept = tokens[: ends[0] + 1] if ends else tokens
        if self.ngrams is None:
            return Draft(kept, marginal, [])
        text = [*canvas.tokens[: canvas.settled], *kept[:-1]]
        return Draft(kept, marginal, self.ngrams.find(text, len(kept)))

    def _judge(self, canvases: Many[Canvas], drafts: Many[Draft]) -> list[Verdict]:
        """Each draft by the table where that is enough; the verifier reads the others, in one pass."""
        verdicts = [self._by_table(canvas, draft) for canvas, draft in zip(canvases, drafts, strict=True)]
        asked = [index for index, verdict in enumerate(verdicts) if verdict is None]
        if asked:
            joints = self.read([canvases[index] for index in asked], [drafts[index].tokens for index in asked])
            for index, joint in zip(asked, joints, strict=True):
                draft = drafts[index]
                verdicts[index] = self._agree(canvases[index], draft.tokens, draft.marginal, joint)
        return cast("list[Verdict]", verdicts)

    def _by_table(self, canvas: Canvas, draft: Draft) -> Verdict | None:
        """What the table decides: it must have the context of every token up to the first refused, or of all."""
        known = cast("list[int]", list(takewhile(lambda place: place is not None, draft.places)))
        if self.ngrams is None or not known:
            return None
        judged = draft.tokens[: len(known)]
        joint = self._scores(self.ngrams.rows(known), canvas, judged)
        verdict = self._agree(canvas, judged, draft.marginal, joint)
        if len(known) < len(draft.tokens) and verdict.accepted == len(verdict.reference):
            return None
        return verdict._replace(by_table=True)

    def _agree(self, canvas: Canvas, draft: list[int], marginal: Tensor, joint: Tensor) -> Verdict:
        """How much of the draft both would say, by the scores of both, [drafts, vocab]."""
        sure = 1.0  # nobody asks where weight and window are fixed
        if self.settings.schedule == "adaptive":
            sure = float(confidence(joint, torch.tensor(draft, device=joint.device), "low_confidence").mean())
        scores = product(marginal[: len(draft)], joint, dllm_weight(self.settings, sure))
        places = range(canvas.settled, canvas.settled + len(draft))
        reference = choose(scores, canvas.sampling, canvas.noise, places).tolist()[1:]
        return Verdict(draft, reference, equal_prefix(draft[1:], reference), sure)

    def _commit(self, canvas: Canvas, rows: list[int], draft: Draft, verdict: Verdict) -> Round:
        """Fix the part of the draft on which both agree, and keep the keys and values that stay right."""
        prefix, reused = canvas.settled, canvas.reused_by(rows)
        if self.settings.kv_window is not None:
            slide(canvas.cache, len(rows), prefix, self.settings.kv_window)
        kept = 1 + verdict.accepted
        run = canvas.fix(range(prefix, prefix + kept), verdict.judged[:kept])
        cache = _verifier_cache(canvas)
        cache.truncate(min(cache.length, canvas.settled - 1))  # it falls behind where the verifier is not asked
        canvas.visible = next_window(self.settings, len(canvas.masked), verdict.sure)
        return Round(
            tuple(verdict.judged),
            tuple(verdict.reference),
            run,
            verdict.accepted,
            draft_seconds=0.0,
            verify_seconds=0.0,
            prefix_tokens=prefix,
            reused_tokens=reused,
            contexts_looked_up=len(draft.places),
            contexts_found=len(draft.places) - draft.places.count(None),
            verifier_skipped=verdict.by_table,
        )

    def _check_hole(self, prompt: Many[int], sampling: Sampling) -> None:
        """Refuse a hole that the verifier cannot read along."""
        if not prompt:
            remedy = "The verifier predicts a token from those before it: give a prefix."
            raise BadRequest("Nothing stands before the hole.", remedy=remedy, param="prefix")
        context_tokens = self.verifier.model.spec.context_tokens
        if len(prompt) + sampling.max_tokens > context_tokens:
            raise ContextOverflow(len(prompt) + sampling.max_tokens, context_tokens, "Prefix and hole have")


def _aligned(logits: Tensor, vocab_size: int) -> Tensor:
    """Logits cut or filled up to another height of the table; what is missing has probability 0."""
    return pad(logits, (0, vocab_size - logits.shape[-1]), value=-torch.inf)


def _verifier_cache(canvas: Canvas) -> SequenceCache:
    assert canvas.verifier_cache is not None, "the answer was opened by another method"
    return canvas.verifier_cache
