"""From single measurements to the figures of one method in one scenario.

Pure arithmetic: knows nothing of models, prompts or clocks. Samples come as one row per prompt, one entry per repeat;
entry r of two methods was measured back to back, so a ratio of the two cancels most of what else the machine did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from paceline.completion import Round

__all__ = [
    "DEFINITIONS",
    "Sample",
    "all_identical",
    "distinct_4gram_share",
    "figures",
    "other_share",
    "share_of_bandwidth",
]

_LEAST_SHARE = 0.7
"""Below this an answer loops, and looping text is easy to draft: the figure does not count."""

DEFINITIONS = {
    "tokens_per_second": "tokens / seconds; seconds is the sum over prompts of the median over repeats, wall clock "
    "from the token ids of the prompt to the last token of the answer, the prompt pass included, for every method",
    "ms_per_token": "1000 / tokens_per_second",
    "decode_ms_per_token": "the same without the prompt pass and the first token that it gives",
    "acceptance_length": "tokens committed per round, the bonus token included, the first token of an answer not",
    "speedup_vs_ar": "median over prompts and repeats of ms_per_token of ar / ms_per_token of the method, both "
    "measured back to back",
    "speedup_quartiles": "first and third quartile of these ratios",
    "identical": "every answer is plain decoding's: equal ids, or different only after a certified near-tie (for ar: "
    "certified against one teacher-forced pass)",
    "lossless": "the method promises plain decoding's answer; where it does not (other weights or rounding, as in "
    "q8_0), identical says how it turned out and fails nothing",
    "bytes_per_pass": "bytes of weights that one pass of the target must read, in the form the method keeps them in; "
    "not counted: an embedding that is not the head too, caches, a drafter",
    "share_of_bandwidth": "bytes_per_pass * passes per second / the read bandwidth measured in the same run; passes "
    "and seconds without the prompt pass, seconds with drafting; above 1 where weights stay in the processor's caches",
    "near_ties": "tokens that are the target's only within the tolerance of a near-tie",
    "prompt_seconds": "up to the first token; as the next three a sum over prompts of medians over repeats",
    "draft_seconds": "inside the drafter: its layers, its context rows, the head for its proposals",
    "verify_seconds": "inside the target, after the prompt pass: its layers and its head",
    "other_seconds": "the rest of the rounds: looking up, noise, filters, choosing, comparing, stopping, text, "
    "bookkeeping; of a peer that drafts its rounds, which it does not split",
    "other_share": "other_seconds / (draft_seconds + verify_seconds + other_seconds); null for a peer",
    "tokens": "tokens of all answers together, end tokens included",
    "distinct_4gram_share": "different 4-grams of token ids / 4-grams, of each answer; the mean over answers is "
    "weighted by their 4-grams, so short answers count little",
    "counts": "distinct_4gram_share is at least 0.7: the text does not loop",
    "tokens_per_round": "how many rounds committed so many tokens",
    "law": "above temperature 0, of chains of a fixed length: their accepted drafts and what the laws say of them",
    "law.accepted_per_round": "accepted drafts per round, the bonus token not included",
    "law.expected_per_round": "the same by the exact law of shared noise, 1 / sum_w max(p_w / p_v, q_w / q_v) summed "
    "over v, on p and q of every checked draft, recomputed from the finished answers",
    "law.z": "accepted minus expected, in standard deviations; beyond 3 once in 370 sound runs",
    "law.rejection_per_round": "what rejection sampling would accept per round, from the same anchors: the mean of "
    "sum_k prod_(j <= k) min(1, q_j / p_j) along the answers, an estimate without bias",
    "law.share_of_rejection": "accepted_per_round / rejection_per_round",
    "law.checked": "drafts that were compared: those up to the first that differs",
    "law.accepted": "of these, accepted",
    "law.rejection_on_checked": "of the checked drafts, how many rejection sampling accepts: sum of sum_v min(p, q)",
    "mismatches": "prompts whose answer is not identical, and the index of the first wrong token",
}
"""What each figure means; part of every result."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One decoding of one prompt.

    Attributes:
        tokens: of the answer.
        committed: tokens of each round after the prompt pass.
        prompt_seconds: up to the first token.
        draft_seconds, verify_seconds: within the rounds.
        total_seconds: all of it, the prompt pass included.
        rounds: the records of the rounds, of a method of ours.
        draft_passes: of the drafter, in the rounds.
    """

    tokens: tuple[int, ...]
    committed: tuple[int, ...]
    prompt_seconds: float
    draft_seconds: float
    verify_seconds: float
    total_seconds: float
    rounds: tuple[Round, ...] = ()
    draft_passes: int = 0

    @property
    def other_seconds(self) -> float:
        """What none of the others accounts for."""
        return max(0.0, self.total_seconds - self.prompt_seconds - self.draft_seconds - self.verify_seconds)

    @property
    def ms_per_token(self) -> float:
        """Milliseconds per token, the prompt pass included."""
        return 1000.0 * self.total_seconds / len(self.tokens)


Runs = Sequence[Sequence[Sample]]
"""Per prompt the samples of all repeats."""


def figures(runs: Runs, baseline: Runs) -> dict[str, Any]:
    """The figures of one method; `baseline` holds the samples of plain decoding for the same prompts and repeats."""
    answers = [samples[0].tokens for samples in runs]
    tokens = sum(len(answer) for answer in answers)
    seconds, prompt_seconds = _seconds(runs, _total), _seconds(runs, lambda sample: sample.prompt_seconds)
    rounds = [count for samples in runs for count in samples[0].committed]
    share = _mean_share(answers)
    return {
        "tokens_per_second": tokens / seconds,
        "ms_per_token": 1000.0 * seconds / tokens,
        "decode_ms_per_token": 1000.0 * (seconds - prompt_seconds) / max(1, tokens - len(answers)),
        "acceptance_length": sum(rounds) / len(rounds) if rounds else 0.0,
        **_speedup(runs, baseline),
        "prompt_seconds": prompt_seconds,
        "draft_seconds": _seconds(runs, lambda sample: sample.draft_seconds),
        "verify_seconds": _seconds(runs, lambda sample: sample.verify_seconds),
        "other_seconds": _seconds(runs, lambda sample: sample.other_seconds),
        "prompts": len(answers),
        "tokens": tokens,
        "distinct_4gram_share": share,
        "counts": share is not None and share >= _LEAST_SHARE,
        "tokens_per_round": {str(count): times for count, times in sorted(Counter(rounds).items())},
    }


def share_of_bandwidth(runs: Runs, bytes_per_pass: int, bytes_per_second: float) -> float | None:
    """How much of the read bandwidth the target's weights take in the rounds; None where no answer has a round."""
    passes = sum(len(samples[0].committed) for samples in runs)
    seconds = _seconds(runs, _total) - _seconds(runs, lambda sample: sample.prompt_seconds)
    return bytes_per_pass * passes / seconds / bytes_per_second if passes else None


