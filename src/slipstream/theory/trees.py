"""The tree shape that is worth most: the dynamic programme of Sequoia (2402.12374).

If the b-th child of any node is the accepted one with probability r_b, a tree's expected tokens per
cycle are the sum over its nodes of the products of r along their paths, the root counting 1. The
best tree of m nodes with b children of the root splits into its last child's subtree and the rest:

    T[m, l, b] = max over s of T[m - s, l, b - 1] + r_b max over b' of T[s, l - 1, b']

(l levels below the root, s nodes for the b-th child's subtree). Knows no tokens: a shape is a list
of parents, in the numbering of :class:`slipstream.types.TokenTree`.
Shape letters: M drafted nodes, D depth, B children.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidInput
from slipstream.theory.speedup import PassTime, checked_pass_time
from slipstream.types import ROOT


@dataclass(frozen=True)
class TreeShape:
    """A tree without tokens.

    Args:
        parents: M parent indices, level by level, siblings by rank; ROOT for the first level.
        ranks: M ranks among siblings, 0 for a node's first child.
        depth: its longest path; 0 if empty.
        tokens: expected tokens per cycle, the one more included.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    depth: int
    tokens: float


def shape_tokens(parents: Sequence[int], acceptance: Sequence[float]) -> float:
    """Expected tokens per cycle of a shape: the sum over nodes of the product of r to the node.

    Args:
        parents: M parent indices, parents before children, siblings by rank.
        acceptance: r_b, the probability that the b-th child is the accepted one.

    Raises:
        InvalidInput: a parent that is no earlier node, or r is no set of disjoint events.
    """
    rates = _checked_rates(acceptance)
    children: dict[int, int] = {}
    reach: list[float] = []
    for node, parent in enumerate(parents):
        if not ROOT <= parent < node:
            raise InvalidInput(f"parent {parent} of node {node} is not an earlier node")
        rank = children.get(parent, 0)
        children[parent] = rank + 1
        rate = float(rates[rank]) if rank < len(rates) else 0.0
        reach.append(rate * (1.0 if parent == ROOT else reach[parent]))
    return 1.0 + math.fsum(reach)


def best_tree(acceptance: Sequence[float], nodes: int, max_depth: int) -> TreeShape:
    """The shape of at most ``nodes`` drafted nodes with the most expected tokens.

    Args:
        acceptance: r_b by rank, from the first child on; they add up to at most 1.
        nodes: budget of drafted nodes, the root not counted.
        max_depth: longest path allowed.

    Raises:
        InvalidInput: r outside these bounds, or a negative budget or depth.
    """
    table = _Table(acceptance, nodes, max_depth)
    return table.shape(nodes, max_depth)


def fastest_tree(
    acceptance: Sequence[float],
    *,
    max_nodes: int,
    max_depth: int,
    pass_time: PassTime,
    draft_time: float,
) -> TreeShape:
    """The shape with the most expected tokens per unit of time, the empty one included.

    Maximises T / (d t_draft + t_verify(m + 1)) over nodes m and depth d (2402.12374): a
    level is one drafter step however wide it is, and the root is a row of the pass as well.

    Args:
        acceptance: r_b by rank.
        max_nodes, max_depth: bounds of the search.
        pass_time: time of a target pass by its rows.
        draft_time: time of one drafter step, in the same unit.

    Raises:
        InvalidInput: as :func:`best_tree`, or a time that is negative or not finite.
    """
    if not (math.isfinite(draft_time) and draft_time >= 0):
        raise InvalidInput(f"draft_time must be finite and >= 0, not {draft_time!r}")
    table = _Table(acceptance, max_nodes, max_depth)
    verify = [checked_pass_time(pass_time, nodes + 1) for nodes in range(max_nodes + 1)]
    best, choice = 1 / verify[0], (0, 0)
    for nodes in range(1, max_nodes + 1):
        for depth in range(1, min(nodes, max_depth) + 1):
            rate = table.tokens(nodes, depth) / (depth * draft_time + verify[nodes])
            if rate > best * (1 + 1e-12):  # of equals, the smaller tree
                best, choice = rate, (nodes, depth)
    return table.shape(*choice)


class _Table:
    """T[l, b, m]: at most m nodes with their root, l levels below it, exactly b children of it."""

    def __init__(self, acceptance: Sequence[float], nodes: int, max_depth: int) -> None:
        if nodes < 0 or max_depth < 0:
            raise InvalidInput(f"nodes and depth must be >= 0, not {nodes} and {max_depth}")
        self._rates = _checked_rates(acceptance)[:nodes]
        size, children = nodes + 1, len(self._rates)
        self._values = np.full((max_depth + 1, children + 1, size + 1), -np.inf)
        self._values[:, 0, 1:] = 1.0  # a root alone
        for level in range(1, max_depth + 1):
            for b in range(1, children + 1):
                for m in range(b + 1, size + 1):
                    self._values[level, b, m] = self._subtrees(level, b, m).max()

    def _subtrees(self, level: int, b: int, m: int) -> npt.NDArray[np.float64]:
        """Values by the size s = 1 .. m - b of the b-th child's subtree."""
        below = self._values[level - 1].max(axis=0)
        rest = self._values[level, b - 1, b:m][::-1]  # m - s nodes, for s = 1 .. m - b
        value: npt.NDArray[np.float64] = rest + self._rates[b - 1] * below[1 : m - b + 1]
        return value

    def tokens(self, nodes: int, depth: int) -> float:
        """Expected tokens of the best tree of at most ``nodes`` drafted nodes and this depth."""
        return float(self._values[depth, :, nodes + 1].max())

    def shape(self, nodes: int, depth: int) -> TreeShape:
        """The tree behind a value, rebuilt from its choices and numbered level by level."""
        parents: list[int] = []
        ranks: list[int] = []
        deepest = 0
        level = [(ROOT, nodes + 1)]  # nodes whose children come next, with their subtree's size
        for remaining in range(depth, 0, -1):
            following: list[tuple[int, int]] = []
            for node, size in level:
                for rank, subtree in enumerate(self._split(size, remaining)):
                    following.append((len(parents), subtree))
                    parents.append(node)
                    ranks.append(rank)
            deepest += bool(following)
            level = following
        value = shape_tokens(parents, self._rates.tolist())
        return TreeShape(tuple(parents), tuple(ranks), deepest, value)

    def _split(self, size: int, level: int) -> list[int]:
        """Sizes of the children's subtrees, by rank, in the best tree of ``size`` nodes."""
        sizes: list[int] = []
        for b in range(int(self._values[level, :, size].argmax()), 0, -1):
            subtree = 1 + int(self._subtrees(level, b, size).argmax())  # of equals the smallest
            sizes.append(subtree)
            size -= subtree
        return sizes[::-1]


def _checked_rates(acceptance: Sequence[float]) -> npt.NDArray[np.float64]:
    rates = np.asarray(acceptance, dtype=np.float64)
    if rates.ndim != 1 or not np.isfinite(rates).all() or (rates < 0).any():
        raise InvalidInput("acceptance must be a list of finite probabilities >= 0")
    if rates.sum() > 1 + 1e-9:
        raise InvalidInput(f"acceptance by rank must add up to at most 1, not {rates.sum():.6g}")
    return rates
