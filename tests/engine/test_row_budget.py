"""Rows of a pass go where they bring the most tokens."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import pytest

from slipstream.engine.acceptance_record import Reach
from slipstream.engine.row_budget import best_depth, share_rows

CHAIN = range(33)


def reaches(*alphas: float) -> list[Reach]:
    """Levels of a drafter that always drafts."""
    return [(1.0, accepted) for accepted in accumulate(alphas, mul)]


@pytest.mark.parametrize(
    ("alpha", "step", "depth"),
    [(0.5, 0.1, 2), (0.7, 0.1, 4), (0.75, 0.1, 5), (0.8, 0.1, 6), (0.75, 0.05, 7), (0.5, 0.2, 1)],
)
def test_alone_it_is_the_best_k_of_the_formula(alpha: float, step: float, depth: int) -> None:
    """E[tokens] / (1 + k c), 2211.17192."""
    levels = reaches(*[alpha] * 32)
    assert best_depth(levels, 32, CHAIN, lambda rows: 1.0, lambda k: k * step) == depth


def test_rows_that_are_free_are_filled() -> None:
    def tiles(rows: int) -> float:
        return 1 + 0.5 * ((rows - 1) // 8)

    assert best_depth(reaches(*[0.7] * 32), 32, CHAIN, tiles, lambda k: 0.0) == 7


def test_no_deeper_than_there_is_room() -> None:
    assert best_depth(reaches(*[0.9] * 32), 3, CHAIN, lambda rows: 1.0, lambda k: 0.0) == 3
    assert best_depth(reaches(*[0.9] * 32), 0, CHAIN, lambda rows: 1.0, lambda k: 0.0) == 0


@pytest.mark.parametrize("alphas", [(0.9, 0.6, 0.2), (0.3, 0.9, 0.95), (0.05,) * 5])
def test_a_batch_of_one_is_a_request_alone(alphas: tuple[float, ...]) -> None:
    def passes(rows: int) -> float:
        return 1 + 0.1 * (rows - 1)

    levels = reaches(*alphas)
    alone = best_depth(levels, 32, CHAIN, passes, lambda k: 0.02 * k)
    assert share_rows([levels], [32], [0], CHAIN, passes, lambda k: 0.02 * k) == [alone]


def test_a_level_that_is_worth_more_is_not_had_without_the_one_above() -> None:
    """0.4 then 0.99: the second level pays for the first."""
    depths = share_rows(
        [reaches(0.4, 0.99), reaches(0.35)],
        [32, 32],
        [0, 0],
        CHAIN,
        lambda rows: 1 + 0.15 * rows,
        lambda k: 0.0,
    )
    assert depths == [2, 1]


def test_a_pinned_depth_stays_and_its_rows_are_counted() -> None:
    def passes(rows: int) -> float:
        return 1 + 2.0 * max(rows - 7, 0)

    levels = reaches(*[0.7] * 8)
    assert share_rows([levels, levels], [32, 32], [5, 0], CHAIN, passes, lambda k: 0.0) == [5, 0]
    assert share_rows([levels], [32], [0], CHAIN, passes, lambda k: 0.0) == [6]
