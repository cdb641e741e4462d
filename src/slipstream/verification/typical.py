"""LOSSY. Typical acceptance (Medusa, 2401.10774, section 3.3.1): keep what is not implausible.

A drafted x is kept if p(x) > min(epsilon, delta * exp(-H(p))), H the entropy of p in nats, or if
it is the target's best token right after the root. Of a tree the deepest path that is kept
throughout wins, ties to the first drafted. Right at temperature 0; above it the text is not
distributed like the target's: likely tokens come up too often, others never.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from slipstream.errors import InvalidInput
from slipstream.sampling.noise import CycleNoise
from slipstream.types import (
    ANY_RECEIPT,
    ROOT,
    Array,
    Draft,
    DrawMethod,
    Origin,
    Receipt,
    Verdict,
)
from slipstream.verification.base import TargetRows
from slipstream.verification.check import check
from slipstream.verification.emit import emit
from slipstream.verification.proposal import alpha


@dataclass(frozen=True)
class Typical:
    """LOSSY above temperature 0; judges any draft.

    Args:
        epsilon: probability that always suffices, in (0, 1].
        delta: what suffices relative to exp(-entropy), in (0, 1].

    Raises:
        InvalidInput: a value outside its range.
    """

    epsilon: float = 0.09
    delta: float = 0.3

    name: ClassVar[str] = "typical"
    exact: ClassVar[bool] = False
    draw: ClassVar[DrawMethod] = "greedy"
    receipts: ClassVar[frozenset[type[Receipt]]] = ANY_RECEIPT
    trees: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if not 0.0 < value <= 1.0:
                raise InvalidInput(f"{name} must be a number in (0, 1], not {value!r}")

    def verify(self, draft: Draft, probs: TargetRows, noise: CycleNoise) -> Verdict:
        """See :meth:`slipstream.verification.base.VerificationRule.verify`."""
        check(self, draft)
        tree = draft.tree
        kept, threshold = {ROOT}, {}
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
            if parent not in kept:
                continue
            probs_V = probs[parent + 1]
            if parent not in threshold:
                threshold[parent] = self._threshold(probs_V)
            best = parent == ROOT and token == int(array_namespace(probs_V).argmax(probs_V))
            if best or float(probs_V[token]) > threshold[parent]:
                kept.add(node)
        depths = tree.depths
        deepest = max(sorted(kept), key=lambda node: 0 if node == ROOT else depths[node])

        path = tree.path(deepest)
        alphas = tuple(
            alpha(probs[node + 1], receipt, tuple(tree.tokens[i] for i in tree.children(node)))
            for node in (ROOT, *path)
            if (receipt := draft.receipt(node)) is not None
        )
        probs_V = probs[deepest + 1]
        token = emit(probs_V, probs_V, noise.pick(len(path)))
        origin: Origin = "bonus" if draft.receipt(deepest) is None else "residual"
        return Verdict(path, token, origin, alphas)

    def _threshold(self, probs_V: Array) -> float:
        xp = array_namespace(probs_V)
        positive = xp.where(probs_V > 0, probs_V, 1.0)
        entropy = -float(xp.sum(positive * xp.log(positive), dtype=xp.float64))
        return min(self.epsilon, self.delta * math.exp(-entropy))
