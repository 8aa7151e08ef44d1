"""Chooses what a round proposes, by expected tokens per second; it changes speed, never text (docs/equality.md).

    cost      draft(block, steps) + read(rows), both measured on this machine (`costs`)
    gain      the tokens a round is expected to commit, from how often drafts and looked-up tokens were right so far
    plan      before drafting: the block and the steps with the best gain by cost, or no drafts at all where that is
              faster; after a rest it tries again, and rests longer each time in vain. A round whose looked-up tokens
              alone are expected to give more than drafts beside them goes without drafts
    keep      after drafting: of the tree, the most probable nodes, as many as pay for their rows

Plain numbers; knows nothing of models and tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from paceline.decode.curves import Costs
from paceline.decode.experience import (
    SHORTEST_REST,
    Awaited,
    Branching,
    Calibration,
    Copies,
    Drift,
    Habit,
    Pace,
    longer,
)
from paceline.decode.speculation import PLAIN, Plan
from paceline.decode.tree import EMPTY, ROOT, Proposal, best_path, only
from paceline.plan import Reason

__all__ = ["Controller", "first_block_size"]

_LOOK_AROUND = 16
"""Every so many drafted rounds the longest block is tried, so that it is known what a short one misses."""

_MARGIN = 1.05
"""Drafts have to be expected to be so much faster than none: odds are estimates, and of many the best one flatters."""

_HOPELESS = 0.8
"""A new answer first rests for longer where those before it leave drafts no more than so much of the plain speed."""

_HELD = 2
"""So many rounds more a plan stands that pays, as long as drafts are accepted: to think takes time, too."""

_BRANCHES = 1.05
"""Trees have to gain so much over chains: what is thought about them takes time, too."""

_WORTH = 0.4
"""Drafts are looked for down to so many times what pays for a row on average: rows do not all cost the same."""


def first_block_size(hidden_size: int) -> int:
    """The block of the first round, before anything was measured: min(16, max(8, log2(hidden size) / 2 + 4)).

    As printed in the source article on DFlash, rounded up; it gives 9 for 1,024, where the text beside it says 12.
    """
    return min(16, max(8, math.ceil(math.log2(hidden_size) / 2 + 4)))


@dataclass(frozen=True, slots=True)
class Controller:
    """Plans rounds of one decoder.

    Attributes:
        costs: of its models here, by the tokens of the longest sequence, and whether there is time to measure.
        block_sizes: what may be chosen, rising; the last is the longest.
        first: the block of a sequence's first round.
        steps: passes of the drafter that may be chosen.
        chains: plans may ask for chains, where branches are not worth their rows.
    """

    costs: Callable[[int, bool], Costs]
    block_sizes: tuple[int, ...]
    first: int
    steps: tuple[int, ...] = (1,)
    chains: bool = False
    habit: Habit = field(default_factory=Habit)
    calibration: Calibration = field(default_factory=Calibration)
    copies: Copies = field(default_factory=Copies)
    drift: Drift = field(default_factory=Drift)
    branching: Branching = field(default_factory=Branching)

    def plans(self, paces: Sequence[Pace], longest: int, found: Sequence[Proposal] = ()) -> list[Plan]:
        """What each sequence is to propose, and why; the longest of them has so many tokens.

        Args:
            found: what was looked up for each; nothing where that is left out.
        """
        costs, found = self.costs(longest, False), found or [EMPTY] * len(paces)
        each = list(zip(paces, found, strict=True))
        plans = [self._plan(pace, costs, len(paces), bool(copied.tokens)) for pace, copied in each]
        own = zip(each, plans, strict=True)
        return [self._beside(copied, pace, plan, costs, len(paces)) for (pace, copied), plan in own]

    def keep(self, proposals: Sequence[Proposal], plans: Sequence[Plan], longest: int) -> list[Proposal]:
        """Of each tree the nodes that are worth their rows in the pass that reads them all, looked-up ones included.

        Of chains all are.
        """
        costs, pairs = self.costs(longest, False), list(zip(proposals, plans, strict=True))
        rows = len(pairs) + sum(len(own.tokens) for own, plan in pairs if plan.chain)
        spent = costs.drafting(plans)
        likely = [[] if plan.chain else self._chances(own) for own, plan in pairs]
        chances = [(chance, -index, -node) for index, own in enumerate(likely) for node, chance in enumerate(own)]
        tokens, best, kept = float(rows), rows / (spent + costs.reading(rows)), 0
        chances.sort(reverse=True)
        for count, (chance, _, _) in enumerate(chances, start=1):
            tokens += chance
            rate = tokens / (spent + costs.reading(rows + count))
            if rate > best:
                best, kept = rate, count
        if len(pairs) == 1 and self.chains and likely[0] and len(proposals[0].scores) == len(likely[0]):
            self.branching.learn(best / self._chain_rate(proposals[0], likely[0], plans[0], costs))
        if kept == len(chances):
            return list(proposals)
        wanted = {(-index, -node) for _, index, node in chances[:kept]}
        return [
            own if plan.chain else only(own, [(index, node) in wanted for node in range(len(own.tokens))])
            for index, (own, plan) in enumerate(pairs)
        ]

    def _chain_rate(self, tree: Proposal, likely: Sequence[float], plan: Plan, costs: Costs) -> float:
        """Tokens per second of the best chain instead of a tree, by the odds of its own nodes."""
        tokens, last = [1.0], ROOT
        for node, parent in enumerate(tree.parents):
            if parent == last:
                tokens.append(tokens[-1] + likely[node])
                last = node
        sizes = [size for size in self.block_sizes if size <= plan.block_size]
        spent = [costs.drafting([Plan(size, chain=True)]) + costs.reading(size) for size in sizes]
        return max(tokens[:size][-1] / seconds for size, seconds in zip(sizes, spent, strict=True))

    def learn(self, pace: Pace, plan: Plan, proposal: Proposal, path: Sequence[int], checked: int) -> None:
        """Take in how a proposal fared: `path` are the nodes that agreed, `checked` the places that were judged.

        Nodes without a score are not the drafter's, and say nothing of it.
        """
        drafted = proposal.parents[: len(proposal.scores)]
        if not drafted:
            if plan.chain and proposal.tokens:
                pace.count(len(path), 1.0)
            elif plan.drafts:
                pace.in_vain(rest=not proposal.tokens)
            return
        path = [node for node in path if node < len(drafted)]
        checked = min(checked, len(path) + ((path[-1] if path else ROOT) in drafted))
        pace.count(len(path), len(drafted) / max(proposal.depths[: len(drafted)]))
        ends, right = {ROOT, *path[: max(0, checked - 1)]}, set(path)
        for node, parent in enumerate(drafted):
            said = _conditional(proposal, node)
            if parent in ends and said < 1.0:  # 1 is not the drafter's word: a draft that was carried over
                self.calibration.learn(said, node in right)

    def wait(self, pace: Pace, plan: Plan, proposal: Proposal, start: int) -> None:
        """Remember what was drafted, before `keep`: what is read are the surer ones, and says nothing of the others.

        Args:
            start: where in the text the first drafts stand.
        """
        if plan.drafts:
            pace.awaited.append(Awaited(start, proposal.likeliest or best_path(proposal), plan.steps))

    def judge(self, pace: Pace, text: Sequence[int]) -> None:
        """Take in how far drafts were right, as the text tells by now."""
        for drafts, right, judged in pace.judged(text):
            pace.acceptance.learn(drafts.steps, right, judged)
            self.habit.learn(drafts.steps, right, judged)

    def learn_copies(self, found: Proposal, said: Sequence[int]) -> None:
        """Take in how what was looked up fared against what the target said, whether it was read or not."""
        if not found.tokens:
            return
        length, node = max(found.depths), ROOT
        for token in said:
            right = found.child(node, token)
            for each in [each for each, parent in enumerate(found.parents) if parent == node]:
                self.copies.learn(length, each == right)
            if right is None:
                return
            node = right

    def time(self, plans: Sequence[Plan], proposals: Sequence[Proposal], longest: int, seconds: float) -> None:
        """Take in how long a round took; not where one drafts behind a rest.

        Such a round also makes up for what was not drafted, and finds the drafter's weights far away.
        """
        if any(plan.reason in ("first", "trial") for plan in plans):
            return
        costs, rows = self.costs(longest, False), sum(1 + len(proposal.tokens) for proposal in proposals)
        expected = costs.drafting(plans) + costs.reading(rows)
        self.drift.learn(any(plan.drafts for plan in plans), seconds / expected)

    def _plan(self, pace: Pace, costs: Costs, sequences: int, copied: bool) -> Plan:
        if pace.resting > 1:
            return pace.pause()
        if not pace.drafted and not self.habit.known:
            return Plan(self.first, self.steps[0], "first")
        if pace.drafted and pace.drafted % _LOOK_AROUND == 0:
            steps = self.steps[pace.drafted // _LOOK_AROUND % len(self.steps)]
            return Plan(self.block_sizes[-1], steps, "look around")
        chain = self.chains and not copied and self.branching.gain <= _BRANCHES
        if pace.held and pace.latest and pace.plan.chain == chain:
            pace.held -= 1
            return pace.plan
        best, tokens, seconds = self._best(pace, costs, sequences, chain)
        rate = tokens / seconds / self.drift.drafted
        plain = sequences / costs.reading(sequences) / self.drift.plain
        pays = rate > _MARGIN * plain
        paid = pace.drafted > 0 and sequences * (1 + pace.latest) / seconds / self.drift.drafted > _MARGIN * plain
        if not pays and not paid and pace.resting == 0:
            if not pace.drafted and rate < _HOPELESS * plain:
                pace.rest = longer(pace.rest)
            pace.resting, pace.rest = pace.rest, longer(pace.rest)
            return Plan(1, 1, "rest", rate, plain, pace.resting - 1)
        pace.resting = 0  # after a rest it is tried in any case, and again where it paid
        if pays:
            pace.rest = SHORTEST_REST
        reason: Reason = "best" if pays else "trial"
        least = _WORTH * costs.row * tokens / seconds
        pace.plan = replace(best, reason=reason, tokens_per_second=rate, plain_tokens_per_second=plain, least=least)
        pace.held = _HELD if pays else 0
        return pace.plan

    def _best(self, pace: Pace, costs: Costs, sequences: int, chain: bool) -> tuple[Plan, float, float]:
        """The block and the steps with the most tokens per second, and both of these, as measured beforehand."""
        best = PLAIN, 0.0, 1.0
        for steps in (1,) if chain else self.steps:
            outlook = _outlook(self._accepted(pace, steps), 1.0 if chain else pace.width, costs, sequences)
            for size in self.block_sizes:
                plan = Plan(size, steps, chain=chain)
                depths = outlook[size - 1 : size] if chain else outlook[:size]
                tokens, seconds = _fastest(depths, costs.drafting([plan] * sequences))
                if tokens * best[2] > best[1] * seconds:
                    best = plan, tokens, seconds
        return best

    def _accepted(self, pace: Pace, steps: int) -> list[float]:
        """How likely drafts are accepted, by depth: what was seen of this sequence, and what is usual."""
        return self.habit.likely(pace.acceptance, steps, self.block_sizes[-1] - 1)

    def _beside(self, found: Proposal, pace: Pace, plan: Plan, costs: Costs, sequences: int) -> Plan:
        """The plan, or no drafts in this round if what was looked up is expected to be faster alone."""
        if not found.tokens or plan.reason != "best":  # what tries something out is not put off
            return plan
        length = max(found.depths)
        copied = [self.copies.probability(length) ** depth for depth in range(1, length + 1)]
        accepted = self._accepted(pace, plan.steps)[: plan.block_size - 1]
        spent = costs.drafting([plan] * sequences)
        tokens, seconds = _fastest(_outlook(accepted, pace.width, costs, sequences, copied), spent)
        both = tokens / seconds / self.drift.drafted
        tokens, seconds = _fastest(_outlook([], pace.width, costs, sequences, copied), 0.0)
        alone = tokens / seconds / self.drift.plain
        return plan if both > alone else Plan(1, 1, "looked up", both, alone)

    def _chances(self, proposal: Proposal) -> list[float]:
        """How likely each node is accepted, as experience has it; never likelier than its parent."""
        drafted = len(proposal.scores)
        likely: list[float] = []
        alone: list[float] = []  # of each node, behind its parent
        for node, parent in enumerate(proposal.parents[:drafted]):
            own = self.calibration.probability(_conditional(proposal, node))
            alone.append(own)
            likely.append(own if parent == ROOT else own * likely[parent])
        return likely if drafted == len(proposal.tokens) else likely + self._of_copies(proposal, alone, likely)

    def _of_copies(self, proposal: Proposal, alone: list[float], likely: Sequence[float]) -> list[float]:
        """The same of nodes that were looked up: what stands beside them leaves them no more than the rest."""
        drafted, found = len(alone), list(likely)
        left: dict[int, float] = {}
        for parent, own in zip(proposal.parents, alone, strict=False):
            left[parent] = max(0.0, left.get(parent, 1.0) - own)
        chance = self.copies.probability(max(proposal.depths[drafted:]))
        for parent in proposal.parents[drafted:]:
            own = min(chance, left.get(parent, 1.0))
            left[parent] = left.get(parent, 1.0) - own
            found.append(own if parent == ROOT else own * found[parent])
        return found[drafted:]


def _outlook(
    accepted: Sequence[float], width: float, costs: Costs, sequences: int, copied: Sequence[float] = ()
) -> list[tuple[float, float]]:
    """Tokens to expect of drafts so deep, and the seconds of reading them, from none on; all sequences are alike.

    Args:
        accepted: how likely a draft is right at each depth where those before it are.
        width: drafts at each depth.
        copied: how likely a looked-up token is right at each depth; drafts and these are taken to be right together.
    """
    drafts, tokens, likely = len(accepted), 1.0, 1.0
    found = [(float(sequences), costs.reading(sequences))]
    for depth in range(max(drafts, len(copied))):
        likely = likely * accepted[depth] if depth < drafts else 0.0
        tokens += max(likely, *copied[depth : depth + 1], 0.0)
        rows = 1.0 + width * min(depth + 1, drafts) + min(depth + 1, len(copied))
        found.append((sequences * tokens, costs.reading(round(sequences * rows))))
    return found


def _fastest(outlook: Sequence[tuple[float, float]], spent: float) -> tuple[float, float]:
    """Tokens and seconds of drafts as deep as it pays, where drafting takes so many of them."""
    best, longest = outlook[0][0], spent + outlook[0][1]
    for tokens, reading in outlook:
        if tokens * longest > best * (spent + reading):
            best, longest = tokens, spent + reading
    return best, longest


def _conditional(proposal: Proposal, node: int) -> float:
    """The probability that the drafter gives a node behind its parent."""
    parent = proposal.parents[node]
    return math.exp(proposal.scores[node] - (0.0 if parent == ROOT else proposal.scores[parent]))