def other_share(runs: Runs) -> float | None:
    """The part of the rounds' time that is spent outside both models; None where no answer has a round."""
    other = _seconds(runs, lambda sample: sample.other_seconds)
    total = other + _seconds(runs, lambda sample: sample.draft_seconds + sample.verify_seconds)
    return other / total if any(samples[0].committed for samples in runs) else None


def all_identical(scenarios: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bool:
    """Every method of a result that promises plain decoding's answers gave them."""
    found = [figures for methods in scenarios.values() for figures in methods.values()]
    return all(figures["identical"] for figures in found if figures.get("lossless", True))


def distinct_4gram_share(tokens: Sequence[int]) -> float | None:
    """Different 4-grams over all 4-grams of one answer, 1 where nothing repeats; None below four tokens."""
    grams = _four_grams(tokens)
    return len(set(grams)) / len(grams) if grams else None


def _four_grams(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    return list(zip(*(tokens[start:] for start in range(4)), strict=False))


def _mean_share(answers: Sequence[Sequence[int]]) -> float | None:
    grams = [_four_grams(answer) for answer in answers]
    total = sum(map(len, grams))
    return sum(len(set(found)) for found in grams) / total if total else None


def _total(sample: Sample) -> float:
    return sample.total_seconds


def _seconds(runs: Runs, part: Callable[[Sample], float]) -> float:
    return sum(median(part(sample) for sample in samples) for samples in runs)


def _speedup(runs: Runs, baseline: Runs) -> dict[str, Any]:
    ratios = [
        plain.ms_per_token / sample.ms_per_token
        for samples, plains in zip(runs, baseline, strict=True)
        for sample, plain in zip(samples, plains, strict=True)
    ]
    first, middle, third = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"speedup_vs_ar": middle, "speedup_quartiles": [first, third]}
