"""Gumbel coupling (Daliri et al. 2408.07978; lists: Rowan et al. 2506.05632).

Run the plain sampler on the target's rows, with the noise that belongs to each position, and go on
while its pick is a drafted child. What is emitted *is* the plain sampler's text: the rule is exact
for any drafter, receipt and tree, and the same seed gives the same tokens with and without
speculation. A drafter that samples with the same noise (:class:`~slipstream.types.Gumbel`) makes
the picks agree with probability sum over t of 1 / sum over s of max(p_s / p_t, q_s / q_t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slipstream.sampling.noise import CycleNoise
from slipstream.types import (
    ANY_RECEIPT,
    ROOT,
    Draft,
    DrawMethod,
    Receipt,
    Verdict,
)
from slipstream.verification.base import TargetRows
from slipstream.verification.check import check
from slipstream.verification.emit import pick
from slipstream.verification.proposal import alpha_after


@dataclass(frozen=True)
class Coupled:
    """Exact on chains and trees, token for token the plain sampler."""

    name: ClassVar[str] = "coupled"
    exact: ClassVar[bool] = True
    draw: ClassVar[DrawMethod] = "gumbel"
    receipts: ClassVar[frozenset[type[Receipt]]] = ANY_RECEIPT
    trees: ClassVar[bool] = True

    def verify(self, draft: Draft, probs: TargetRows, noise: CycleNoise) -> Verdict:
        """See :meth:`slipstream.verification.base.VerificationRule.verify`."""
        check(self, draft)
        tree = draft.tree
        path: list[int] = []
        alphas: list[float] = []
        node = ROOT
        while True:
            token = pick(probs, node + 1, noise, len(path))
            receipt = draft.receipts[node + 1]
            if receipt is None:
                return Verdict(tuple(path), token, "bonus", tuple(alphas))
            children = {tree.tokens[child]: child for child in tree.children(node)}
            alphas.append(alpha_after(probs, node + 1, receipt, tuple(children)))
            if token not in children:
                return Verdict(tuple(path), token, "residual", tuple(alphas))
            node = children[token]
            path.append(node)
