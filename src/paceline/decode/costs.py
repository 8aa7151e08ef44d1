"""What a pass of target and drafter costs on this machine: measured once, and kept on disk.

Measured are the very calls that a round makes, on a sequence of zeros: the same work, whatever the tokens are. A
measurement is known by the shapes and precisions of both models, what a round proposes, the machine with its threads,
and a bucket of context. It is made before the first token of an answer, where the bucket of its prompt is not known
yet. In the middle of an answer nothing is measured, as that would be a pause: where a text grows into a bucket of which
nothing is kept, the costs of the nearest one stand for it. Knows nothing of what is made of the figures.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paceline import native
from paceline.decode.curves import Costs
from paceline.decode.draft_context import new_context
from paceline.decode.drafting import Drafting
from paceline.decode.sequence import Sequence
from paceline.decode.speculation import Plan
from paceline.decode.tree import Proposal, chain
from paceline.files import write_text
from paceline.hardware import cpu_name
from paceline.request import Sampling

__all__ = ["CostBook", "cost_folder"]

_ROWS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)
"""Rows of a read, as far as a round may read so many, and the most that it may."""

_REPEATS = 7
_SECONDS = 1.0
"""Runs of each size, fewer where all of them would take longer than that."""

_RESTLESS = 1.25
"""Where the two fastest runs of a size differ by more, something else was running: good for now, not to be kept."""

_CONTEXTS = (64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens before a round: each stands for those that differ by less than the root of 2."""


