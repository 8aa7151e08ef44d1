"""How `--explain` tells a round: its budget and why, what was drafted and how likely, what agreed, how long it took.

    round 4: block 12, 1 pass: 412 tokens/s expected, 198 of plain decoding
      3 drafts in 2.1 ms, 9 more not worth reading; read in 4.0 ms
      + " cat" 0.93
        + " sat" 0.71
        - " lay" 0.12
      = " on", the target's own

Drafts are indented below the one before them; + stands before those that the target says, too. Knows records and
tokens, nothing of models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator

from paceline.cli.output import printable, say_lines
from paceline.completion import Chunk, Round
from paceline.plan import Plan
from paceline.text import Tokenizer

__all__ = ["explained", "round_told"]


def explained(chunks: Iterable[Chunk], tokenizer: Tokenizer | None) -> list[Chunk]:
    """Tell every round on stderr as it comes; the chunks, once the answer is whole."""
    taken: list[Chunk] = []
    last: int | None = None
    for chunk in chunks:
        if chunk.round is None:
            say_lines(f"prompt pass: {', '.join(_text(token, None, tokenizer) for token in chunk.token_ids)}")
        else:
            number = sum(each.round is not None for each in taken) + 1
            say_lines(round_told(number, chunk.round, last, tokenizer))
        last = chunk.token_ids[-1] if chunk.token_ids else last
        taken.append(chunk)
    return taken


def round_told(number: int, round: Round, last: int | None, tokenizer: Tokenizer | None) -> str:
    """One round as lines of text.

    Args:
        round: of a target, alone or with a drafter.
        last: the token before it.
        tokenizer: tokens are told as ids without one.
    """
    path = round.agreed[: len(round.committed)]
    lines = [f"round {number}: {_why(round)}", f"  {_spent(round)}", *_tree(round, path, last, tokenizer)]
    if len(round.committed) > len(path):
        before = round.proposed[path[-1]] if path else last
        lines.append(f"  = {_text(round.committed[len(path)], before, tokenizer)}, the target's own")
    return "\n".join([*lines, *["  the answer ends"] * round.ended])


def _why(round: Round) -> str:
    """The budget of a round, and its reason."""
    plan = round.plan
    if plan is None:
        return "looked up in the text" if round.proposed else "plain decoding"
    alone = "looked-up tokens alone" if round.proposed else "plain decoding"  # where nothing was drafted
    passes = "1 pass" if plan.steps == 1 else f"at most {plan.steps} passes"
    told = alone if plan.block_size == 1 else f"block {plan.block_size}, {passes}"
    rates = f"{plan.tokens_per_second:.0f} tokens/s expected, {plan.plain_tokens_per_second:.0f} of plain decoding"
    reasons = {
        "settings": "fixed by the settings",
        "rest": _rest(plan),
        "looked up": f"{plan.plain_tokens_per_second:.0f} tokens/s expected, {plan.tokens_per_second:.0f} with drafts",
        "first": "the first guess",
        "best": rates,
        "trial": f"tried again after a rest, {rates}",
        "look around": "the longest block, to see what shorter ones miss",
    }
    return f"{told}: {reasons[plan.reason]}"


def _rest(plan: Plan) -> str:
    until = f"{plan.resting} more round{'s' * (plan.resting != 1)} without drafts, then drafts again"
    if not plan.plain_tokens_per_second:
        return until
    told = f"{plan.plain_tokens_per_second:.0f} tokens/s expected, {plan.tokens_per_second:.0f} of the best block"
    return f"{told}; {until}"


def _spent(round: Round) -> str:
    """How many drafts, and the milliseconds of both models."""
    read = f"read in {1000 * round.verify_seconds:.1f} ms"
    count = len(round.proposed)
    if not count + round.dropped:
        return read
    kind = "draft" if round.plan is not None and round.plan.block_size > 1 else "looked-up token"
    told = f"{count} {kind}{'s' * (count != 1)} in {1000 * round.draft_seconds:.1f} ms"
    return f"{told}, {round.dropped} more not worth reading; {read}" if round.dropped else f"{told}; {read}"


def _tree(round: Round, path: tuple[int, ...], last: int | None, tokenizer: Tokenizer | None) -> Iterator[str]:
    """A line for each draft, below the one that it stands behind."""
    parents = round.parents or tuple(range(-1, len(round.proposed) - 1))
    ways: dict[int, tuple[int, ...]] = {-1: ()}
    for node, parent in enumerate(parents):
        ways[node] = (*ways[parent], node)
    for way in sorted(ways.values())[1:]:
        node, parent = way[-1], parents[way[-1]]
        before = last if parent < 0 else round.proposed[parent]
        mark = "+" if node in path else "-"
        text = _text(round.proposed[node], before, tokenizer)
        yield f"{'  ' * len(way)}{mark} {text}{_probability(round, node, parent)}"


def _probability(round: Round, node: int, parent: int) -> str:
    """What the drafter gives a draft behind the one before it; nothing where it was not asked."""
    if not round.scores:
        return ""
    if node >= len(round.scores):
        return " looked up"
    return f" {math.exp(round.scores[node] - (0.0 if parent < 0 else round.scores[parent])):.2f}"


def _text(token: int, before: int | None, tokenizer: Tokenizer | None) -> str:
    """A token in quotes, given the one before it; what has no text of its own as its id."""
    if tokenizer is None:
        return str(token)
    raw = tokenizer.raw_bytes(token)
    text = tokenizer.text_after(token, before) if raw is None else raw.decode(errors="replace")
    return printable(json.dumps(text, ensure_ascii=False)) if text else f"<{token}>"
