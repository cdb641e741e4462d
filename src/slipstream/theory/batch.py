"""When a batch is large enough that drafts no longer pay.

A pass over B requests with k drafted tokens each has B (k + 1) rows, and every request gains
E(alpha, k) tokens from it. Rows are free while the machine waits for the weights; a large batch
uses that room itself, so the speedup falls with B. Knows no machine: the pass time is given.
"""

from __future__ import annotations

from slipstream.errors import InvalidInput
from slipstream.theory.speedup import (
    PassTime,
    Prediction,
    checked_pass_time,
    expected_tokens,
)


def best_k_of_batch(
    alpha: float, batch: int, *, pass_time: PassTime, draft_time: float = 0.0, max_k: int = 16
) -> Prediction:
    """The k of the largest throughput for a batch, 0 if nothing pays.

    Args:
        alpha: acceptance probability of a drafted token.
        batch: requests that share each pass.
        pass_time: time of a target pass by its rows, all requests together.
        draft_time: time of one drafter step for the whole batch.

    Raises:
        InvalidInput: batch < 1, alpha outside [0, 1], or a time that is no time.
    """
    if batch < 1:
        raise InvalidInput(f"a batch has at least one request, not {batch}")
    plain = checked_pass_time(pass_time, batch)
    best = Prediction(0, 1.0, 1.0)
    for k in range(1, max_k + 1):
        tokens = expected_tokens(alpha, k)
        cycle = k * draft_time + checked_pass_time(pass_time, batch * (k + 1))
        if tokens * plain / cycle > best.speedup * (1 + 1e-12):
            best = Prediction(k, tokens, tokens * plain / cycle)
    return best


def break_even_batch(
    alpha: float,
    *,
    pass_time: PassTime,
    draft_time: float = 0.0,
    max_batch: int = 256,
    max_k: int = 16,
) -> int | None:
    """The smallest batch at which no k pays; None if one still does at ``max_batch``.

    Raises:
        InvalidInput: as :func:`best_k_of_batch`.
    """
    for batch in range(1, max_batch + 1):
        found = best_k_of_batch(
            alpha, batch, pass_time=pass_time, draft_time=draft_time, max_k=max_k
        )
        if found.k == 0:
            return batch
    return None
