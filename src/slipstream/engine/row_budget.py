"""One budget of rows for a batch: every request's next level competes for it by tokens per row.

The levels of all requests are lined up by what they bring per row, and as many of them are granted
as make tokens per second of the whole batch,

    (B + accepted tokens) / (C(rows) + drafting),

largest: shared by marginal gain, for as long as that exceeds the marginal cost. Knows chances and
prices, no model and no clock. Shape letter: B requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias

from slipstream.engine.acceptance_record import Reach

Price: TypeAlias = Callable[[int], float]
"""Seconds by rows of a pass, or by the depth of a draft."""

_TILE: Final = 8
"""Machines work in tiles of no more rows than this: a level may be dear so that others are free."""

_Level: TypeAlias = tuple[float, int, int, float, float]
"""One more level for one request, in the order in which levels are granted: minus the tokens that
it brings per row, request, depth, the chance that it is drafted, the chance that it is accepted."""


def best_depth(
    reaches: Iterable[Reach], room: int, nodes: Sequence[int], passes: Price, drafts: Price
) -> int:
    """The depth that makes a request that runs alone fastest.

    Args:
        reaches: what each level is expected to bring, from the first on.
        room: the deepest that is allowed.
        nodes: of a draft, by its depth, from 0 on.
        passes, drafts: what they cost.
    """
    tokens, seconds = 1.0, passes(1)
    best, chosen = tokens / seconds, 0
    for depth, (drafted, accepted) in enumerate(islice(reaches, room), start=1):
        tokens += accepted
        seconds += drafted * (passes(1 + nodes[depth]) - passes(1 + nodes[depth - 1]))
        spent = seconds + drafts(depth)
        if tokens > best * spent:
            best, chosen = tokens / spent, depth
        elif depth + _TILE < room:
            ahead = depth + _TILE
            price = drafted * (passes(1 + nodes[ahead]) - passes(1 + nodes[depth]))
            if _TILE * accepted < best * (price + drafts(ahead) - drafts(depth)):
                break  # the next levels, each at best as good as this one, aren't worth their time
    return chosen


def share_rows(
    reaches: Sequence[Iterable[Reach]],
    rooms: Sequence[int],
    pinned: Sequence[int],
    nodes: Sequence[int],
    passes: Price,
    drafts: Price,
) -> list[int]:
    """The depth of each request that makes the whole batch fastest.

    Args:
        reaches, rooms: of each request, as for :func:`best_depth`.
        pinned: depths that aren't up for choice, 0 for those that are.
        nodes, passes, drafts: as for :func:`best_depth`.
    """
    depths = list(pinned)
    taken = [1.0 + nodes[depth] for depth in depths]  # expected rows of each request
    levels: list[_Level] = []
    for index, (reach, room) in enumerate(zip(reaches, rooms, strict=True)):
        if not pinned[index]:
            levels += _levels(index, list(islice(reach, room)), nodes)
    levels.sort()

    rows, deepest = sum(taken), max(depths, default=0)
    tokens, seconds, drafting = float(len(depths)), passes(round(rows)), drafts(deepest)
    best, granted = tokens / (seconds + drafting), 0
    for count, (_, index, depth, drafted, accepted) in enumerate(levels, start=1):
        others = round(rows - taken[index]) + 1
        above, here = nodes[depth - 1], nodes[depth]
        seconds += drafted * (passes(others + here) - passes(others + above))
        tokens += accepted
        rows += drafted * (here - above)
        taken[index] += drafted * (here - above)
        if depth > deepest:
            deepest, drafting = depth, drafts(depth)
        rate = tokens / (seconds + drafting)
        if rate > best:
            best, granted = rate, count
    for _, index, depth, _, _ in levels[:granted]:
        depths[index] = depth
    return depths


def _levels(request: int, reaches: Sequence[Reach], nodes: Sequence[int]) -> list[_Level]:
    """A request's levels with tokens per row made non-increasing, by pooling what violates it.

    A level that is worth more than the ones above it can't be had without them.
    """
    blocks: list[tuple[float, float, int]] = []  # tokens, rows, levels
    for depth, (drafted, accepted) in enumerate(reaches, start=1):
        tokens, rows, count = accepted, drafted * (nodes[depth] - nodes[depth - 1]) + 1e-9, 1
        while blocks and tokens * blocks[-1][1] > blocks[-1][0] * rows:
            above = blocks.pop()
            tokens, rows, count = tokens + above[0], rows + above[1], count + above[2]
        blocks.append((tokens, rows, count))
    levels: list[_Level] = []
    for tokens, rows, count in blocks:
        for depth in range(len(levels) + 1, len(levels) + 1 + count):
            levels.append((-tokens / rows, request, depth, *reaches[depth - 1]))
    return levels
