"""Medusa (Cai et al. 2401.10774): heads guess several tokens at once, joined in a static tree.

Head i reads the target's feature at the newest position that the target has computed, one before
the newest token, and guesses the token i + 2 places on: with the head's own words, the children of
every node of depth i share one set of logits. So drafting is a single pass of a few small matrices,
whatever the tree, and nothing needs a cache: the state of a request is one feature.

Knows no rule. B sequences, H hidden, v drafter vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from array_api_compat import array_namespace

from slipstream.drafters.base import Budget, Observation
from slipstream.drafters.learned import load_learned
from slipstream.drafters.network import MedusaNetwork
from slipstream.drafters.static_tree import Shape, StaticGrowth, best_shape
from slipstream.drafters.tree_builder import TreeBuilder
from slipstream.models.base import FeatureRequest, ForwardOutput
from slipstream.types import Array, Draft, DrawMethod, SequenceState

if TYPE_CHECKING:
    from slipstream.drafters.registry import DrafterContext


class Medusa:
    """Drafts static trees from heads on the target's last feature.

    Args:
        network: the heads.
        accuracy: by head, then rank; chooses the tree for a budget. Empty for a typical one.
        shape: a fixed tree; budgets only prune it, then. None chooses by ``accuracy``.
        width: most children of a node in a chosen tree; None leaves it open.
    """

    name = "medusa"
    trees = True
    features = FeatureRequest(last=True)

    def __init__(
        self,
        network: MedusaNetwork,
        accuracy: Sequence[Sequence[float]] = (),
        shape: Shape | None = None,
        width: int | None = None,
    ) -> None:
        self._network = network
        self._accuracy = accuracy
        self._shape = shape
        self._width = width
        self._feature: dict[int, Array] = {}

    def begin(self, sequence: SequenceState, features: ForwardOutput | None) -> None:
        """Keep the prompt's last feature; a prompt of one token has none yet."""
        self.end(sequence)
        if features is not None and features.features is not None and len(features.features):
            self._feature[sequence.uid] = features.features[-1]

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        """A static tree per sequence."""
        growths: dict[int, StaticGrowth] = {}
        for index, (sequence, budget) in enumerate(zip(sequences, budgets, strict=True)):
            shape = self._shape_for(budget)
            if len(shape) and sequence.uid in self._feature:
                builder = TreeBuilder(sequence, draw, self._network.vocabulary)
                growths[index] = StaticGrowth(builder, shape)
        if not growths:
            return [Draft() for _ in sequences]

        newest = [self._feature[sequences[index].uid] for index in growths]
        depth = max(min(budgets[index].depth, len(self._network)) for index in growths)
        logits = self._network.forward(array_namespace(*newest).stack(newest), depth)
        for row, growth in enumerate(growths.values()):
            while growth.frontier:
                level = growth.builder.depth(growth.frontier[0])
                growth.grow([logits[row, level]] * len(growth.frontier))
        return [
            growths[index].draft() if index in growths else Draft()
            for index in range(len(sequences))
        ]

    def observe(self, observations: Sequence[Observation]) -> None:
        """Keep the newest feature: of the last accepted node, or of the root."""
        for observation in observations:
            seen = observation.features
            assert seen is not None and seen.features is not None
            self._feature[observation.sequence.uid] = seen.features[-1]

    def end(self, sequence: SequenceState) -> None:
        """Forget the request."""
        self._feature.pop(sequence.uid, None)

    def _shape_for(self, budget: Budget) -> Shape:
        depth = min(budget.depth, len(self._network))
        if budget.nodes <= budget.depth:
            return Shape.chain(min(budget.nodes, depth))
        if self._shape is not None:
            return self._shape.pruned(budget.nodes, depth)
        return best_shape(self._accuracy, budget.nodes, depth, max_width=self._width)


def load_medusa(spec: str, context: DrafterContext) -> Medusa:
    """Load heads from a directory, or those shipped for the target.

    Raises:
        InvalidInput, ModelError, VocabularyMismatch, Unsupported: see
            :func:`slipstream.drafters.learned.load_learned`.
    """
    learned = load_learned(spec, "medusa", context)
    accuracy = learned.checkpoint.config.rank_accuracy
    return Medusa(MedusaNetwork(*learned), accuracy, width=context.tree_width)
