"""How far each sequence may draft in the coming cycle.

A controller may look at past verdicts, at lengths and at costs, never at the tokens it is about to
let pass or stop: a depth that depended on a drawn token would bias the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slipstream.drafters.base import Budget
from slipstream.engine.request import Request
from slipstream.engine.stats import CycleTimes
from slipstream.types import Draft, Verdict


class Controller(Protocol):
    """Sets the budgets of a cycle and learns from its verdicts."""

    def budgets(self, requests: Sequence[Request]) -> list[Budget]:
        """One budget for each request of the batch."""
        ...

    def update(
        self,
        requests: Sequence[Request],
        drafts: Sequence[Draft],
        verdicts: Sequence[Verdict | None],
        times: CycleTimes,
    ) -> None:
        """A cycle is over; a request that failed in it has no verdict."""
        ...


class FixedDepth:
    """The same depth in every cycle, less where a request is about to end anyway.

    Args:
        k: drafted depth; 0 is plain decoding.
        nodes: most nodes of the tree; None is k, which makes it a chain.
    """

    def __init__(self, k: int, nodes: int | None = None) -> None:
        self._k = k
        self._nodes = k if nodes is None else nodes

    def budgets(self, requests: Sequence[Request]) -> list[Budget]:
        depths = [min(self._k, request.room) for request in requests]
        chains = self._nodes <= self._k
        return [
            Budget(
                depth=depth, nodes=min(self._nodes, depth) if chains or not depth else self._nodes
            )
            for depth in depths
        ]

    def update(
        self,
        requests: Sequence[Request],
        drafts: Sequence[Draft],
        verdicts: Sequence[Verdict | None],
        times: CycleTimes,
    ) -> None:
        """A fixed depth learns nothing."""
