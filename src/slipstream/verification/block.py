"""Block verification (Sun et al. 2403.10444, algorithm 2): judge the drafted block as a whole.

P_i = min(1, P_{i-1} p_i(x_i) / q_i(x_i)) is how much of prefix i the target can afford; prefix i
is kept with probability h_i, and the longest kept prefix wins, even if a shorter one was refused.
Never keeps fewer tokens than :mod:`rejection <slipstream.verification.rejection>` in expectation,
and sometimes more. Its verdict on a prefix looks at the tokens drafted after it. Knows no trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from slipstream.sampling.noise import CycleNoise
from slipstream.types import Array, Draft, DrawMethod, PointMass, Receipt, Sampled, Verdict
from slipstream.verification.base import TargetRows
from slipstream.verification.check import check
from slipstream.verification.emit import emit
from slipstream.verification.proposal import alpha, drafted_probability, excess


@dataclass(frozen=True)
class Block:
    """Exact on chains; the optimal rule among those that judge one drafted path."""

    name: ClassVar[str] = "block"
    exact: ClassVar[bool] = True
    draw: ClassVar[DrawMethod] = "sampled"
    receipts: ClassVar[frozenset[type[Receipt]]] = frozenset({Sampled, PointMass})
    trees: ClassVar[bool] = False

    def verify(self, draft: Draft, probs: TargetRows, noise: CycleNoise) -> Verdict:
        """See :meth:`slipstream.verification.base.VerificationRule.verify`."""
        check(self, draft)
        tokens, receipts = draft.tree.tokens, draft.receipts
        depth = len(draft)

        afford = 1.0  # P_i of the prefix at hand
        kept, kept_afford = 0, 1.0
        for node in range(depth):
            receipt = receipts[node]
            assert receipt is not None
            drafted = drafted_probability(receipt, tokens[node])
            afford = min(1.0, afford * float(probs[node][tokens[node]]) / drafted)
            if afford == 0.0:  # and so for all longer prefixes
                break
            if noise.accept(node + 1) < self._keep(draft, probs, node, afford):
                kept, kept_afford = node + 1, afford

        alphas = tuple(
            alpha(probs[node], receipt, (tokens[node],))
            for node, receipt in enumerate(receipts[: kept + 1])
            if receipt is not None
        )
        path = tuple(range(kept))
        if kept == depth:
            token = emit(probs[kept], probs[kept], noise.pick(kept))
            return Verdict(path, token, "bonus", alphas)
        residual_V = self._residual(draft, probs, kept, kept_afford)
        token = emit(residual_V, probs[kept], noise.pick(kept))
        return Verdict(path, token, "residual", alphas)

    def _keep(self, draft: Draft, probs: TargetRows, node: int, afford: float) -> float:
        """h_i of the prefix that ends with ``node``: S_i / (S_i + 1 - P_i), at the end P_k."""
        length = node + 1
        if length == len(draft):
            return afford
        residual_V = self._residual(draft, probs, length, afford)
        surplus = float(array_namespace(residual_V).sum(residual_V))
        missing = 1.0 - afford
        return surplus / (surplus + missing) if surplus + missing > 0.0 else 1.0

    def _residual(self, draft: Draft, probs: TargetRows, length: int, afford: float) -> Array:
        """[P_i p_{i+1} - q_{i+1}]+ after a prefix of ``length`` drafted tokens."""
        receipt = draft.receipts[length]
        assert receipt is not None
        return excess(probs[length], receipt, draft.tree.tokens[length], afford)
