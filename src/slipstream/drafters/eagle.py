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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from array_api_compat import array_namespace

from slipstream.drafters.base import Budget, Observation
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
    """A tree under construction: the pending row and the predicted feature of each fed node."""

    cached: _Cached
    growth: Growth
    slots: dict[int, int] = field(default_factory=lambda: {ROOT: PREFIX})
    predicted: dict[int, Array] = field(default_factory=dict)


class Eagle:
    """Drafts trees from the target's features.

    Args:
        name: ``eagle`` or ``eagle2``.
        network: the feature drafter.
        grow: starts a tree within a budget: static, or EAGLE-2's.
    """

    features = FeatureRequest(last=True)
    trees = True

    def __init__(self, name: str, network: EagleNetwork, grow: GrowthFactory) -> None:
        self.name = name
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
                growth = self._grow(builder, Budget(depth=depth, nodes=nodes))
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
        queues = {}
        for tree in active:
            parts, tokens = tree.cached.features, tree.cached.tokens
            queues[tree.cached.handle] = (tokens, array_namespace(*parts).concat(parts, axis=0))
            tree.cached.tokens, tree.cached.features = [], []
        start = 0
        while waiting := [t for t in active if start < len(queues[t.cached.handle][0])]:
            batch = _Batch()
            for tree in waiting:
                tokens, features = queues[tree.cached.handle]
                stop = min(start + _CHUNK, len(tokens))
                for row in range(start, stop):
                    batch.add(
                        tree.cached.handle,
                        tokens[row],
                        PREFIX if row == start else row - start - 1,
                        features[row],
                        wants=row == len(tokens) - 1,
                    )
            output = self._network.forward(batch.rows())
            assert output.features is not None
            row = first = 0
            for tree in waiting:
                count = min(_CHUNK, len(queues[tree.cached.handle][0]) - start)
                self._network.commit(tree.cached.handle, range(count))
                row += count
                if start + count == len(queues[tree.cached.handle][0]):
                    tree.predicted[ROOT] = output.features[row - 1]
                    tree.growth.grow(output.logits[first : first + 1])
                    first += 1
            start += _CHUNK

    def _feed_nodes(self, trees: Sequence[_Growing]) -> None:
        """Feed the frontier of every tree and grow its children."""
        batch = _Batch()
        for tree in trees:
            builder = tree.growth.builder
            for node in tree.growth.frontier:
                parent = builder.parents[node]
                batch.add(
                    tree.cached.handle,
                    builder.tokens[node],
                    tree.slots[parent],
                    tree.predicted[parent],
                )
        output = self._network.forward(batch.rows())
        assert output.features is not None
        row = 0
        for tree in trees:
            frontier = list(tree.growth.frontier)
            for offset, node in enumerate(frontier):
                tree.slots[node] = len(tree.slots) - 1  # the root's row is committed
                tree.predicted[node] = output.features[row + offset]
            tree.growth.grow(output.logits[row : row + len(frontier)])
            row += len(frontier)


@dataclass
class _Batch:
    """Rows of one network pass under construction."""

    sequences: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    vectors: list[Array] = field(default_factory=list)
    wants: list[bool] = field(default_factory=list)

    def add(
        self, sequence: int, token: int, parent: int, vector: Array, *, wants: bool = True
    ) -> None:
        self.sequences.append(sequence)
        self.tokens.append(token)
        self.parents.append(parent)
        self.vectors.append(vector)
        self.wants.append(wants)

    def rows(self) -> Rows:
        return Rows(
            sequences=np.asarray(self.sequences, np.int64),
            tokens=np.asarray(self.tokens, np.int64),
            parents=np.asarray(self.parents, np.int64),
            wants_logits=None if all(self.wants) else np.asarray(self.wants, np.bool_),
            vectors=array_namespace(*self.vectors).stack(self.vectors),
        )


def load_eagle(spec: str, context: DrafterContext) -> Eagle:
    """EAGLE with chains and static trees, from a directory or as shipped for the target.

    Raises:
        InvalidInput, ModelError, VocabularyMismatch, Unsupported: see
            :func:`slipstream.drafters.learned.load_learned`.
    """
    learned = load_learned(spec, "eagle", context)
    accuracy, width = learned.checkpoint.config.rank_accuracy, context.tree_width

    def static(builder: TreeBuilder, budget: Budget) -> Growth:
        shape = best_shape(accuracy, budget.nodes, budget.depth, max_width=width)
        return StaticGrowth(builder, shape)

    return Eagle("eagle", EagleNetwork(*learned), static)


def load_eagle2(spec: str, context: DrafterContext) -> Eagle:
    """The same network with EAGLE-2's dynamic trees; see :func:`load_eagle`."""
    network = EagleNetwork(*load_learned(spec, "eagle", context))
    width = context.tree_width or DEFAULT_WIDTH
    return Eagle("eagle2", network, lambda builder, budget: dynamic_growth(builder, budget, width))
