"""The depth that brings the most tokens per second, for every request, chosen anew all the time.

Drafting one level deeper brings the chance that everything down to it is accepted, and costs the
rows and the drafter step that it takes, if there is a draft at all. The levels of all requests of
the batch are lined up by tokens per row, and as many of them are granted as make

    (B + accepted tokens) / (C(rows) + drafting)

largest: one budget of rows, shared by marginal gain for as long as that exceeds the marginal cost
(:mod:`slipstream.engine.row_budget`). Chances are learnt by
:mod:`slipstream.engine.acceptance_record`, prices by :mod:`slipstream.engine.running_cost`. A
request for which nothing pays decodes plainly, and drafts a single level now and then, in two
cycles running, to see whether that is still so, for 1.5 % of its time.

Promises: depths depend on past cycles, lengths and the clock, never on the tokens at hand. Which
tokens the `coupled` rule emits doesn't depend on depths, but other rules spend their random numbers
by cycle. So that the same seed gives the same tokens under them too, a request that brings a seed
and a temperature drafts at a fixed depth there. Shape letter: B requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slipstream.config import MAX_NODES
from slipstream.drafters.base import Budget
from slipstream.drafters.chain import FLOOR
from slipstream.engine.acceptance_record import AcceptanceRecord
from slipstream.engine.cost_table import CostTable
from slipstream.engine.request import Request
from slipstream.engine.row_budget import best_depth, share_rows
from slipstream.engine.running_cost import RunningCost
from slipstream.engine.stats import CycleTimes
from slipstream.types import Draft, Verdict

DEEPEST: Final = 32
"""No draft goes deeper."""

PINNED: Final = 5
"""Depth of a request whose tokens depend on its depths."""

_PROBE_SHARE: Final = 0.015
"""Share of a plainly decoding request's time that goes into trying whether a draft would pay."""

_COLD: Final = 1
"""First cycles of an engine whose times don't count: weights and buffers are touched first then."""

_TRIES: Final = 4
"""First tries that are made early, as if they cost a plain cycle: a price that came out far too
high, because the machine stalled when it was learnt, is corrected by them."""

_LEAST_PRICE: Final = 0.05
"""What a try costs at least, in plain cycles: rows that seem to be free may not be."""

_PLAIN_INTERVAL: Final = 128
"""A plain cycle is due after this many cycles without one, sooner in the beginning: what drafting
is worth can't be known without the price of not drafting."""

_CHOICE_INTERVAL: Final = 4
"""Depths hold for so many cycles, fewer in the beginning: little is learnt in between."""

_STRAY_INTERVAL: Final = 64
"""Unless costs were measured before, a cycle strays from the best depth now and then, in turn half
as deep and a level deeper: what rows cost can't be learnt from cycles of one size. After this many
cycles at most, in the beginning more often."""

_MEMORY, _POOL_MEMORY = 60.0, 300.0
"""Cycles that a request's chances remember, and those of all requests together."""


@dataclass
class Notes:
    """What the controller keeps beside a request.

    Args:
        record: its acceptance so far.
        asked: depth that the running cycle may draft.
        level: whether its latest cycle drafted, so that its drafter has nothing to catch up with.
        credit: seconds saved up for the next try, while decoding plainly.
        again: whether a try is to be repeated in the next cycle.
    """

    record: AcceptanceRecord
    asked: int = 0
    level: bool = False
    credit: float = 0.0
    again: bool = False


