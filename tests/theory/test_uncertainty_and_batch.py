"""Intervals by their corners, sensitivities by differences, and the batch that is too large."""

from __future__ import annotations

import math

import pytest

from slipstream.errors import InvalidInput
from slipstream.theory.batch import best_k_of_batch, break_even_batch
from slipstream.theory.speedup import best_k, speedup
from slipstream.theory.uncertainty import best_k_interval, sensitivity, speedup_interval


def roofline(rows: int) -> float:
    """A machine on which 32 rows are as dear as one, and each further one adds its share."""
    return max(1.0, rows / 32)


def test_an_interval_holds_every_speedup_of_its_corners() -> None:
    low, high = speedup_interval((0.6, 0.8), 4, (0.05, 0.15))
    for alpha in (0.6, 0.7, 0.8):
        for c in (0.05, 0.1, 0.15):
            assert low <= speedup(alpha, 4, c) <= high
    assert best_k_interval((0.6, 0.8), (0.1, 0.1)) == (3, 6)  # the checked values of speedup
    assert best_k_interval((0.05, 0.06), (0.5, 0.9)) == (0, 0)
    with pytest.raises(InvalidInput, match="alpha must be an interval"):
        speedup_interval((0.8, 0.6), 4, (0.1, 0.1))


@pytest.mark.parametrize(("alpha", "k", "c"), [(0.75, 4, 0.1), (0.0, 3, 0.2), (0.95, 12, 0.02)])
def test_sensitivities_are_the_derivatives(alpha: float, k: int, c: float) -> None:
    step = 1e-6
    got = sensitivity(alpha, k, c)
    base = math.log(speedup(alpha, k, c))
    assert got.per_alpha == pytest.approx(
        (math.log(speedup(alpha + step, k, c)) - base) / step, abs=1e-3
    )
    assert got.per_c == pytest.approx(
        (math.log(speedup(alpha, k, c + step)) - base) / step, abs=1e-3
    )


def test_a_batch_of_one_is_the_single_request() -> None:
    found = best_k_of_batch(0.75, 1, pass_time=lambda rows: 1.0, draft_time=0.1)
    assert found == best_k(0.75, 0.1, 16)


def test_speculation_stops_paying_where_the_batch_fills_the_machine() -> None:
    batches = [
        best_k_of_batch(0.7, batch, pass_time=roofline, draft_time=0.05).k for batch in (1, 8, 16)
    ]
    assert batches == sorted(batches, reverse=True) and batches[0] > batches[-1]
    limit = break_even_batch(0.7, pass_time=roofline, draft_time=0.05)
    assert limit is not None and 16 < limit <= 33
    assert break_even_batch(0.7, pass_time=lambda rows: 1.0, max_batch=64) is None
    assert break_even_batch(0.2, pass_time=lambda rows: float(rows)) == 1
    with pytest.raises(InvalidInput, match="at least one request"):
        best_k_of_batch(0.5, 0, pass_time=roofline)
