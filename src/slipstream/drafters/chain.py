"""Chains, and when to stop one: a guess that is probably wrong already is not worth a next one.

How far a draft gets varies more from cycle to cycle than any average can say, and the drafter knows
something of it: its own probability of what it has drafted. A chain stops where the product of
these has fallen below the budget's floor.

Whether a token gets a successor is decided by the tokens above the successor, never by the
successor itself, so this is exact under every draw method and chain rule (:mod:`tree_builder`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from slipstream.drafters.static_tree import Shape, StaticGrowth
from slipstream.drafters.tree_builder import Growth, TreeBuilder
from slipstream.types import ROOT, Array, Draft

FLOOR: Final = 0.3
"""A token that is less likely to be accepted than this gets no successor, where nobody asked for a
fixed length. Replayed on greedy answers to 120 questions of Spec-Bench, every floor from 0.2 to 0.5
comes within 1 % of the best one, for steps of 7 % of a pass and of 15 %. A constant, so that tokens
don't depend on the clock."""

_RUNNERS: Final = 16
"""Of a race, so many arrivals tell how narrowly its first was first; the others are not kept."""

_AGREEMENT: Final = 2.0
"""The target's race has the same noise and other odds: a token with a share c of all arrivals in
the drafter's is first in the target's with a chance of about c ** 2. On 1,500 drafts of the shipped
EAGLE at temperature 1, shares of .2 to .3, .5 to .6 and .9 to 1 were accepted in .13, .41 and .80
of cases, and those of a second token, of both together, in .09, .26 and .8. Without a race q itself
is the chance: .23, .58 and .97 at temperature 0."""


def chain_growth(builder: TreeBuilder, depth: int, floor: float) -> Growth:
    """A chain of this depth, or one that stops where it has become unlikely."""
    if floor:
        return StoppingChain(builder, depth, floor)
    return StaticGrowth(builder, Shape.chain(depth))


class StoppingChain:
    """One token a level, for as long as they are likely enough.

    Args:
        builder: any draw method.
        depth: most tokens.
        floor: a token less likely to be accepted than this, all above it included, gets no
            successor; above 0.
    """

    def __init__(self, builder: TreeBuilder, depth: int, floor: float) -> None:
        assert floor > 0
        self.builder = builder
        self._left = depth
        races = builder.draw == "gumbel"
        self._least = math.log(floor) / (_AGREEMENT if races else 1.0)
        self._drawn = _RUNNERS if races else 1
        self._chain: list[int] = []
        self.frontier: Sequence[int] = [ROOT] if depth else []

    def grow(self, logits: Array) -> None:
        (node,) = self.frontier
        q = self.builder.candidates(node, logits[0], self._drawn)
        drawn = self.builder.extend(node, q, self._drawn)
        self._chain += drawn[:1]
        self._left -= 1
        likely = bool(drawn) and self.builder.log(drawn[0]) >= self._least
        self.frontier = drawn[:1] if likely and self._left else []

    def draft(self) -> Draft:
        return self.builder.draft(self._chain if self._drawn > 1 else None)
