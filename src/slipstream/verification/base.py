"""What a verification rule is: probabilities and random numbers in, a verdict out.

A rule knows no model, no cache and no tokenizer. ``probs`` is indexed lazily, row by row, because
most rules never look past the first rejection: row 0 is the target's processed distribution after
the root, row i + 1 the one after node i, each float32 of shape (V,) and processed with that row's
own prefix. An *exact* rule leaves the emitted tokens distributed as if the target had sampled each
of them alone, for every draft whose receipts it accepts.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from slipstream.sampling.noise import CycleNoise
from slipstream.types import Array, Draft, DrawMethod, Receipt, Verdict


class TargetRows(Protocol):
    """The target's processed distributions by row; a plain (R, V) array will do."""

    def __getitem__(self, row: int, /) -> Array: ...


class VerificationRule(Protocol):
    """A way of judging a draft.

    Attributes:
        name: the registered name.
        exact: whether the output distribution is the target's own.
        draw: how this rule wants children drawn.
        receipts: receipt types that it can judge.
        trees: whether it judges nodes with several children.
    """

    name: ClassVar[str]
    exact: ClassVar[bool]
    draw: ClassVar[DrawMethod]
    receipts: ClassVar[frozenset[type[Receipt]]]
    trees: ClassVar[bool]

    def verify(self, draft: Draft, probs: TargetRows, noise: CycleNoise) -> Verdict:
        """Judge a draft.

        Args:
            draft: tree and receipts, all of types in ``receipts``.
            probs: R rows of processed distributions.
            noise: this request's random numbers for this cycle.

        Raises:
            InvalidInput: a receipt or tree that this rule can't judge.
        """
        ...