class AdaptiveDepth:
    """Chooses depths by expected tokens per second.

    Args:
        nodes_per_level: drafted tokens per level; more than 1 makes trees.
        most_nodes: most drafted tokens of a request in a cycle.
        keeps_tokens: whether the rule emits the same tokens for a seed whatever the depths.
        costs: measured costs to start from; None starts from a guess.
    """

    def __init__(
        self,
        *,
        nodes_per_level: float = 1.0,
        most_nodes: int = MAX_NODES,
        keeps_tokens: bool = True,
        costs: CostTable | None = None,
    ) -> None:
        self._deepest = min(DEEPEST, most_nodes)
        self._nodes = [  # of a tree, by its depth
            min(max(depth, round(depth * nodes_per_level)), most_nodes)
            for depth in range(self._deepest + 1)
        ]
        self._budgets = [Budget(depth=d, nodes=n, floor=FLOOR) for d, n in enumerate(self._nodes)]
        self._keeps_tokens = keeps_tokens
        self._pool = AcceptanceRecord(self._deepest, memory=_POOL_MEMORY)
        if costs is None:  # until measured: a row adds 6 % to a pass, a level of drafting a step
            self._passes = RunningCost(lambda rows: 1 + 0.06 * (rows - 1))
            self._drafts = RunningCost(lambda depth: depth + 0.1)
        else:
            self._passes = RunningCost(costs.cycle, measured=True)
            self._drafts = RunningCost(lambda depth: costs.draft(depth) + 1e-9, measured=True)
        self._pass_prices: list[float] = [0.0]  # by rows; never falling
        self._draft_prices: list[float] = [0.0]  # by depth
        self._choice: list[int] = []
        self._batch: list[int] = []  # for which it was made
        self._since_plain, self._patience = 0, 1 if costs is None else _PLAIN_INTERVAL
        self._learns_costs, self._stray_deeper = costs is None, True
        self._next_stray = self._next_choice = self._cycles = self._tries = 0

    def budgets(self, requests: Sequence[Request]) -> list[Budget]:
        if self._since_plain >= self._patience:
            self._patience = min(2 * self._patience, _PLAIN_INTERVAL)
            depths = [self._pinned_depth(request) for request in requests]
        else:
            depths = self._chosen(requests)
            self._try_drafting(requests, depths)
            if self._learns_costs and self._cycles >= self._next_stray:
                depths = self._stray(requests, depths)
        budgets = []
        for request, depth in zip(requests, depths, strict=True):
            self._notes(request).asked = depth
            budgets.append(self._budgets[depth])
        return budgets

    def update(
        self,
        requests: Sequence[Request],
        drafts: Sequence[Draft],
        verdicts: Sequence[Verdict | None],
        times: CycleTimes,
    ) -> None:
        asked, level = 0, True
        for request, draft, verdict in zip(requests, drafts, verdicts, strict=True):
            notes = self._notes(request)
            asked = max(asked, notes.asked)
            level &= notes.level or not notes.asked
            notes.level = notes.asked > 0
            if notes.asked and verdict is not None:
                depth = draft.tree.depth
                notes.record.update(depth, verdict, notes.asked)
                self._pool.update(depth, verdict, notes.asked)
        rows = len(drafts)
        for draft in drafts:
            rows += len(draft.tree.tokens)
        self._since_plain = 0 if rows == len(drafts) else self._since_plain + 1
        self._cycles += 1
        if self._cycles > _COLD:
            self._passes.observe(rows, times.target + times.rest)
            if asked and level:
                self._drafts.observe(asked, times.draft)

    def _chosen(self, requests: Sequence[Request]) -> list[int]:
        """Depths as they were last chosen for this batch, unless it is time to choose again."""
        batch = [request.state.uid for request in requests]
        if self._cycles >= self._next_choice or batch != self._batch:
            del self._pass_prices[1:], self._draft_prices[1:]
            self._choice, self._batch = self._share(requests), batch
            self._next_choice = self._cycles + min(self._cycles // 8 + 1, _CHOICE_INTERVAL)
        return [
            min(depth, request.room) for depth, request in zip(self._choice, requests, strict=True)
        ]

    def _share(self, requests: Sequence[Request]) -> list[int]:
        """The depth of each request that makes the whole batch fastest."""
        pinned = [self._pinned_depth(request) for request in requests]
        rooms = [min(request.room, self._deepest) for request in requests]
        reaches = [self._notes(request).record.reach() for request in requests]
        if len(requests) == 1 and not pinned[0]:
            (reach,), (room,) = reaches, rooms
            return [best_depth(reach, room, self._nodes, self._pass_price, self._draft_price)]
        return share_rows(reaches, rooms, pinned, self._nodes, self._pass_price, self._draft_price)

    def _try_drafting(self, requests: Sequence[Request], depths: list[int]) -> None:
        """Let those that decode plainly draft a level, if they have saved up enough for a try."""
        if all(depths):
            return
        rows = len(requests) + sum(self._nodes[depth] for depth in depths)
        plain = self._pass_price(len(requests)) / len(requests)
        for index, request in enumerate(requests):
            if depths[index] or min(request.room, self._deepest) <= 0:
                continue
            notes = self._notes(request)
            notes.credit += _PROBE_SHARE * plain
            price = self._pass_price(rows + self._nodes[1]) - self._pass_price(rows)
            if not any(depths):
                price += self._draft_price(1)
            if self._tries < _TRIES:
                price = min(price, plain)
            due = notes.credit >= max(price, _LEAST_PRICE * plain)
            if due or notes.again:
                # A drafter that has been idle catches up first: the second cycle tells its price.
                if due:
                    notes.credit = -price
                notes.again = due
                self._tries += due
                depths[index] = 1
                rows += self._nodes[1]

    def _stray(self, requests: Sequence[Request], depths: Sequence[int]) -> list[int]:
        """Depths of a cycle that is to teach something about costs."""
        self._next_stray = self._cycles + min(max(self._cycles // 8, 4), _STRAY_INTERVAL)
        self._stray_deeper = not self._stray_deeper
        strayed = list(depths)
        for index, (request, depth) in enumerate(zip(requests, depths, strict=True)):
            if depth and not self._pinned_depth(request):
                deeper = min(depth + 1, request.room, self._deepest)
                strayed[index] = deeper if self._stray_deeper else (depth + 1) // 2
        return strayed

    def _pinned_depth(self, request: Request) -> int:
        """The depth of a request whose tokens depend on its depths; 0 for any other."""
        params = request.state.params
        if self._keeps_tokens or params.seed is None or params.greedy:
            return 0
        return min(PINNED, self._deepest, request.room)

    def _notes(self, request: Request) -> Notes:
        if request.notes is None:
            request.notes = Notes(AcceptanceRecord(self._deepest, memory=_MEMORY, pool=self._pool))
        return request.notes

    def _pass_price(self, rows: int) -> float:
        prices = self._pass_prices
        if len(prices) <= rows:
            self._passes.extend(prices, rows)
        return prices[rows]

    def _draft_price(self, depth: int) -> float:
        """Free until it was measured, so that it is."""
        prices = self._draft_prices
        while len(prices) <= depth:
            prices.append(self._drafts.price(len(prices)) if self._drafts.known else 0.0)
        return prices[depth]
