"""Recursive rejection without replacement (Sequoia, 2402.12374, algorithm 2): rejection on trees.

The children of a node are judged in the order in which they were drawn. Each refusal leaves a
smaller problem of the same kind: the target becomes the residual, norm [p - q]+, and the next child
was drawn from q without those before it. So each step is a rejection that is exact for what is
left, and on chains this is :mod:`rejection <slipstream.verification.rejection>` itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from slipstream.sampling.noise import CycleNoise
from slipstream.types import (
    ROOT,
    Array,
    Draft,
    DrawMethod,
    PointMass,
    Receipt,
    Sampled,
    Verdict,
)
from slipstream.verification.base import TargetRows
from slipstream.verification.check import check
from slipstream.verification.emit import emit
from slipstream.verification.proposal import alpha, drafted_probability, excess


@dataclass(frozen=True)
class Recursive:
    """Exact on chains and trees whose siblings were drawn without replacement, or chosen."""

    name: ClassVar[str] = "recursive"
    exact: ClassVar[bool] = True
    draw: ClassVar[DrawMethod] = "sampled"
    receipts: ClassVar[frozenset[type[Receipt]]] = frozenset({Sampled, PointMass})
    trees: ClassVar[bool] = True

    def verify(self, draft: Draft, probs: TargetRows, noise: CycleNoise) -> Verdict:
        """See :meth:`slipstream.verification.base.VerificationRule.verify`."""
        check(self, draft)
        tokens = draft.tree.tokens
        path: list[int] = []
        alphas: list[float] = []
        node = ROOT
        while (receipt := draft.receipt(node)) is not None:
            left_V = probs[node + 1]
            children = draft.tree.children(node)
            alphas.append(alpha(left_V, receipt, tuple(tokens[child] for child in children)))
            for child in children:
                token = tokens[child]
                drafted = drafted_probability(receipt, token)
                if noise.accept(child + 1) * drafted < float(left_V[token]):
                    break
                left_V = _normalized(excess(left_V, receipt, token), otherwise=left_V)
                receipt = _without(receipt, token)
            else:
                token = emit(left_V, left_V, noise.pick(len(path)))
                return Verdict(tuple(path), token, "residual", tuple(alphas))
            node = child
            path.append(node)
        token = emit(probs[node + 1], probs[node + 1], noise.pick(len(path)))
        return Verdict(tuple(path), token, "bonus", tuple(alphas))


def _without(receipt: Receipt, token: int) -> Receipt:
    """What the next sibling was drawn from. Point masses say nothing of each other."""
    if isinstance(receipt, PointMass):
        return receipt
    xp = array_namespace(receipt.probs)
    rest_V = xp.astype(receipt.probs, xp.float64, copy=True)
    rest_V[token] = 0.0
    return Sampled(_normalized(rest_V, otherwise=rest_V))


def _normalized(weights_V: Array, *, otherwise: Array) -> Array:
    mass = float(array_namespace(weights_V).sum(weights_V))
    return weights_V / mass if mass > 0.0 else otherwise
