"""How a target's distribution p and a drafter's q compare: what they share, and where p has more.

The two sums that every verification rule is made of: 1 - D_TV = sum of min(p, q), and [p - q]+
(Leviathan et al. 2211.17192, section 3). Knows no receipts and no rules. V vocabulary.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from slipstream.kernels import sampling as compiled
from slipstream.types import Array


def overlap(p_V: Array, q_V: Array) -> float:
    """Sum over v of min(p, q), of two arrays (V,)."""
    if compiled.fits(p_V) and compiled.fits(q_V):
        return compiled.overlap(p_V, q_V)
    xp = array_namespace(p_V)
    return float(xp.sum(xp.minimum(p_V, q_V)))


def excess(p_V: Array, q_V: Array, scale: float = 1.0) -> Array:
    """[scale * p - q]+ of two arrays (V,), float64, not normalised."""
    if compiled.fits(p_V) and compiled.fits(q_V):
        return compiled.excess(p_V, q_V, scale)
    xp = array_namespace(p_V)
    difference_V = scale * xp.astype(p_V, xp.float64) - xp.astype(q_V, xp.float64)
    return xp.clip(difference_V, 0.0, None)
