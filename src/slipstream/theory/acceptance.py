"""How often one drafted token survives: alpha, and its relatives for other rules and drafts.

alpha = sum over v of min(p, q) = 1 - D_TV(p, q) (Leviathan et al. 2211.17192, cor. 3.6) is what the
rejection rule accepts, and no rule without side information about the draw can do better on one
token. The coupled rule pays a little for its shared noise (Daliri et al. 2408.07978); siblings win
some back (Sequoia, 2402.12374). Knows no model: distributions in, probabilities out, in float64.
Shape letter: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidInput

FloatArray = npt.NDArray[np.float64]

_SUM_TOLERANCE = 1e-4
"""float32 probabilities over a large vocabulary add up to 1 within this."""


def alpha(p: npt.ArrayLike, q: npt.ArrayLike) -> float:
    """Probability that the rejection rule accepts a token drawn from q: sum of min(p, q).

    Args:
        p, q: (V,) the target's and the drafter's processed distributions.

    Raises:
        InvalidInput: not two distributions over one vocabulary.
    """
    p_V, q_V = _pair(p, q)
    return float(np.minimum(p_V, q_V).sum())


def total_variation(p: npt.ArrayLike, q: npt.ArrayLike) -> float:
    """D_TV = half the sum of |p - q|, in [0, 1]; equal to 1 - alpha."""
    p_V, q_V = _pair(p, q)
    return float(np.abs(p_V - q_V).sum() / 2)


def coupled_acceptance(p: npt.ArrayLike, q: npt.ArrayLike) -> float:
    """Probability that argmax(log p + G) = argmax(log q + G) for one Gumbel noise vector G.

    The sum over t of 1 / (sum over s of max(p_s / p_t, q_s / q_t)), which lies between
    :func:`coupled_lower_bound` and :func:`alpha` (2408.07978). Evaluated in O(V log V): in order of
    p/q the maximum is the first ratio from t on and the second before t, so two running sums do.

    Raises:
        InvalidInput: not two distributions over one vocabulary.
    """
    p_V, q_V = _pair(p, q)
    shared = (p_V > 0) | (q_V > 0)
    p_V, q_V = p_V[shared], q_V[shared]
    with np.errstate(divide="ignore"):
        order = np.argsort(p_V / q_V, kind="stable")
    p_V, q_V = p_V[order], q_V[order]
    p_from_t = np.cumsum(p_V[::-1])[::-1]
    q_before_t = np.cumsum(q_V) - q_V
    denominator = q_V * p_from_t + p_V * q_before_t
    both = (p_V > 0) & (q_V > 0)
    return float((p_V[both] * q_V[both] / denominator[both]).sum())


def coupled_lower_bound(p: npt.ArrayLike, q: npt.ArrayLike) -> float:
    """(1 - D_TV) / (1 + D_TV): the coupled rule never accepts less often (2408.07978)."""
    distance = total_variation(p, q)
    return (1 - distance) / (1 + distance)


def point_mass_acceptance(p: npt.ArrayLike, tokens: Iterable[int]) -> float:
    """Probability that one of the tokens, chosen without randomness, is accepted: p(tokens).

    The law of lookup drafts, greedy drafts and deterministic top-k children under every exact rule.

    Raises:
        InvalidInput: p is no distribution, or a token lies outside its vocabulary.
    """
    p_V = _distribution("p", p)
    chosen = sorted(set(tokens))
    if chosen and not 0 <= chosen[0] <= chosen[-1] < len(p_V):
        raise InvalidInput(f"tokens must lie in [0, {len(p_V)}), not {chosen}")
    return float(p_V[chosen].sum())


def recursive_acceptance(p: npt.ArrayLike, q: npt.ArrayLike, children: int) -> float:
    """Probability that recursive rejection accepts one of several children (2402.12374).

    Children are drawn from q without replacement; after each rejection p becomes norm[p - q]+ and
    the child leaves q. Exact, by summing over everything that can be drawn: V^(children - 1) terms,
    so for small vocabularies and few children.

    Raises:
        InvalidInput: not two distributions over one vocabulary, or children < 1.
    """
    p_V, q_V = _pair(p, q)
    if children < 1:
        raise InvalidInput(f"children must be at least 1, not {children}")
    return _recursive(p_V, q_V, children)


def _recursive(p_V: FloatArray, q_V: FloatArray, children: int) -> float:
    accepted = float(np.minimum(p_V, q_V).sum())
    residual = np.maximum(p_V - q_V, 0)
    rejected = np.maximum(q_V - p_V, 0)
    if children == 1 or residual.sum() == 0:
        return accepted
    residual /= residual.sum()
    for token in np.flatnonzero(rejected):
        rest = q_V.copy()
        rest[token] = 0
        if rest.sum() > 0:  # otherwise q has nothing left to draw
            later = _recursive(residual, rest / rest.sum(), children - 1)
            accepted += float(rejected[token]) * later
    return accepted


def _distribution(name: str, values: npt.ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput(f"{name} must be a vector over the vocabulary, not of {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InvalidInput(f"{name} must hold finite probabilities >= 0")
    if abs(array.sum() - 1) > _SUM_TOLERANCE:
        raise InvalidInput(f"{name} must add up to 1, not {array.sum():.6g}")
    return array


def _pair(p: npt.ArrayLike, q: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    p_V, q_V = _distribution("p", p), _distribution("q", q)
    if p_V.shape != q_V.shape:
        raise InvalidInput(f"p and q need one vocabulary, not {len(p_V)} and {len(q_V)} tokens")
    return p_V, q_V
