"""Dynamic trees: EAGLE-2's (Li et al. 2406.16858), and its level-wise form for sampled children.

EAGLE-2: at each level the ``width`` nodes of highest *cumulative confidence* (the product of q
along the path) are expanded, each with its ``width`` best children; afterwards all candidates of
all levels compete by the same value, and the best N stay. A child never beats its parent, so what
stays is a connected tree. This looks at children to decide which of them stay, which is exact for
children chosen without randomness and for coupled ones, and biased for sampled ones
(:mod:`tree_builder` says why).

For those, the level-wise form shares out each level's places among the nodes of the level above
before any child is drawn: place r of a node is worth the node's value times the chance, guessed
from q alone, that its r-th child is the accepted one. Nothing is dropped afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from slipstream.drafters.base import Budget
from slipstream.drafters.chain import chain_growth
from slipstream.drafters.ranking import slot_confidences
from slipstream.drafters.tree_builder import Growth, TreeBuilder
from slipstream.types import ROOT, Array, Draft


def dynamic_growth(builder: TreeBuilder, budget: Budget, width: int) -> Growth:
    """The dynamic tree that is exact for the builder's draws; a chain if the budget is one."""
    if budget.nodes <= budget.depth:
        return chain_growth(builder, budget.nodes, budget.floor)
    if builder.draw in ("greedy", "gumbel"):
        return RerankedGrowth(builder, budget, width)
    return LevelwiseGrowth(builder, budget, width)


class RerankedGrowth:
    """EAGLE-2's expansion and global re-ranking.

    Args:
        builder: draws ``greedy`` or ``gumbel``.
        budget: depth and size of the tree.
        width: nodes expanded per level, and children drawn for each.
    """

    def __init__(self, builder: TreeBuilder, budget: Budget, width: int) -> None:
        assert builder.draw in ("greedy", "gumbel")
        self.builder = builder
        self._nodes = budget.nodes
        self._levels = budget.depth
        self._width = max(1, min(width, budget.nodes))
        # The most valuable nodes so far: (minus log value, node), so that a parent comes before its
        # child. Whoever is not among the best N stays out, and so do its children.
        self._best: list[tuple[float, int]] = []
        self.frontier: Sequence[int] = [ROOT] if budget.depth and budget.nodes else []

    def grow(self, logits: Array) -> None:
        qs = [
            self.builder.candidates(node, logits[row], self._width)
            for row, node in enumerate(self.frontier)
        ]
        children = self.builder.extend_level(self.frontier, qs, [self._width] * len(qs))
        logs, first = self.builder.logs, len(self.builder) - sum(map(len, children))
        new = [(-logs[child], child) for siblings in children for child in siblings]
        self._best = sorted(self._best + new)[: self._nodes]
        self._levels -= 1
        fresh = [node for _, node in self._best if node >= first][: self._width]
        self.frontier = sorted(fresh) if self._levels else []

    def draft(self) -> Draft:
        return self.builder.draft(sorted(node for _, node in self._best))


class LevelwiseGrowth:
    """Places shared out level by level, before the draw.

    Args:
        builder: any draw method.
        budget: depth and size of the tree; each level gets an equal share of what is left.
        width: most children of a node, and most nodes expanded per level.
    """

    def __init__(self, builder: TreeBuilder, budget: Budget, width: int) -> None:
        self.builder = builder
        self._left = budget.nodes
        self._levels = budget.depth
        self._width = max(1, width)
        self.frontier: Sequence[int] = [ROOT] if budget.depth and budget.nodes else []

    def grow(self, logits: Array) -> None:
        builder = self.builder
        qs = [
            builder.candidates(node, logits[row], self._width)
            for row, node in enumerate(self.frontier)
        ]
        places: list[tuple[float, int, int]] = []
        for index, (node, q) in enumerate(zip(self.frontier, qs, strict=True)):
            chances = slot_confidences(q.probs, self._width, builder.draw)
            for rank, chance in enumerate(chances):
                value = builder.log(node) + math.log(max(chance, 1e-30))
                places.append((-value, index, rank))
        share = min(self._left, math.ceil(self._left / self._levels))
        counts = [0] * len(qs)
        for _, index, _ in sorted(places)[:share]:
            counts[index] += 1

        children = builder.extend_level(self.frontier, qs, counts)
        new = [child for siblings in children for child in siblings]
        self._left -= len(new)
        self._levels -= 1
        ranked = sorted(new, key=lambda node: (-builder.logs[node], node))
        self.frontier = sorted(ranked[: self._width]) if self._left and self._levels else []

    def draft(self) -> Draft:
        return self.builder.draft()
