"""What a record learns from verdicts, and how soon it forgets."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.engine.acceptance_record import AcceptanceRecord
from slipstream.types import Verdict

DEPTH = 4


def verdict(rng: np.random.Generator, alpha: float) -> Verdict:
    """Coin flips on certain alphas: what greedy decoding reports."""
    flips = rng.random(DEPTH) < alpha
    accepted = DEPTH if flips.all() else int(flips.argmin())
    alphas = (1.0,) * accepted + (0.0,) * (accepted < DEPTH)
    return Verdict(tuple(range(accepted)), 0, "bonus" if flips.all() else "residual", alphas)


def learn(record: AcceptanceRecord, alpha: float, drafts: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(drafts):
        record.update(DEPTH, verdict(rng, alpha), DEPTH)


def alphas(record: AcceptanceRecord) -> list[float]:
    return [alpha for (_, _, alpha), _ in zip(record.chances(), range(DEPTH), strict=False)]


def test_a_pool_learns_each_depth_and_expects_it_of_the_next() -> None:
    pool = AcceptanceRecord(8, memory=300)
    learn(pool, 0.6, 400)
    assert alphas(pool) == pytest.approx([0.6] * DEPTH, abs=0.1)
    deeper = [alpha for _, _, alpha in pool.chances()][DEPTH:]
    assert deeper == pytest.approx([alphas(pool)[-1]] * 4)


def test_a_new_request_is_expected_to_be_like_the_pool() -> None:
    pool = AcceptanceRecord(8, memory=300)
    learn(pool, 0.6, 400)
    assert alphas(AcceptanceRecord(8, memory=60, pool=pool)) == pytest.approx(alphas(pool))


@pytest.mark.parametrize(("before", "after"), [(0.9, 0.1), (0.1, 0.9)])
def test_a_shift_is_followed_long_before_the_memory_is_over(before: float, after: float) -> None:
    pool = AcceptanceRecord(8, memory=300)
    learn(pool, before, 600)
    learn(pool, after, 50, seed=1)
    assert alphas(pool)[0] == pytest.approx(after, abs=0.25)


def test_where_nothing_shifts_luck_is_not_taken_for_it() -> None:
    record = AcceptanceRecord(8, memory=300)
    rng = np.random.default_rng(2)
    seen = []
    for _ in range(3000):
        record.update(DEPTH, verdict(rng, 0.7), DEPTH)
        seen.append(alphas(record)[0])
    assert np.std(seen[300:]) < 0.06


def test_a_draft_that_is_shorter_than_allowed_says_so() -> None:
    record = AcceptanceRecord(8, memory=300)
    for _ in range(200):
        record.update(2, Verdict((0, 1), 0, "bonus", (1.0, 1.0)), 6)
    reached = list(record.reach())
    assert [drafted for drafted, _ in reached[:2]] == pytest.approx([1.0, 1.0], abs=0.05)
    assert all(drafted < 0.1 for drafted, _ in reached[2:])


def test_coupled_flips_that_fall_short_of_alpha_scale_it() -> None:
    record = AcceptanceRecord(8, memory=300)
    for index in range(1500):
        hit = index % 2 == 0
        record.update(1, Verdict((0,) if hit else (), 0, "residual", (0.75,)), 1)
    assert record.scale == pytest.approx(0.5 / 0.75, abs=0.05)
    assert alphas(record)[0] == pytest.approx(0.5, abs=0.05)


def test_weights_do_not_overflow_in_a_long_life() -> None:
    record = AcceptanceRecord(2, memory=2)
    for _ in range(3000):
        record.update(1, Verdict((0,), 0, "bonus", (0.9,)), 1)
    assert alphas(record)[0] == pytest.approx(0.7, abs=0.25)
