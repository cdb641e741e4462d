"""Speculative sampling (Leviathan et al. 2211.17192, algorithm 1; Chen et al. 2302.01318).

Walk from left to right and keep a drafted x with probability min(1, p(x) / q(x)). The first x that
falls is replaced by a sample of the residual [p - q]+; if none falls, a bonus comes from p. A
token is emitted with probability min(p, q) + [p - q]+ = p. Knows no trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slipstream.sampling.noise import CycleNoise
from slipstream.types import Draft, DrawMethod, PointMass, Receipt, Sampled, Verdict
from slipstream.verification.base import TargetRows
from slipstream.verification.check import check
from slipstream.verification.emit import emit
from slipstream.verification.proposal import alpha, drafted_probability, excess


@dataclass(frozen=True)
class Rejection:
    """Exact on chains; each token judged on its own."""

    name: ClassVar[str] = "rejection"
    exact: ClassVar[bool] = True
    draw: ClassVar[DrawMethod] = "sampled"
    receipts: ClassVar[frozenset[type[Receipt]]] = frozenset({Sampled, PointMass})
    trees: ClassVar[bool] = False

    def verify(self, draft: Draft, probs: TargetRows, noise: CycleNoise) -> Verdict:
        """See :meth:`slipstream.verification.base.VerificationRule.verify`."""
        check(self, draft)
        alphas: list[float] = []
        for node, token in enumerate(draft.tree.tokens):
            probs_V, receipt = probs[node], draft.receipts[node]
            assert receipt is not None
            alphas.append(alpha(probs_V, receipt, (token,)))
            # No division: p(x) = 0 is never accepted, and q(x) may be as small as it likes.
            drafted = drafted_probability(receipt, token)
            if not noise.accept(node + 1) * drafted < float(probs_V[token]):
                residual_V = excess(probs_V, receipt, token)
                token = emit(residual_V, probs_V, noise.pick(node))
                return Verdict(tuple(range(node)), token, "residual", tuple(alphas))
        depth = len(draft)
        token = emit(probs[depth], probs[depth], noise.pick(depth))
        return Verdict(tuple(range(depth)), token, "bonus", tuple(alphas))
