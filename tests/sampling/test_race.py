from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from slipstream.sampling.noise import Noise, Stream
from slipstream.sampling.race import race
from tests.exactness.chi_square import fit


def brute_force(weights_V: np.ndarray, stream: Stream, count: int) -> list[int]:
    """Everybody runs; sorted by arrival, ties to the lowest id."""
    ids = np.flatnonzero(weights_V > 0)
    with np.errstate(over="ignore"):
        arrivals = stream.exponentials(ids) / weights_V[ids].astype(np.float64)
    return ids[np.argsort(arrivals, kind="stable")][:count].tolist()


weights = st.floats(0.0, 1.0, width=32) | st.sampled_from([0.0, 1e-44, 1e-38, 1e-20, 1e-9, 1.0])


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    npst.arrays(np.float32, st.integers(1, 200), elements=weights),
    st.integers(0, 2**64 - 1),
    st.integers(1, 6),
)
def test_the_race_of_some_ends_like_the_race_of_all(
    weights_V: np.ndarray, seed: int, count: int
) -> None:
    stream = Noise(seed).cycle(0).pick(0)
    expected = brute_force(weights_V, stream, count)
    assert race(weights_V, stream, count) == expected
    assert race(torch.from_numpy(weights_V.copy()), stream, count) == expected


@pytest.mark.parametrize("spread", [0.0, 2.0, 6.0, 20.0])
@pytest.mark.parametrize("count", [1, 4])
def test_the_same_on_a_large_vocabulary(spread: float, count: int) -> None:
    rng = np.random.default_rng(0)
    for seed in range(5):
        logits = spread * rng.standard_normal(30_000)
        weights_V = np.exp(logits - logits.max()).astype(np.float32)
        stream = Noise(seed).cycle(0).pick(0)
        assert race(weights_V, stream, count) == brute_force(weights_V, stream, count)


def test_a_factor_common_to_all_weights_changes_nothing() -> None:
    weights_V = np.random.default_rng(0).random(100)
    for seed in range(50):
        stream = Noise(seed).cycle(0).pick(0)
        assert race(weights_V, stream, 3) == race(weights_V * 2.0**-30, stream, 3)


def test_weight_zero_never_arrives() -> None:
    weights_V = np.array([0.0, 0.25, 0.0, 0.75], np.float32)
    stream = Noise(0).cycle(0).pick(0)
    assert sorted(race(weights_V, stream, 4)) == [1, 3]
    assert race(np.zeros(4, np.float32), stream) == []
    assert race(np.zeros(100, np.float32), stream) == []


@pytest.mark.parametrize("size", [4, 40])
def test_winners_are_samples_and_the_order_is_without_replacement(size: int) -> None:
    """The law of the first two, on a small field and on a pruned one."""
    probs_V = np.zeros(size)
    probs_V[:4] = [0.5, 0.25, 0.1875, 0.0625]
    first, second = {(): np.zeros(size)}, {}
    for seed in range(8000):
        a, b = race(probs_V, Noise(seed).cycle(0).pick(0), 2)
        first[()][a] += 1
        second.setdefault((a,), np.zeros(size))[b] += 1

    def left(context: tuple[int, ...]) -> np.ndarray:
        rest_V = probs_V.copy()
        rest_V[list(context)] = 0.0
        return rest_V / rest_V.sum()

    assert not fit(first, left).rejected
    assert not fit(second, left).rejected
