"""Static trees: a shape settled before the cycle, in which rank r stands for the r-th child drawn.

A shape is Medusa's list of *choices* (Cai et al. 2401.10774, sec. 2.1.2 and appendix): paths of
ranks, such as (0, 2): the third child of the first child. The full Cartesian product of the heads'
top tokens is one; the pruned form adds, one by one, the path that is most likely right by measured
accuracy per depth and rank. Because no drawn token moves it, a static shape is exact under every
draw method and rule.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from slipstream.drafters.shortlist import Shortlist
from slipstream.drafters.tree_builder import TreeBuilder
from slipstream.errors import InvalidInput
from slipstream.types import ROOT, Array, Draft

TYPICAL_ACCURACY: Final[tuple[tuple[float, ...], ...]] = (
    (0.5, 0.14, 0.07, 0.04, 0.03, 0.02, 0.015, 0.01),
)
"""By rank, at every depth: the usual fall-off, for drafters whose accuracy was not measured."""


@dataclass(frozen=True)
class Shape:
    """A tree without tokens.

    Args:
        parents: ROOT or an earlier node, level by level; siblings by rank.

    Raises:
        InvalidInput: a parent that is no earlier node.
    """

    parents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise InvalidInput(f"parent {parent} of node {node} is not an earlier node")

    @classmethod
    def chain(cls, depth: int) -> Shape:
        """Width one."""
        return cls(tuple(range(ROOT, depth - 1)))

    @classmethod
    def from_paths(cls, paths: Sequence[Sequence[int]]) -> Shape:
        """From Medusa choices, in any order.

        Raises:
            InvalidInput: a path whose parent, or whose sibling of the rank before, is missing.
        """
        ordered = sorted({tuple(path) for path in paths}, key=lambda path: (len(path), path))
        number: dict[tuple[int, ...], int] = {(): ROOT}
        for index, path in enumerate(ordered):
            before = () if not path or path[-1] == 0 else (*path[:-1], path[-1] - 1)
            if not path or path[:-1] not in number or before not in number:
                raise InvalidInput(
                    f"tree path {list(path)} needs its parent and its siblings of lower rank"
                )
            number[path] = index
        return cls(tuple(number[path[:-1]] for path in ordered))

    @classmethod
    def cartesian(cls, widths: Sequence[int]) -> Shape:
        """Every node of depth d has ``widths[d]`` children."""
        paths: list[tuple[int, ...]] = []
        for depth in range(1, len(widths) + 1):
            paths += itertools.product(*(range(width) for width in widths[:depth]))
        return cls.from_paths(paths)

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def depth(self) -> int:
        """Longest path."""
        depths = [0]  # of ROOT, then of each node
        for parent in self.parents:
            depths.append(depths[parent + 1] + 1)
        return max(depths)

    def pruned(self, nodes: int, depth: int) -> Shape:
        """The first ``nodes`` of its nodes that lie within ``depth`` levels."""
        number, depths = {ROOT: ROOT}, {ROOT: 0}
        parents: list[int] = []
        for node, parent in enumerate(self.parents):
            if parent in number and depths[parent] < depth and len(parents) < nodes:
                number[node], depths[node] = len(parents), depths[parent] + 1
                parents.append(number[parent])
        return Shape(tuple(parents))


def best_shape(
    accuracy: Sequence[Sequence[float]], nodes: int, depth: int, *, max_width: int | None = None
) -> Shape:
    """Medusa's pruned tree: the ``nodes`` paths that are most likely right.

    A path is right with the product of its ranks' accuracies, so adding the most likely path that
    is not in the tree yet, again and again, gives the most expected accepted tokens for the budget.

    Args:
        accuracy: by depth, then rank; the last row holds for all deeper levels.
        nodes: budget. With no more nodes than levels, the shape is a chain: that is how a budget
            asks for one.
        depth: longest path allowed.
        max_width: most children of a node.
    """
    key = tuple(tuple(row) for row in accuracy if row) or TYPICAL_ACCURACY
    return _best_shape(key, max(nodes, 0), max(depth, 0), max_width)


@lru_cache(maxsize=256)
def _best_shape(
    accuracy: tuple[tuple[float, ...], ...], nodes: int, depth: int, max_width: int | None
) -> Shape:
    if nodes <= depth:
        return Shape.chain(nodes)
    paths: list[tuple[int, ...]] = []
    # (minus probability, path): each taken path makes room for its next sibling and first child.
    heap: list[tuple[float, tuple[int, ...], float]] = []

    def offer(path: tuple[int, ...], parent: float) -> None:
        rates = accuracy[min(len(path), len(accuracy)) - 1]
        widest = len(rates) if max_width is None else min(max_width, len(rates))
        if len(path) <= depth and path[-1] < widest:
            heapq.heappush(heap, (-parent * rates[path[-1]], path, parent))

    offer((0,), 1.0)
    while heap and len(paths) < nodes:
        negative, path, parent = heapq.heappop(heap)
        paths.append(path)
        offer((*path[:-1], path[-1] + 1), parent)
        offer((*path, 0), -negative)
    return Shape.from_paths(paths)


class StaticGrowth:
    """Fills a shape with tokens, level by level.

    Where a node has fewer tokens to offer than the shape has children for it, the places stay
    empty, and all below them.
    """

    def __init__(self, builder: TreeBuilder, shape: Shape) -> None:
        self.builder = builder
        builder.ranked = False
        self._children: dict[int, list[int]] = {}
        for place, parent in enumerate(shape.parents):
            self._children.setdefault(parent, []).append(place)
        self._places = [ROOT] if shape.parents else []  # of the frontier, in the shape
        self.frontier: Sequence[int] = list(self._places)

    def grow(self, logits: Array) -> None:
        counts = [len(self._children[place]) for place in self._places]
        qs: list[Shortlist] = []
        for row, node in enumerate(self.frontier):
            again = row > 0 and logits[row] is logits[row - 1] and counts[row] <= counts[row - 1]
            if not again or self.builder.prefix_matters:
                qs.append(self.builder.candidates(node, logits[row], counts[row]))
            else:
                qs.append(qs[-1])
        children = self.builder.extend_level(self.frontier, qs, counts)
        places: list[int] = []
        nodes: list[int] = []
        for place, new in zip(self._places, children, strict=True):
            for child, drawn in zip(self._children[place], new, strict=False):
                if child in self._children:
                    places.append(child)
                    nodes.append(drawn)
        self._places, self.frontier = places, nodes

    def draft(self) -> Draft:
        return self.builder.draft()
