"""What a pass of target and drafter costs on this machine: measured once, and kept on disk.

Measured are the very calls that a round makes, on sequences of zeros: the same work, whatever the tokens are. A
measurement is known by the shapes and precisions of both models, what a round proposes, the machine with its threads,
and buckets of batch and context.

It is made before the first round of answers that begin together, where their bucket is not known yet: their first
tokens wait for it. In the middle of an answer nothing is measured, as that would be a pause: where a batch shrinks or
grows into another bucket, or its texts do, that one's costs are read from disk, else those of the nearest known bucket
stand for them, its drafts scaled by the batch. Knows nothing of what is made of the figures.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paceline.cache.store import SequenceCache
from paceline.decode.controller import Costs
from paceline.decode.drafting import Drafting
from paceline.decode.sequence import Sequence
from paceline.decode.speculation import Plan
from paceline.decode.tree import Proposal, chain
from paceline.files import write_text
from paceline.hardware import cpu_name
from paceline.request import Sampling

__all__ = ["CostBook", "cost_folder"]

_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""Rows of a read, of each sequence."""

_REPEATS = 7
_SECONDS = 1.0
"""Runs of each size, fewer where all of them would take longer than that."""

_CONTEXTS = (256, 1024, 4096)
_BATCHES = (1, 2, 4, 8, 16, 32)


def cost_folder() -> Path:
    """Where measurements are kept: below XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "paceline" / "costs"


@dataclass(frozen=True, slots=True)
class CostBook:
    """Costs of a pair of models; looks up what it does not know on disk, and measures what is not there either, if it
    may.

    Attributes:
        block_sizes: of the drafter's passes.
    """

    drafting: Drafting
    block_sizes: tuple[int, ...]
    folder: Path = field(default_factory=cost_folder)
    _known: dict[tuple[int, int], Costs] = field(default_factory=dict)
    _missing: set[tuple[int, int]] = field(default_factory=set)

    def costs(self, batch: int, context_tokens: int, starting: bool = True) -> Costs:
        """Of rounds of so many sequences, the longest of so many tokens, rounded up to buckets.

        Args:
            starting: no answer waits for its next token, so there is time to measure. Otherwise that is done only
                where nothing is known at all.
        """
        limit = self.drafting.target.model.spec.context_tokens
        context = min(_bucket(_CONTEXTS, context_tokens), limit - max(_ROWS) - 1)
        key = _bucket(_BATCHES, batch), max(context, 1)
        if key not in self._known and key not in self._missing:
            self._remember(key, self._read(*key))
        if key not in self._known and (starting or not self._known):
            self._remember(key, self._measure(*key))
        return self._known[key] if key in self._known else self._nearest(*key)

    def _remember(self, key: tuple[int, int], costs: Costs | None) -> None:
        if costs is None:
            self._missing.add(key)
        else:
            self._known[key] = costs

    def _nearest(self, batch: int, context: int) -> Costs:
        """Those of the known bucket that differs by the smallest factors, as for `batch` sequences."""
        near = min(self._known, key=lambda key: abs(math.log(key[0] / batch)) + abs(math.log(key[1] / context)))
        return self._known[near].for_sequences(batch / near[0])

    def _read(self, batch: int, context: int) -> Costs | None:
        try:
            kept = json.loads(self._place(batch, context).read_text(encoding="utf-8"))
            curves = [{int(size): float(seconds) for size, seconds in kept[name].items()} for name in _KINDS]
            return Costs(*curves) if all(map(_sound, curves)) else None
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return None  # not measured yet, or by nobody who finished

    @torch.inference_mode()
    def _measure(self, batch: int, context: int) -> Costs:
        sequences = [_sequence(self.drafting, context)] * batch  # one and the same: a batch takes no more memory
        read, propose = self.drafting.target.read, self.drafting.propose
        reads = _curve({batch * rows: partial(read, sequences, [_tree(rows - 1)] * batch) for rows in _ROWS})
        drafts = _curve({size: partial(propose, sequences, [Plan(size)] * batch) for size in self.block_sizes})
        kept = {"of": self._facts(batch, context), "read": reads, "draft": drafts}
        with suppress(OSError):  # a home that cannot be written to: measured again next time
            write_text(self._place(batch, context), json.dumps(kept, indent=1))
        return Costs(reads, drafts)

    def _place(self, batch: int, context: int) -> Path:
        told = json.dumps(self._facts(batch, context), sort_keys=True)
        return self.folder / f"{hashlib.blake2b(told.encode(), digest_size=12).hexdigest()}.json"

    def _facts(self, batch: int, context: int) -> dict[str, Any]:
        """What the figures depend on."""
        drafting, target = self.drafting, self.drafting.target
        device = target.device
        return {
            "target": _shape(asdict(target.model.spec)),
            "drafter": _shape(asdict(drafting.drafter.spec)),
            "dtypes": [
                str(each.dtype) for each in (target.model.embed.weight, target.model, drafting.drafter.fc.weight)
            ],
            "settings": _shape(asdict(drafting.settings)),
            "blocks": list(self.block_sizes),
            "batch": batch,
            "context": context,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }


_KINDS = ("read", "draft")


def _sequence(drafting: Drafting, context: int) -> Sequence:
    """A sequence of zeros that has been read."""
    target, block, weight = drafting.target, drafting.drafter.spec.block, drafting.drafter.fc.weight
    shape = (block.num_layers, block.num_kv_heads, block.head_dim, context + 64)
    draft_cache = SequenceCache(*shape, weight.dtype, weight.device)
    sequence = target.open([0] * (context + 1), Sampling(max_tokens=2 * max(_ROWS)), 0, draft_cache)
    for cache, spec in ((sequence.cache, target.model.spec), (draft_cache, block)):
        rows = torch.zeros(1, spec.num_kv_heads, spec.head_dim, dtype=cache.dtype, device=cache.device)
        cache.extend(*[rows.expand(spec.num_layers, context, -1, -1)] * 2)
    return sequence


def _sound(curve: dict[int, float]) -> bool:
    """Costs that are all positive."""
    return bool(curve) and all(0.0 < seconds < math.inf for seconds in curve.values())


def _tree(nodes: int) -> Proposal:
    """Some tree of so many nodes: a mask costs the same, however it looks."""
    return chain([0] * nodes) if nodes < 2 else Proposal((0,) * nodes, (-1, *range(-1, nodes - 2)))


def _curve(work: Mapping[int, Callable[[], object]]) -> dict[int, float]:
    """Seconds by size, of the fastest of some runs. What disturbs one only adds to it: less is never dearer than more.

    The sizes take turns, so that a busy moment meets all of them. Where a run takes long there are few, and what lies
    between the ends and the middle is left out: `Costs` draws lines.
    """
    sizes, best, end = sorted(work), dict[int, float](), time.perf_counter() + _SECONDS
    for size in [sizes[0], sizes[-1], sizes[len(sizes) // 2], *sizes * _REPEATS]:
        started = time.perf_counter()
        if started > end and len(best) >= min(3, len(sizes)):
            break
        work[size]()
        best[size] = min(best.get(size, math.inf), time.perf_counter() - started)
    return {size: min(best[other] for other in best if other >= size) for size in sorted(best)}


def _bucket(bounds: tuple[int, ...], value: int) -> int:
    return next((bound for bound in bounds if value <= bound), bounds[-1])


def _shape(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, int | float | str | None) else str(value) for name, value in spec.items()}
