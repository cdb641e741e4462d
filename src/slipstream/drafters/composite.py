"""Several drafters, one tree, one budget: each wins on other text.

Copying from the prompt costs nothing and is right for long stretches or not at all; a learned
drafter is right a little everywhere. So the first sources are asked for as many tokens as their
record in this text makes worth a row of the target's pass, the last one gets the rest of the
budget, and the drafts are merged (:mod:`slipstream.drafters.merge`). The record is of past
verdicts, never of the tokens at hand.

With a chain's budget there is room for one source only: the first one that has something to say,
and those after it are not asked, so that they cost nothing. How long a chain is worth its price
differs from source to source, so the budget is a bound and each stops where it is no longer sure
(:mod:`slipstream.drafters.chain`). Knows no rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

from slipstream.drafters.base import Budget, Drafter, Observation
from slipstream.drafters.chain import FLOOR
from slipstream.drafters.merge import merge
from slipstream.errors import InvalidInput
from slipstream.models.base import FeatureRequest, ForwardOutput
from slipstream.types import NO_DRAFT, ROOT, Draft, DrawMethod, SequenceState

if TYPE_CHECKING:
    from slipstream.drafters.registry import DrafterContext

_WORTH: Final = 0.1
"""A token that is accepted less often than this is not worth a row of the target's pass."""

_FADING: Final = 0.9
"""How much of its weight a cycle's record keeps with each further cycle."""


@dataclass
class _Record:
    """How one source has fared in one request lately: tokens judged, tokens accepted."""

    judged: float = 0.0
    accepted: float = 0.0

    def add(self, judged: int, accepted: int) -> None:
        """Take a cycle in; older ones fade, because a text turns from one thing to another."""
        self.judged = _FADING * self.judged + judged
        self.accepted = _FADING * self.accepted + accepted

    @property
    def rate(self) -> float:
        """Chance that a next token is accepted; one half before anything is known."""
        return (self.accepted + 1) / (self.judged + 2)

    @property
    def reach(self) -> int:
        """How many tokens in a row are worth their rows."""
        return max(1, int(math.log(_WORTH) / math.log(self.rate)))


@dataclass
class _Request:
    records: list[_Record]
    drafts: list[Draft] = field(default_factory=list)  # of the running cycle, by source


class Composite:
    """Merges the drafts of several sources.

    Args:
        sources: in order of cost; all but the last should choose, not sample.
    """

    trees = True

    def __init__(self, sources: Sequence[Drafter]) -> None:
        assert sources
        self._sources = sources
        self._requests: dict[int, _Request] = {}

    @property
    def name(self) -> str:
        return "composite:" + "+".join(source.name for source in self._sources)

    @property
    def features(self) -> FeatureRequest:
        """Whatever any source needs."""
        wanted = [source.features for source in self._sources]
        layers = sorted({layer for request in wanted for layer in request.layers})
        return FeatureRequest(last=any(request.last for request in wanted), layers=tuple(layers))

    def begin(self, sequence: SequenceState, features: ForwardOutput | None) -> None:
        """Start the request with every source."""
        self._requests[sequence.uid] = _Request([_Record() for _ in self._sources])
        for source in self._sources:
            source.begin(sequence, features)

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        """A merged tree per sequence, or one source's chain."""
        requests = [self._requests[sequence.uid] for sequence in sequences]
        for request in requests:
            request.drafts = []
        chains = [budget.nodes <= budget.depth for budget in budgets]
        left = list(budgets)
        for index, source in enumerate(self._sources):
            shares = [
                _next_in_line(request, budget) if chain else self._share(index, request, budget)
                for request, budget, chain in zip(requests, left, chains, strict=True)
            ]
            drafts = source.propose(sequences, shares, draw)
            for row, (request, draft) in enumerate(zip(requests, drafts, strict=True)):
                request.drafts.append(draft)
                if not chains[row]:
                    nodes = left[row].nodes - len(draft)
                    left[row] = Budget(depth=left[row].depth, nodes=nodes)
        return [
            next((draft for draft in request.drafts if len(draft)), NO_DRAFT)
            if chain
            else reduce(lambda merged, draft: merge(draft, merged), request.drafts[::-1])
            for request, chain in zip(requests, chains, strict=True)
        ]

    def observe(self, observations: Sequence[Observation]) -> None:
        """Score every source, and tell it what was committed in the numbering of its own draft."""
        own: list[list[Observation]] = [[] for _ in self._sources]
        for seen in observations:
            request = self._requests[seen.sequence.uid]
            emitted = seen.sequence.tokens[-seen.emitted :]
            for index, draft in enumerate(request.drafts):
                path = _follow(draft, emitted)
                guessed_next = draft.receipt(path[-1] if path else ROOT) is not None
                judged = min(len(path) + guessed_next, len(emitted))
                request.records[index].add(judged, len(path))
                path = path[: len(seen.path)]
                own[index].append(Observation(seen.sequence, seen.emitted, path, seen.features))
        for source, some in zip(self._sources, own, strict=True):
            source.observe(some)

    def end(self, sequence: SequenceState) -> None:
        """End the request with every source."""
        self._requests.pop(sequence.uid, None)
        for source in self._sources:
            source.end(sequence)

    def _share(self, index: int, request: _Request, budget: Budget) -> Budget:
        """What one source may draft: its record's worth, and at least a node for each later one."""
        later = len(self._sources) - index - 1
        if not later:
            return budget
        nodes = max(0, min(request.records[index].reach, budget.nodes - later))
        return Budget(depth=min(budget.depth, nodes), nodes=nodes)


def _next_in_line(request: _Request, budget: Budget) -> Budget:
    """All of a chain's budget, unless a source before this one has used it."""
    if any(map(len, request.drafts)):
        return Budget(depth=0, nodes=0)
    return budget if budget.floor else replace(budget, floor=FLOOR)


def _follow(draft: Draft, tokens: Sequence[int]) -> tuple[int, ...]:
    """The nodes of a draft along a text."""
    path: list[int] = []
    node = ROOT
    for token in tokens:
        children = {draft.tree.tokens[child]: child for child in draft.tree.children(node)}
        if token not in children:
            break
        node = children[token]
        path.append(node)
    return tuple(path)


def load_composite(spec: str, context: DrafterContext) -> Composite:
    """Build from ``drafter+drafter``, each a specification of its own.

    Raises:
        InvalidInput: fewer than two drafters, or a composite within.
        Others: whatever the sources raise.
    """
    from slipstream.drafters.registry import DRAFTERS, make_drafter

    # A path may contain a plus sign; a new source starts where a drafter's name follows one.
    names = "|".join(re.escape(name) for name in DRAFTERS)
    parts = re.split(rf"\+(?=(?:{names})(?:[:+]|$))", spec)
    if len(parts) < 2 or any(part.partition(":")[0] == "composite" for part in parts):
        raise InvalidInput(
            f"composite takes two or more drafters, such as prompt-lookup+eagle2; got {spec!r}"
        )
    return Composite([make_drafter(part, context) for part in parts])
