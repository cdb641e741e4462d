"""EAGLE (Li et al. 2401.15077) and EAGLE-2 (2406.16858): a small network continues the features.

Indexing. With n committed tokens x_0 … x_{n-1}, the target has computed the features f_0 … f_{n-2}
(f_t is the LM head's input at x_t). The drafter's row t takes (f_t, x_{t+1}) and predicts f_{t+1},
and so, through the head, x_{t+2}. Its cache holds row t at position t, for true features only: the
last of them, row n - 2, gives the distribution of the first drafted token. A drafted node d levels
below the root is row n - 2 + d: it takes the node's token and the *predicted* feature of its
parent's row. These rows stay pending and are dropped when the draft is done; after verification the
accepted tokens are fed again with the target's true features (:class:`Observation`), just before
the next draft, together with whatever cycles without a draft have left.

So the cache is a function of the committed tokens alone: nothing that was drafted remains in it.
Knows no rule. H hidden, v drafter vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from array_api_compat import array_namespace

from slipstream.drafters.base import Budget, Observation
from slipstream.drafters.chain import chain_growth
from slipstream.drafters.dynamic_tree import dynamic_growth
from slipstream.drafters.learned import load_learned
from slipstream.drafters.network import EagleNetwork
from slipstream.drafters.static_tree import StaticGrowth, best_shape
from slipstream.drafters.tree_builder import Growth, TreeBuilder
from slipstream.models.base import PREFIX, FeatureRequest, ForwardOutput, Rows
from slipstream.types import ROOT, Array, Draft, DrawMethod, SequenceState

if TYPE_CHECKING:
    from slipstream.drafters.registry import DrafterContext

_CHUNK: Final = 256
"""Most rows that one sequence feeds in a pass: bounds the memory of a long prompt."""

DEFAULT_WIDTH: Final = 8
"""Nodes that EAGLE-2 expands per level, and children drawn for each, unless told otherwise."""

GrowthFactory = Callable[[TreeBuilder, Budget], Growth]


@dataclass
class _Cached:
    """One request: its rows in the network, and the true rows that it has not been fed."""

    handle: int
    tokens: list[int] = field(default_factory=list)  # x_{t+1} of each unfed row t
    features: list[Array] = field(default_factory=list)  # f_t: arrays of (some, H), in order


@dataclass
class _Growing:
    """A tree under construction, the last level that was fed, and the pending rows of all."""

    cached: _Cached
    growth: Growth
    slots: dict[int, int] = field(default_factory=lambda: {ROOT: PREFIX})
    level: dict[int, int] = field(default_factory=lambda: {ROOT: 0})  # node -> its row below
    predicted: Array = None  # (rows of the level, H)

    def grow(self, fed: Sequence[int], predicted: Array, logits: Array) -> None:
        """Take what the network says of some nodes: features and logits, one row each."""
        self.level = {node: row for row, node in enumerate(fed)}
        self.predicted = predicted
        self.growth.grow(logits)


class Eagle:
    """Drafts trees from the target's features.

    Args:
        name: ``eagle`` or ``eagle2``.
        network: the feature drafter.
        grow: starts a tree within a budget: static, or EAGLE-2's.
        nodes_per_level: drafted tokens per level where nobody says how many.
    """

    features = FeatureRequest(last=True)
    trees = True

    def __init__(
        self, name: str, network: EagleNetwork, grow: GrowthFactory, *, nodes_per_level: float = 1.0
    ) -> None:
        self.name = name
        self.nodes_per_level = nodes_per_level
        self._network = network
        self._grow = grow
        self._cached: dict[int, _Cached] = {}

    def begin(self, sequence: SequenceState, features: ForwardOutput | None) -> None:
        """Note the prompt's rows; they are fed with the first draft."""
        self.end(sequence)
        self._cached[sequence.uid] = cached = _Cached(self._network.open())
        if features is not None:
            self._note(cached, sequence.tokens[1:], features.features)

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        """A tree per sequence; one network pass per level, for all of them together."""
        growing: dict[int, _Growing] = {}
        for index, (sequence, budget) in enumerate(zip(sequences, budgets, strict=True)):
            cached = self._cached[sequence.uid]
            # The deepest nodes are never fed: depth d takes rows up to position n - 3 + d.
            depth = min(budget.depth, self._network.max_context - sequence.length + 2)
            if depth > 0 and budget.nodes > 0 and cached.tokens:
                nodes = min(budget.nodes, depth) if budget.nodes <= budget.depth else budget.nodes
                builder = TreeBuilder(sequence, draw, self._network.vocabulary)
                growth = self._grow(builder, replace(budget, depth=depth, nodes=nodes))
                growing[index] = _Growing(cached, growth)
        if not growing:
            return [Draft() for _ in sequences]
        active = list(growing.values())
        try:
            self._feed_true_rows(active)
            while any(tree.growth.frontier for tree in active):
                self._feed_nodes([tree for tree in active if tree.growth.frontier])
        finally:
            for tree in active:
                self._network.commit(tree.cached.handle, [])
        return [
            growing[index].growth.draft() if index in growing else Draft()
            for index in range(len(sequences))
        ]

    def observe(self, observations: Sequence[Observation]) -> None:
        """Note the true features of the root and of the accepted nodes."""
        for seen in observations:
            assert seen.features is not None
            new = seen.sequence.tokens[-seen.emitted :]
            self._note(self._cached[seen.sequence.uid], new, seen.features.features)

    def end(self, sequence: SequenceState) -> None:
        """Free the request's cache."""
        if (cached := self._cached.pop(sequence.uid, None)) is not None:
            self._network.close(cached.handle)

    def _note(self, cached: _Cached, tokens: Sequence[int], features: Array) -> None:
        """Rows (features[i], tokens[i]) await their turn."""
        assert len(tokens) == len(features)
        # Beyond the drafter's context there will be no draft, so nothing is kept for one.
        if self._network.length(cached.handle) + len(cached.tokens) < self._network.max_context:
            cached.tokens += tokens
            cached.features.append(features)

    def _feed_true_rows(self, active: Sequence[_Growing]) -> None:
        """Commit all unfed rows; the last of each sequence grows the root's children."""
        queues = []
        for tree in active:
            parts, tokens = tree.cached.features, tree.cached.tokens
            queues.append((tree, tokens, _joined(parts)))
            tree.cached.tokens, tree.cached.features = [], []
        start = 0
        while queues:
            batch = _Batch()
            for tree, tokens, features in queues:
                fed, last = tokens[start : start + _CHUNK], start + _CHUNK >= len(tokens)
                wants = [False] * (len(fed) - 1) + [last]
                parents = range(PREFIX, len(fed) - 1)
                rows = features[start : start + _CHUNK]
                batch.add(tree.cached.handle, fed, parents, rows, wants)
            output = self._network.forward(batch.rows())
            assert output.features is not None
            row = first = 0
            for tree, tokens, _ in queues:
                count = min(_CHUNK, len(tokens) - start)
                self._network.commit(tree.cached.handle, range(count))
                row += count
                if start + count == len(tokens):
                    logits = output.logits[first : first + 1]
                    tree.grow([ROOT], output.features[row - 1 : row], logits)
                    first += 1
            start += _CHUNK
            queues = [queue for queue in queues if start < len(queue[1])]

    def _feed_nodes(self, trees: Sequence[_Growing]) -> None:
        """Feed the frontier of every tree and grow its children.

        A node of the frontier is a child of the level before it: only its features are kept.
        """
        batch = _Batch()
        for tree in trees:
            builder, frontier = tree.growth.builder, tree.growth.frontier
            parents = [builder.parents[node] for node in frontier]
            places = [tree.level[parent] for parent in parents]
            tokens = [builder.tokens[node] for node in frontier]
            slots = [tree.slots[parent] for parent in parents]
            for node in frontier:
                tree.slots[node] = len(tree.slots) - 1  # the root's row is committed
            features = (
                tree.predicted if places == list(tree.level.values()) else tree.predicted[places]
            )
            batch.add(tree.cached.handle, tokens, slots, features)
        output = self._network.forward(batch.rows())
        assert output.features is not None
        row = 0
        for tree in trees:
            fed = tree.growth.frontier
            rows = slice(row, row + len(fed))
            tree.grow(fed, output.features[rows], output.logits[rows])
            row += len(fed)


