"""LOSSY. The naive verifier: keep a drafted token if it is the target's most likely one.

Right at temperature 0. Above it drafted text is likelier than the target would make it, the more
so the better the drafter. Kept as the negative control of every exactness test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from slipstream.sampling.noise import CycleNoise
from slipstream.types import (
    ANY_RECEIPT,
    ROOT,
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
class ArgmaxMatch:
    """LOSSY above temperature 0; judges any draft."""

    name: ClassVar[str] = "argmax_match"
    exact: ClassVar[bool] = False
    draw: ClassVar[DrawMethod] = "greedy"
    receipts: ClassVar[frozenset[type[Receipt]]] = ANY_RECEIPT
    trees: ClassVar[bool] = True

    def verify(self, draft: Draft, probs: TargetRows, noise: CycleNoise) -> Verdict:
        """See :meth:`slipstream.verification.base.VerificationRule.verify`."""
        check(self, draft)
        path: list[int] = []
        alphas: list[float] = []
        node = ROOT
        while (receipt := draft.receipt(node)) is not None:
            probs_V = probs[node + 1]
            children = {draft.tree.tokens[child]: child for child in draft.tree.children(node)}
            alphas.append(alpha(probs_V, receipt, tuple(children)))
            best = int(array_namespace(probs_V).argmax(probs_V))
            if best not in children:
                break
            node = children[best]
            path.append(node)
        probs_V = probs[node + 1]
        origin: Origin = "bonus" if receipt is None else "residual"
        return Verdict(
            tuple(path), emit(probs_V, probs_V, noise.pick(len(path))), origin, tuple(alphas)
        )
