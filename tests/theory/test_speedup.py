"""Expected tokens, speedup, best k and break-even: the checked values, and the limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.errors import InvalidInput
from slipstream.theory.speedup import (
    best_k,
    break_even_alpha,
    break_even_c,
    curve,
    expected_tokens,
    expected_tokens_by_position,
    measured_speedup,
    speedup,
)


@pytest.mark.parametrize(
    ("alpha", "tokens", "gain"),
    [(0.75, 3.0508, 2.1791), (0.9, 4.0951, 2.9251), (0.5, 1.9375, 1.3839)],
)
def test_four_tokens_bring_the_checked_values(alpha: float, tokens: float, gain: float) -> None:
    assert expected_tokens(alpha, 4) == pytest.approx(tokens, abs=5e-5)
    assert speedup(alpha, 4, 0.1) == pytest.approx(gain, abs=5e-5)


@pytest.mark.parametrize(
    ("c", "alpha", "k", "gain"),
    [
        (0.1, 0.5, 2, 1.458),
        (0.1, 0.6, 3, 1.674),
        (0.1, 0.7, 4, 1.981),
        (0.1, 0.75, 5, 2.192),
        (0.1, 0.8, 6, 2.470),
        (0.1, 0.9, 10, 3.431),
        (0.05, 0.75, 7, 2.666),
        (0.05, 0.9, 13, 4.674),
        (0.2, 0.5, 1, 1.250),
        (0.2, 0.75, 3, 1.709),
    ],
)
def test_best_k_is_the_checked_one(c: float, alpha: float, k: int, gain: float) -> None:
    best = best_k(alpha, c)
    assert best.k == k
    assert best.speedup == pytest.approx(gain, abs=5e-4)


@pytest.mark.parametrize(
    ("gamma", "alpha", "c", "printed"),
    [(7, 0.75, 0.02, 3.2), (5, 0.65, 0.02, 2.4), (3, 0.71, 0.11, 2.0)],
)
def test_published_predictions_are_reproduced(
    gamma: int, alpha: float, c: float, printed: float
) -> None:
    # 2211.17192 prints alpha and c to two digits and the prediction to one: some alpha and c that
    # round to the printed ones must give a prediction that rounds to the printed one.
    low = speedup(alpha - 0.005, gamma, c + 0.005)
    high = speedup(alpha + 0.005, gamma, c - 0.005)
    assert low <= printed + 0.05
    assert high >= printed - 0.05
    assert high - low < 0.3  # the claim has teeth


@pytest.mark.parametrize("k", [0, 1, 7])
def test_alpha_zero_gives_one_token_and_alpha_one_gives_all(k: int) -> None:
    assert expected_tokens(0.0, k) == 1.0
    assert expected_tokens(1.0, k) == k + 1


def test_rejection_accepts_ten_ninths_of_two_tokens_where_block_accepts_eleven() -> None:
    assert expected_tokens(2 / 3, 2) - 1 == pytest.approx(10 / 9)


@given(st.floats(0, 0.99), st.integers(0, 40))
@settings(derandomize=True)
def test_expected_tokens_is_the_geometric_quotient(alpha: float, k: int) -> None:
    quotient = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert expected_tokens(alpha, k) == pytest.approx(quotient, rel=1e-12)


@given(st.floats(0, 1), st.integers(0, 20))
@settings(derandomize=True)
def test_equal_positions_are_the_independent_formula(alpha: float, k: int) -> None:
    assert expected_tokens_by_position([alpha] * k) == expected_tokens(alpha, k)


def test_positions_count_with_everything_before_them() -> None:
    assert expected_tokens_by_position([0.8, 0.5, 0.25]) == pytest.approx(1 + 0.8 + 0.4 + 0.1)
    assert expected_tokens_by_position([0.0, 1.0, 1.0]) == 1.0
    assert expected_tokens_by_position([]) == 1.0


def test_a_flat_pass_cost_makes_the_measured_form_the_simple_one() -> None:
    measured = measured_speedup(
        expected_tokens(0.75, 4), 4, pass_time=lambda rows: 7.0, draft_time=0.7
    )
    assert measured == pytest.approx(speedup(0.75, 4, 0.1))


def test_the_measured_form_charges_rows_drafting_and_overhead() -> None:
    times = {1: 10.0, 5: 14.0}
    gain = measured_speedup(3.0, 4, pass_time=times.__getitem__, draft_time=1.0, overhead=2.0)
    assert gain == pytest.approx(3.0 * 10.0 / (4 * 1.0 + 14.0 + 2.0))


def test_no_draft_is_no_gain() -> None:
    assert speedup(0.9, 0, 0.1) == 1.0
    assert measured_speedup(1.0, 0, pass_time=lambda rows: 3.0, draft_time=9.0) == 1.0


def test_nothing_is_drafted_where_nothing_pays() -> None:
    assert best_k(0.1, 0.2) == (0, 1.0, 1.0)
    assert best_k(0.0, 0.0).k == 0


def test_a_perfect_free_drafter_uses_all_it_may() -> None:
    assert best_k(1.0, 0.0, max_k=12) == (12, 13.0, 13.0)


def test_the_curve_starts_at_plain_decoding() -> None:
    points = curve(0.75, 0.1, 6)
    assert [point.k for point in points] == list(range(7))
    assert points[0] == (0, 1.0, 1.0)
    assert points[4].speedup == speedup(0.75, 4, 0.1)


@given(st.floats(0, 1), st.integers(1, 30))
@settings(derandomize=True)
def test_break_even_alpha_gains_nothing(c: float, k: int) -> None:
    alpha = break_even_alpha(c, k)
    assert alpha is not None
    assert speedup(alpha, k, c) == pytest.approx(1.0, rel=1e-9)


def test_one_drafted_token_breaks_even_at_its_price() -> None:
    assert break_even_alpha(0.3, 1) == pytest.approx(0.3)
    assert break_even_alpha(0.0, 5) == 0.0
    assert break_even_alpha(1.0, 5) == 1.0


def test_a_drafter_dearer_than_the_target_never_breaks_even() -> None:
    assert break_even_alpha(1.01, 3) is None


@given(st.floats(0, 1), st.integers(1, 30))
@settings(derandomize=True)
def test_break_even_c_gains_nothing(alpha: float, k: int) -> None:
    assert speedup(alpha, k, break_even_c(alpha, k)) == pytest.approx(1.0)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
def test_an_alpha_that_is_no_probability_is_refused(alpha: float) -> None:
    with pytest.raises(InvalidInput, match="alpha"):
        expected_tokens(alpha, 3)
    with pytest.raises(InvalidInput, match="alpha"):
        expected_tokens_by_position([0.5, alpha])


@pytest.mark.parametrize("c", [-0.1, math.inf, math.nan])
def test_a_cost_that_is_none_is_refused(c: float) -> None:
    with pytest.raises(InvalidInput, match="c must"):
        speedup(0.5, 3, c)
    with pytest.raises(InvalidInput, match="c must"):
        break_even_alpha(c, 3)


def test_impossible_measurements_are_refused() -> None:
    with pytest.raises(InvalidInput, match="k must"):
        expected_tokens(0.5, -1)
    with pytest.raises(InvalidInput, match="k must"):
        break_even_alpha(0.1, 0)
    with pytest.raises(InvalidInput, match="k must"):
        break_even_c(0.1, 0)
    with pytest.raises(InvalidInput, match="tokens per cycle"):
        measured_speedup(6.5, 4, pass_time=lambda rows: 1.0, draft_time=0.1)
    with pytest.raises(InvalidInput, match="pass of 5 rows"):
        measured_speedup(2.0, 4, pass_time=lambda rows: 1.0 if rows == 1 else 0.0, draft_time=0.1)