@dataclass
class _Batch:
    """Rows of one network pass under construction."""

    sequences: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    vectors: list[Array] = field(default_factory=list)
    wants: list[bool] = field(default_factory=list)

    def add(
        self,
        sequence: int,
        tokens: Sequence[int],
        parents: Sequence[int],
        vectors: Array,
        wants: Sequence[bool] | None = None,
    ) -> None:
        """Rows of one sequence; all of them want logits unless told."""
        self.sequences += [sequence] * len(tokens)
        self.tokens += tokens
        self.parents += parents
        self.vectors.append(vectors)
        self.wants += wants or [True] * len(tokens)

    def rows(self) -> Rows:
        return Rows(
            sequences=np.array(self.sequences, np.int64),
            tokens=np.array(self.tokens, np.int64),
            parents=np.array(self.parents, np.int64),
            wants_logits=None if all(self.wants) else np.array(self.wants, np.bool_),
            vectors=_joined(self.vectors),
        )


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts, axis=0)


def load_eagle(spec: str, context: DrafterContext) -> Eagle:
    """EAGLE with chains and static trees, from a directory or as shipped for the target.

    Raises:
        InvalidInput, ModelError, VocabularyMismatch, Unsupported: see
            :func:`slipstream.drafters.learned.load_learned`.
    """
    learned = load_learned(spec, "eagle", context)
    accuracy, width = learned.checkpoint.config.rank_accuracy, context.tree_width

    def static(builder: TreeBuilder, budget: Budget) -> Growth:
        if budget.nodes <= budget.depth:
            return chain_growth(builder, budget.nodes, budget.floor)
        shape = best_shape(accuracy, budget.nodes, budget.depth, max_width=width)
        return StaticGrowth(builder, shape)

    return Eagle("eagle", EagleNetwork(*learned), static)


def load_eagle2(spec: str, context: DrafterContext) -> Eagle:
    """The same network with EAGLE-2's dynamic trees; see :func:`load_eagle`."""
    network = EagleNetwork(*load_learned(spec, "eagle", context))
    width = context.tree_width or DEFAULT_WIDTH

    def dynamic(builder: TreeBuilder, budget: Budget) -> Growth:
        return dynamic_growth(builder, budget, width)

    return Eagle("eagle2", network, dynamic, nodes_per_level=2.0)
