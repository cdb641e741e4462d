"""Chosen siblings and one sampled (2502.18779): the sample may fall back on its siblings.

The children of a node are a set T chosen without randomness and, last, one token i drawn from q',
the drafter's distribution off T. Judge i by rejection; if it falls, the residual [p - q']+ still
holds all of p on T, so its sample may land on a sibling, and then the walk goes on there. A node
is passed with probability p(T) + sum of min(p, q') off T. Without a sampled child the residual is
p itself: the rule of EAGLE-2's top-k trees, passed with probability p(T).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slipstream.sampling.noise import CycleNoise
from slipstream.types import (
    ROOT,
    Draft,
    DrawMethod,
    Origin,
    PointMass,
    Receipt,
    TopThenSampled,
    Verdict,
)
from slipstream.verification.base import TargetRows
from slipstream.verification.check import check
from slipstream.verification.emit import emit
from slipstream.verification.proposal import alpha, drafted_probability, excess


@dataclass(frozen=True)
class GreedySiblings:
    """Exact on chains and trees whose siblings were chosen, but for the last."""

    name: ClassVar[str] = "greedy_siblings"
    exact: ClassVar[bool] = True
    draw: ClassVar[DrawMethod] = "top-then-sampled"
    receipts: ClassVar[frozenset[type[Receipt]]] = frozenset({TopThenSampled, PointMass})
    trees: ClassVar[bool] = True

    def verify(self, draft: Draft, probs: TargetRows, noise: CycleNoise) -> Verdict:
        """See :meth:`slipstream.verification.base.VerificationRule.verify`."""
        check(self, draft)
        path: list[int] = []
        alphas: list[float] = []
        node = ROOT
        while True:
            probs_V = weights_V = probs[node + 1]
            receipt = draft.receipt(node)
            children = {draft.tree.tokens[child]: child for child in draft.tree.children(node)}
            if receipt is not None:
                alphas.append(alpha(probs_V, receipt, tuple(children)))
            if isinstance(receipt, TopThenSampled):
                sampled, child = next(reversed(children.items()))
                drafted = drafted_probability(receipt, sampled)
                if noise.accept(child + 1) * drafted < float(probs_V[sampled]):
                    node = child
                    path.append(node)
                    continue
                weights_V = excess(probs_V, receipt, sampled)
                del children[sampled]
            token = emit(weights_V, probs_V, noise.pick(len(path)))
            if token not in children:
                origin: Origin = "bonus" if receipt is None else "residual"
                return Verdict(tuple(path), token, origin, tuple(alphas))
            node = children[token]
            path.append(node)
