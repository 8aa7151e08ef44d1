"""What a round sets out to propose, and why: chosen before it, told in its record.

A plain frozen record. Knows nothing of who chooses, and of how.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["PLAIN", "Plan", "Reason"]

Reason = Literal["settings", "first", "best", "trial", "look around", "rest", "looked up"]
"""The settings say so; nothing is known yet; it gives the most tokens per second; drafts are tried again after a rest;
the longest block is due; drafts do not pay; they do, but not beside what was looked up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one sequence in one round. Equal plans do the same, for whatever reason.

    Attributes:
        block_size: rows of a block, the anchor included; 1 is plain decoding.
        steps: passes over it at most.
        chain: nothing but the drafter's own choice in every slot, and all of it read.
        reason: why so.
        tokens_per_second, plain_tokens_per_second: of the whole batch, to be expected of the best block and of plain
            decoding (both with what was looked up, for that reason); 0 where they were not compared.
        resting: rounds of plain decoding behind this one, until drafts are tried again.
        least: drafts less probable than that are not worth reading, so they need not be looked for.
    """

    block_size: int
    steps: int = 1
    chain: bool = field(default=False, kw_only=True)
    reason: Reason = field(default="settings", compare=False)
    tokens_per_second: float = field(default=0.0, compare=False)
    plain_tokens_per_second: float = field(default=0.0, compare=False)
    resting: int = field(default=0, compare=False)
    least: float = field(default=0.0, compare=False)

    @property
    def drafts(self) -> bool:
        """Whether anything is to be drafted."""
        return self.block_size > 1


PLAIN = Plan(1)
"""No drafts: a round of plain decoding."""