def cost_folder() -> Path:
    """Where measurements are kept: below XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "paceline" / "costs"


@dataclass(frozen=True, slots=True)
class CostBook:
    """Costs of a pair of models: looks up what it does not know on disk, and measures what is not there either.

    Attributes:
        block_sizes: of the drafter's passes, rising.
        _rows: how many rows of one sequence are read, as far as a round may read so many.
        _longest: context before them.
    """

    drafting: Drafting
    block_sizes: tuple[int, ...]
    folder: Path = field(default_factory=cost_folder)
    _known: dict[int, Costs | None] = field(default_factory=dict)
    _rows: list[int] = field(init=False)
    _longest: int = field(init=False)

    def __post_init__(self) -> None:
        settings = self.drafting.settings
        drafts = settings.max_nodes if settings.candidates > 1 else self.block_sizes[-1] - 1
        most = 1 + drafts + settings.lookup
        rows = [*(rows for rows in _ROWS if rows < most), most]
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_longest", self.drafting.target.model.spec.context_tokens - most - 1)

    def costs(self, tokens: int, may_measure: bool) -> Costs:
        """Of rounds behind so many tokens, or some more or less: of a bucket.

        Args:
            may_measure: no token is due, so there is time. Otherwise that is done only where nothing is known at all.
        """
        context = max(1, min(_bucket(_CONTEXTS, tokens), self._longest))
        known = self._known.get(context)
        if known is not None:
            return known
        if context not in self._known:
            self._known[context] = self._read(context)
        if self._known[context] is None and (may_measure or not any(self._known.values())):
            self._known[context] = self._measure(context)
        return self._known[context] or self._nearest(context)

    def _nearest(self, context: int) -> Costs:
        """Those of the known context that differs by the smallest factor."""
        known = {other: costs for other, costs in self._known.items() if costs is not None}
        return known[min(known, key=lambda other: abs(math.log(other / context)))]

    def _read(self, context: int) -> Costs | None:
        try:
            kept = json.loads(self._place(context).read_text(encoding="utf-8"))
            curves = [{int(size): float(seconds) for size, seconds in kept[name].items()} for name in _KINDS]
            sound = _sound(curves[0]) and _sound(curves[1]) and all(map(_positive, curves[2].values()))
            return Costs(*curves) if sound else None
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return None  # not measured yet, or by nobody who finished

    @torch.inference_mode()
    def _measure(self, context: int) -> Costs:
        sequences = [_sequence(self.drafting, context, self._rows[-1])]
        read, propose = self.drafting.target.read, self.drafting.propose
        reads = _runs({rows: partial(read, sequences, [_tree(rows - 1)]) for rows in self._rows})
        drafts = _runs({size: partial(propose, sequences, [Plan(size)]) for size in self.block_sizes})
        unscored = replace(self.drafting, scored=False).propose
        sizes = self.block_sizes if self.drafting.may_chain else ()
        chains = _runs({size: partial(unscored, sequences, [Plan(size, chain=True)]) for size in sizes})
        costs = Costs(_curve(reads), _curve(drafts), _curve(chains))
        if all(map(_steady, (reads, drafts, chains))):
            kept = {"of": self._facts(context), **{name: getattr(costs, name) for name in _KINDS}}
            with suppress(OSError):  # a home that cannot be written to: measured again next time
                write_text(self._place(context), json.dumps(kept, indent=1))
        return costs

    def _place(self, context: int) -> Path:
        told = json.dumps(self._facts(context), sort_keys=True)
        return self.folder / f"{hashlib.blake2b(told.encode(), digest_size=12).hexdigest()}.json"

    def _facts(self, context: int) -> dict[str, Any]:
        """What the figures depend on."""
        drafting, target, settings = self.drafting, self.drafting.target, self.drafting.settings
        device = target.device
        return {
            "target": _shape(asdict(target.model.spec)),
            "drafter": _shape(asdict(drafting.drafter.spec)),
            "dtypes": [
                str(each) for each in (target.model.product_dtype, target.model.dtype, drafting.drafter.fc.dtype)
            ],
            "proposed": [settings.candidates, settings.max_nodes, settings.draft_temperature, str(settings.rescorer)],
            "rows": self._rows,
            "blocks": list(self.block_sizes),
            "context": context,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "native": [native.in_use(), native.build()],
            "rounding": target.model.rounding,
        }


_KINDS = ("read", "draft", "chain")


def _sequence(drafting: Drafting, context: int, rows: int) -> Sequence:
    """A sequence of zeros that has been read, with room for so many rows."""
    target, draft_cache = drafting.target, new_context(drafting.drafter, context)
    sequence = target.open([0] * (context + 1), Sampling(max_tokens=rows), 0, draft_cache)
    for cache, spec in ((sequence.cache, target.model.spec), (draft_cache, drafting.drafter.spec.block)):
        zeros = torch.zeros(1, spec.num_kv_heads, spec.head_dim, dtype=cache.dtype, device=cache.device)
        cache.extend(*[zeros.expand(spec.num_layers, context, -1, -1)] * 2)
    return sequence


def _sound(curve: dict[int, float]) -> bool:
    """Costs that are all positive."""
    return bool(curve) and all(map(_positive, curve.values()))


def _positive(seconds: float) -> bool:
    return 0.0 < seconds < math.inf


def _tree(nodes: int) -> Proposal:
    """Some tree of so many nodes: a mask costs the same, however it looks."""
    return chain([0] * nodes) if nodes < 2 else Proposal((0,) * nodes, (-1, *range(-1, nodes - 2)))


def _runs(work: Mapping[int, Callable[[], object]]) -> dict[int, list[float]]:
    """Seconds of all runs of each size, two at least; each ends with its tokens on the CPU, so a GPU is done, too.

    The sizes take turns, so that a busy moment meets all of them. Where runs take long there are few, and only of the
    ends and the middle: `Costs` draws lines.
    """
    sizes = sorted(work)
    if not sizes:
        return {}
    needed = [sizes[0], sizes[-1], sizes[len(sizes) // 2]] * 2
    runs: dict[int, list[float]] = {size: [] for size in sizes}
    work[sizes[0]]()  # weights come into memory
    end = time.perf_counter() + _SECONDS
    for number, size in enumerate([*needed, *sizes * _REPEATS]):
        started = time.perf_counter()
        if number >= len(needed) and started > end:
            break
        work[size]()
        runs[size].append(time.perf_counter() - started)
    return {size: seconds for size, seconds in runs.items() if len(seconds) > 1}  # the first one of a shape is slow


def _curve(runs: Mapping[int, Many[float]]) -> dict[int, float]:
    """The fastest of each size. What disturbs a run only adds to it: less work is never dearer than more."""
    return {size: min(min(runs[other]) for other in runs if other >= size) for size in runs}


def _steady(runs: Mapping[int, Many[float]]) -> bool:
    """Whether the fastest runs of every size agree."""
    return all(second <= _RESTLESS * first for first, second, *_ in map(sorted, runs.values()))


def _bucket(bounds: tuple[int, ...], value: int) -> int:
    """The nearest, by the factor between them."""
    return next((bound for bound in bounds if value <= math.sqrt(2.0) * bound), bounds[-1])


def _shape(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, int | float | str | None) else str(value) for name, value in spec.items()}
