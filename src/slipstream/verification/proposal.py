"""What a receipt says about q, the distribution that a drafted token came from.

A point mass is the one-hot q of a token chosen without randomness. It is never written out as a
vector: [p - q]+ is then p with that token removed. V vocabulary.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from slipstream.errors import InvalidInput, VocabularyMismatch
from slipstream.sampling import comparison
from slipstream.sampling.rows import ProcessedRows
from slipstream.types import Array, PointMass, Receipt, TopThenSampled
from slipstream.verification.base import TargetRows


def drafted_probability(receipt: Receipt, token: int) -> float:
    """q(token), which is positive because the token was drawn from q.

    Raises:
        InvalidInput: q(token) = 0; the receipt is not the distribution that was sampled from.
    """
    if isinstance(receipt, PointMass):
        return 1.0
    probability = float(receipt.probs[token])
    if not probability > 0.0:
        raise InvalidInput(
            f"the receipt gives drafted token {token} probability {probability}:"
            " it is not the distribution that the token was drawn from"
        )
    return probability


def excess(probs_V: Array, receipt: Receipt, token: int, scale: float = 1.0) -> Array:
    """[scale * p - q]+, (V,) float64, not normalised: where the target outweighs the drafter.

    Args:
        probs_V: p.
        receipt: says what q is.
        token: the drafted token, all of q if the receipt is a point mass.
        scale: factor of p, at most 1.
    """
    if isinstance(receipt, PointMass):
        xp = array_namespace(probs_V)
        rest_V = scale * xp.astype(probs_V, xp.float64)
        rest_V[token] = max(float(rest_V[token]) - 1.0, 0.0)
        return rest_V
    return comparison.excess(probs_V, receipt.probs, scale)


def alpha(probs_V: Array, receipt: Receipt, children: tuple[int, ...]) -> float:
    """Sum over v of min(p, q): how much of the target's mass the drafter covers, 1 - D_TV.

    Children chosen without randomness cover p(children); beside them, a sampled one covers
    min(p, q), its q being zero on them. See :class:`slipstream.types.Verdict`.

    Raises:
        VocabularyMismatch: p and q are of different sizes.
    """
    if isinstance(receipt, PointMass):
        return min(1.0, sum(float(probs_V[token]) for token in children))
    if receipt.probs.shape != probs_V.shape:
        raise VocabularyMismatch(
            f"a receipt over {receipt.probs.shape[0]} tokens can't be judged by a target of"
            f" {probs_V.shape[0]}"
        )
    covered = comparison.overlap(probs_V, receipt.probs)
    if isinstance(receipt, TopThenSampled):
        covered += sum(float(probs_V[token]) for token in children[:-1])
    return min(1.0, covered)


def alpha_after(probs: TargetRows, row: int, receipt: Receipt, children: tuple[int, ...]) -> float:
    """:func:`alpha` of a row, whose distribution is only written out where that takes it."""
    if isinstance(receipt, PointMass) and isinstance(probs, ProcessedRows):
        return min(1.0, probs.mass(row, children))
    return alpha(probs[row], receipt, children)
