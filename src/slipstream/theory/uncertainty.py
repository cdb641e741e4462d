"""How sure a prediction is: intervals, the range of the best k, and what it is sensitive to.

The speedup of :mod:`slipstream.theory.speedup` rises with alpha and falls with the drafter's cost,
so an interval of both gives an interval of the speedup by its corners, without any sampling. Knows
no data: intervals come from whoever measured.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

from slipstream.errors import InvalidInput
from slipstream.theory.speedup import best_k, expected_tokens, speedup

Interval: TypeAlias = tuple[float, float]


class Sensitivity(NamedTuple):
    """Relative change of the speedup, d log S, for a small change of one input.

    Args:
        per_alpha: for each unit of alpha.
        per_c: for each unit of c.
    """

    per_alpha: float
    per_c: float


def speedup_interval(alpha: Interval, k: int, c: Interval) -> Interval:
    """The speedups that an interval of alpha and one of c allow.

    Raises:
        InvalidInput: an interval that is upside down, or as :func:`speedup`.
    """
    _check("alpha", alpha)
    _check("c", c)
    return speedup(alpha[0], k, c[1]), speedup(alpha[1], k, c[0])


def best_k_interval(alpha: Interval, c: Interval, max_k: int = 64) -> tuple[int, int]:
    """The smallest and the largest k that may be best; both 0 if nothing can pay.

    The best k rises with alpha and falls with c.

    Raises:
        InvalidInput: an interval that is upside down, or as :func:`best_k`.
    """
    _check("alpha", alpha)
    _check("c", c)
    return best_k(alpha[0], c[1], max_k).k, best_k(alpha[1], c[0], max_k).k


def sensitivity(alpha: float, k: int, c: float) -> Sensitivity:
    """Derivatives of log S = log E(alpha, k) - log(1 + k c).

    Raises:
        InvalidInput: as :func:`speedup`.
    """
    tokens = expected_tokens(alpha, k)
    speedup(alpha, k, c)  # refuses what makes no sense
    slope = math.fsum(i * alpha ** (i - 1) for i in range(1, k + 1))
    return Sensitivity(slope / tokens, -k / (1 + k * c))


def _check(name: str, interval: Interval) -> None:
    low, high = interval
    if not low <= high:
        raise InvalidInput(f"{name} must be an interval (low, high), not {interval!r}")
