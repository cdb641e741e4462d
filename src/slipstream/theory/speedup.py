"""What acceptance buys after its price: expected tokens per cycle, speedup, best k, break-even.

E[tokens] = (1 - alpha^(k+1)) / (1 - alpha) and S = E / (1 + k c) (Leviathan et al. 2211.17192,
eq. 1 and theorem 3.8), and the same with a measured cost of the verification pass, which is what
real hardware charges for k + 1 rows. Knows neither models nor clocks: alphas and costs come from
whoever measured them. Stdlib only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from slipstream.errors import InvalidInput

PassTime: TypeAlias = Callable[[int], float]
"""Time of one target pass by its number of rows, in any unit, as long as it is one unit."""


class Prediction(NamedTuple):
    """What drafting k tokens per cycle brings.

    Args:
        k: drafted depth; 0 is plain decoding.
        tokens: expected tokens per cycle, the one more included.
        speedup: over plain decoding.
    """

    k: int
    tokens: float
    speedup: float


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens per cycle if every drafted token is accepted independently with probability alpha.

    1 at alpha = 0 and k + 1 at alpha = 1; the k + 1st is the residual or bonus token.

    Raises:
        InvalidInput: alpha outside [0, 1] or k < 0.
    """
    _check_alpha(alpha)
    _check_k(k)
    # Horner's form of 1 + alpha + ... + alpha^k: the quotient loses all digits near alpha = 1.
    tokens = 1.0
    for _ in range(k):
        tokens = 1 + alpha * tokens
    return tokens


def expected_tokens_by_position(alphas: Sequence[float]) -> float:
    """Tokens per cycle when position i is accepted with its own alpha once reached.

    1 + the sum over i of the product over j <= i of alpha_j; k is the number of alphas.

    Raises:
        InvalidInput: an alpha outside [0, 1].
    """
    tokens = 1.0
    for alpha in reversed(alphas):
        _check_alpha(alpha)
        tokens = 1 + alpha * tokens
    return tokens


def speedup(alpha: float, k: int, c: float) -> float:
    """Speedup over plain decoding if k + 1 rows cost the target what one row costs.

    Args:
        alpha: acceptance probability of a drafted token.
        k: drafted depth.
        c: time of one drafter step over the time of one target pass.

    Raises:
        InvalidInput: alpha outside [0, 1], k < 0, c negative or not finite.
    """
    _check_cost("c", c)
    return expected_tokens(alpha, k) / (1 + k * c)


def measured_speedup(
    tokens: float,
    k: int,
    *,
    pass_time: PassTime,
    draft_time: float,
    overhead: float = 0.0,
) -> float:
    """Speedup over plain decoding with the verification pass at its measured price.

    E C(1) / (k t_draft + C(k + 1) + overhead), all times in the unit of ``pass_time``.

    Args:
        tokens: expected tokens per cycle, from either formula or measured.
        k: drafted depth.
        pass_time: C(rows).
        draft_time: one drafter step.
        overhead: whatever else a cycle costs and plain decoding doesn't.

    Raises:
        InvalidInput: tokens outside [1, k + 1], or a time that is negative or not finite.
    """
    _check_k(k)
    if not 1 <= tokens <= k + 1:
        raise InvalidInput(f"tokens per cycle must lie in [1, k + 1 = {k + 1}], not {tokens!r}")
    _check_cost("draft_time", draft_time)
    _check_cost("overhead", overhead)
    plain, verify = checked_pass_time(pass_time, 1), checked_pass_time(pass_time, k + 1)
    return tokens * plain / (k * draft_time + verify + overhead)


def curve(alpha: float, c: float, max_k: int) -> list[Prediction]:
    """Predictions for k = 0 .. max_k at one alpha and one cost.

    Raises:
        InvalidInput: as :func:`speedup`.
    """
    _check_k(max_k)
    return [
        Prediction(k, expected_tokens(alpha, k), speedup(alpha, k, c)) for k in range(max_k + 1)
    ]


def best_k(alpha: float, c: float, max_k: int = 64) -> Prediction:
    """The k in [0, max_k] of the largest speedup; the smallest such k, 0 if nothing pays.

    Raises:
        InvalidInput: as :func:`speedup`.
    """
    return max(curve(alpha, c, max_k), key=lambda prediction: prediction.speedup)


def break_even_alpha(c: float, k: int) -> float | None:
    """The alpha at which drafting k tokens neither wins nor loses; None if not even 1 suffices.

    Solves E(alpha, k) = 1 + k c, which at k = 1 is alpha = c; no alpha will do if c > 1.

    Raises:
        InvalidInput: k < 1, c negative or not finite.
    """
    _check_cost("c", c)
    if k < 1:
        raise InvalidInput(f"k must be at least 1 to break even, not {k}")
    if c > 1:
        return None
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):  # E grows with alpha: bisect to the bit
        if expected_tokens(middle, k) < 1 + k * c:
            low = middle
        else:
            high = middle
    return high if c > 0 else 0.0


def break_even_c(alpha: float, k: int) -> float:
    """The most a drafter step may cost, as a share of a target pass: (E - 1) / k.

    Raises:
        InvalidInput: alpha outside [0, 1] or k < 1.
    """
    if k < 1:
        raise InvalidInput(f"k must be at least 1 to break even, not {k}")
    return (expected_tokens(alpha, k) - 1) / k


def checked_pass_time(pass_time: PassTime, rows: int) -> float:
    """C(rows), refused unless positive and finite.

    Raises:
        InvalidInput: it isn't.
    """
    time = pass_time(rows)
    if not (math.isfinite(time) and time > 0):
        raise InvalidInput(f"the time of a pass of {rows} rows must be positive, not {time!r}")
    return time


def _check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise InvalidInput(f"alpha must lie in [0, 1], not {alpha!r}")


def _check_k(k: int) -> None:
    if k < 0:
        raise InvalidInput(f"k must be a whole number >= 0, not {k!r}")


def _check_cost(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput(f"{name} must be finite and >= 0, not {value!r}")
