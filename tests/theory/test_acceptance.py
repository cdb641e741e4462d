"""alpha and its relatives: known values, identities, and agreement with simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.errors import InvalidInput
from slipstream.theory.acceptance import (
    alpha,
    coupled_acceptance,
    coupled_lower_bound,
    point_mass_acceptance,
    recursive_acceptance,
    total_variation,
)

P = (0.5, 0.3, 0.1, 0.1)
Q = (0.1, 0.2, 0.3, 0.4)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two distributions over 2 to 8 tokens, zeros included."""
    size = draw(st.integers(2, 8))
    weights = st.lists(st.integers(0, 20), min_size=size, max_size=size).filter(any)
    p, q = (np.array(draw(weights), float) for _ in range(2))
    return p / p.sum(), q / q.sum()


def coupled_by_definition(p: np.ndarray, q: np.ndarray) -> float:
    """The double sum as printed, term by term."""
    total = 0.0
    for p_t, q_t in zip(p, q, strict=True):
        if p_t > 0 and q_t > 0:
            total += 1 / sum(max(a / p_t, b / q_t) for a, b in zip(p, q, strict=True))
    return total


def test_alpha_of_the_worked_example_is_one_half() -> None:
    assert alpha(P, Q) == pytest.approx(0.5)


@given(pairs())
@settings(derandomize=True, deadline=None)
def test_alpha_is_one_minus_total_variation(pair: tuple[np.ndarray, np.ndarray]) -> None:
    assert alpha(*pair) == pytest.approx(1 - total_variation(*pair), abs=1e-12)


@given(pairs())
@settings(derandomize=True, deadline=None)
def test_coupled_acceptance_is_the_printed_double_sum(
    pair: tuple[np.ndarray, np.ndarray],
) -> None:
    assert coupled_acceptance(*pair) == pytest.approx(coupled_by_definition(*pair), abs=1e-12)


@given(pairs())
@settings(derandomize=True, deadline=None)
def test_coupled_acceptance_lies_between_its_bounds(pair: tuple[np.ndarray, np.ndarray]) -> None:
    accepted = coupled_acceptance(*pair)
    assert coupled_lower_bound(*pair) - 1e-12 <= accepted <= alpha(*pair) + 1e-12


def test_coupled_acceptance_is_how_often_two_gumbel_argmaxes_agree() -> None:
    rng = np.random.default_rng(0)
    p, q = np.array(P), np.array(Q)
    noise = rng.gumbel(size=(200_000, 4))
    agree = (np.log(p) + noise).argmax(1) == (np.log(q) + noise).argmax(1)
    assert agree.mean() == pytest.approx(coupled_acceptance(p, q), abs=0.006)  # 5 sigma


def test_coupling_costs_about_six_percent_of_alpha_on_softmax_pairs_as_measured() -> None:
    # The design measured .819 against .772 on random softmax pairs over 500 tokens; pairs drawn to
    # the same mean overlap must show the same price.
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(200, 500)) * 2
    other = logits + rng.normal(size=logits.shape) * 0.46
    p, q = (np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (logits, other))
    overlap = np.mean([alpha(a, b) for a, b in zip(p, q, strict=True)])
    coupled = np.mean([coupled_acceptance(a, b) for a, b in zip(p, q, strict=True)])
    assert overlap == pytest.approx(0.819, abs=0.01)
    assert coupled == pytest.approx(0.772, abs=0.012)


def test_equal_distributions_are_always_accepted() -> None:
    assert alpha(P, P) == coupled_acceptance(P, P) == pytest.approx(1.0)
    assert coupled_lower_bound(P, P) == 1.0


def test_disjoint_distributions_are_never_accepted() -> None:
    assert alpha((1, 0), (0, 1)) == coupled_acceptance((1, 0), (0, 1)) == 0.0
    assert recursive_acceptance((1, 0), (0, 1), 2) == 0.0


def test_a_point_mass_is_accepted_with_the_targets_probability_of_it() -> None:
    assert point_mass_acceptance(P, [1]) == pytest.approx(alpha(P, (0, 1, 0, 0)))
    assert point_mass_acceptance(P, [0, 2, 2]) == pytest.approx(0.6)
    assert point_mass_acceptance(P, []) == 0.0


@pytest.mark.parametrize(("children", "accepted"), [(1, 1 / 2), (2, 19 / 28), (3, 8191 / 10500)])
def test_recursive_rejection_accepts_the_published_fractions(
    children: int, accepted: float
) -> None:
    assert recursive_acceptance(P, Q, children) == pytest.approx(accepted, abs=1e-12)


@given(pairs())
@settings(derandomize=True, deadline=None, max_examples=50)
def test_another_child_never_hurts(pair: tuple[np.ndarray, np.ndarray]) -> None:
    one, two = (recursive_acceptance(*pair, children) for children in (1, 2))
    assert one - 1e-12 <= two <= 1 + 1e-12


@pytest.mark.parametrize(
    ("p", "q", "words"),
    [
        ((0.5, 0.4), (0.5, 0.5), "add up to 1"),
        ((1.5, -0.5), (0.5, 0.5), "probabilities >= 0"),
        ((float("nan"), 1.0), (0.5, 0.5), "finite"),
        ((1.0,), (0.5, 0.5), "one vocabulary"),
        ((), (), "vector"),
        (((0.5, 0.5),), (0.5, 0.5), "vector"),
    ],
)
def test_what_is_no_pair_of_distributions_is_refused(p: object, q: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        alpha(p, q)  # type: ignore[arg-type]


def test_impossible_questions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="children"):
        recursive_acceptance(P, Q, 0)
    with pytest.raises(InvalidInput, match="tokens"):
        point_mass_acceptance(P, [4])
