"""`paceline demo`: the main job before your eyes, and the proof that it is worth it.

Decodes held-out prompts with DFlash, blocks coloured; then plainly and with DFlash in turns, against the clock, and
compares the token ids by the rule of docs/equality.md. Every figure it prints was measured there and then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text

from paceline.cli.flags import configured
from paceline.cli.options import place, set_threads
from paceline.cli.output import write
from paceline.completion import Completion
from paceline.errors import ConfigError
from paceline.models.options import Drafter, Model, PrecisionSetting, Threads
from paceline.request import MaxTokens, Prompt, Sampling
from paceline.settings import Setting

if TYPE_CHECKING:
    from paceline.llm import LLM

__all__ = ["demo"]

_WARM_UP = Sampling(max_tokens=32)


@configured()
def demo(
    *,
    scenario: Annotated[
        str | None, typer.Option(metavar="long_text|dialogue|code", help="One kind of text; all three if left out.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="A prompt of your own instead.")] = None,
    max_tokens: MaxTokens = 160,
    repeats: Annotated[int, Setting("Timed runs of each method.", least=1)] = 3,
    model: Model = None,
    drafter: Drafter = None,
    precision: PrecisionSetting = "exact",
    threads: Threads = None,
    svg: Annotated[
        Path | None, typer.Option(callback=place("file", exists=False), help="Save the coloured blocks as a picture.")
    ] = None,
) -> None:
    """Decode real prompts with DFlash, then plainly: how much faster, and is the text the same?"""
    sampling = Sampling(max_tokens=max_tokens)
    prompts = _held_out(scenario) if prompt is None else {"your prompt": prompt}
    from paceline.llm import LLM

    set_threads(threads)
    fast = LLM(model, drafter=drafter, method="dflash", precision=precision)
    plain = LLM(model, method="ar", precision=precision)
    record, races = Text(), []
    for name, one in prompts.items():
        _show(name, one, fast, sampling, record)
        races.append(_race(one, plain, fast, sampling, repeats))
        _say(races[-1:], record)
    if svg is not None:
        from paceline.cli.picture import save_svg

        save_svg(record, svg)
    if len(races) > 1:
        write("\n== all together ==\n")
        _say(races, Text())
    if not all(race.identical for race in races):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Race:
    """One prompt, decoded both ways: medians over the runs, and whether the tokens are the same."""

    plain_seconds: float
    fast_seconds: float
    acceptance_length: float
    identical: bool
    near_ties: int


def _held_out(scenario: str | None) -> dict[str, Prompt]:
    """The first prompt of each scenario."""
    from paceline.zoo.prompts import SCENARIOS, load_prompts

    if scenario is not None and scenario not in SCENARIOS:
        raise ConfigError(f"scenario is {scenario!r}.", remedy=f"There are: {', '.join(SCENARIOS)}.", param="scenario")
    chosen = SCENARIOS if scenario is None else (cast(Any, scenario),)
    firsts = {name: load_prompts(name)[0] for name in chosen}
    return {name: first.get("prompt") or first["messages"] for name, first in firsts.items()}


def _show(name: str, prompt: Prompt, fast: LLM, sampling: Sampling, record: Text) -> None:
    """Stream one answer, its blocks visible; this also warms up."""
    from paceline.cli.blocks import show_blocks

    before = f"\n== {name} ==\n{_readable(prompt)}"
    write(before)
    record.append(before, style="dim")
    show_blocks(fast.stream(prompt, sampling), fast.tokenizer, record)
    write("\n")


def _readable(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    turns = cast(list[dict[str, str]], prompt)
    return "".join(f"{turn['role']}: {turn['content']}\n" for turn in turns) + "assistant: "


def _race(prompt: Prompt, plain: LLM, fast: LLM, sampling: Sampling, repeats: int) -> _Race:
    plain.generate([prompt], _WARM_UP)
    runs = list(_in_turns(prompt, plain, fast, sampling, repeats))
    verdicts = [_compare(plain, prompt, sampling, own, other) for own, other in runs]
    return _Race(
        plain_seconds=median(own.stats.total_seconds for own, _ in runs),
        fast_seconds=median(other.stats.total_seconds for _, other in runs),
        acceptance_length=median(other.stats.acceptance_length for _, other in runs),
        identical=all(same for same, _ in verdicts),
        near_ties=max(ties for _, ties in verdicts),
    )


def _in_turns(
    prompt: Prompt, plain: LLM, fast: LLM, sampling: Sampling, repeats: int
) -> Iterator[tuple[Completion, Completion]]:
    for _ in range(repeats):
        yield plain.generate([prompt], sampling)[0], fast.generate([prompt], sampling)[0]


def _compare(plain: LLM, prompt: Prompt, sampling: Sampling, own: Completion, other: Completion) -> tuple[bool, int]:
    """Are both answers the same, and after how many certified near-ties?"""
    from paceline.bench.identity import compare

    ids = plain.encode(prompt)
    verdict = compare(plain.target, ids, sampling, own.seed, own=own.token_ids, other=other.token_ids)
    return verdict.identical, verdict.near_ties


def _say(races: list[_Race], record: Text) -> None:
    """The line this command exists for."""
    ratio = sum(race.plain_seconds for race in races) / sum(race.fast_seconds for race in races)
    ties = sum(race.near_ties for race in races)
    same = "yes" if all(race.identical for race in races) else "NO"
    same += f", with {ties} certified near-tie{'s' * (ties > 1)} (see docs/equality.md)" if ties else ""
    speed = f"{ratio:.1f}× faster" if ratio >= 1 else f"{1 / ratio:.1f}× slower"
    line = f"{speed} than plain decoding · identical output: {same}"
    if len(races) == 1:
        line += f" · acceptance length {races[0].acceptance_length:.1f}"
    write(line + "\n")
    record.append(f"\n{line}\n", style="bold")
