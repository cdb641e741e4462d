"""Sampling in the core equals sampling in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slipstream import kernels
from slipstream.kernels import sampling as compiled
from slipstream.sampling import processors
from slipstream.sampling import race as reference
from slipstream.sampling.noise import Noise

V = 5000


def logits(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(V) * rng.choice([0.1, 1.0, 4.0])).astype(np.float32)
    if seed % 3 == 0:
        x[rng.integers(0, V, 4900)] = -np.inf
    if seed % 4 == 0:
        x = np.round(x)  # ties
    return x


def weights(seed: int) -> np.ndarray:
    return np.asarray(processors.weights(processors.temperature(logits(seed), 0.8)))


@pytest.fixture
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference functions without their shortcut through the core."""
    monkeypatch.setattr(compiled, "fits", lambda *_, **__: False)


@pytest.mark.usefixtures("in_numpy")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_races_have_the_same_winners(dtype: type) -> None:
    for seed in range(24):
        stream = Noise(seed).cycle(seed).pick(seed % 3)
        field = weights(seed).astype(dtype)
        for count in (1, 2, 7):
            expected = reference.race(field, stream, count)
            assert compiled.race(field, stream.key, stream.words, count) == expected


@pytest.mark.usefixtures("in_numpy")
def test_top_p_keeps_the_same_tokens() -> None:
    for seed in range(24):
        field = weights(seed)
        for mass in (1e-9, 0.3, 0.9, 0.95, 0.999):
            expected = processors.top_p(field, mass)
            np.testing.assert_array_equal(compiled.top_p(field, mass), expected)


@pytest.mark.parametrize("isa", kernels.isas())
def test_exponentials_are_numpys_up_to_rounding(isa: str) -> None:
    native = kernels.native()
    for seed in range(8):
        x = logits(seed)
        top = native.largest(isa, x)
        assert top == x.max()
        out = np.empty_like(x)
        native.exponentials(isa, x, top, 0.7, out)
        exact = np.exp((x.astype(np.float64) - float(top)) / np.float64(np.float32(0.7)))
        normal = exact > 1e-30
        np.testing.assert_allclose(out[normal], exact[normal], rtol=5e-6)
        assert (out[~normal] < 2e-30).all()
        assert not out[x == -np.inf].any()
        assert out[x.argmax()] == 1.0


@pytest.mark.parametrize("isa", kernels.isas())
@pytest.mark.parametrize("place", [0, 15, 16, 4096, V - 1])
def test_nan_is_never_the_largest_by_accident(isa: str, place: int) -> None:
    x = logits(1)
    x[place] = np.nan
    assert math.isnan(kernels.native().largest(isa, x))


def test_nobody_wins_a_race_without_weights() -> None:
    stream = Noise(1).cycle(1).pick(0)
    assert compiled.race(np.zeros(V, np.float32), stream.key, stream.words, 3) == []


def test_only_what_fits_is_handed_over() -> None:
    assert compiled.fits(np.zeros(V, np.float32))
    assert not compiled.fits(np.zeros(V, np.float64))
    assert compiled.fits(np.zeros(V, np.float64), double=True)
    for other in (np.zeros(10, np.float32), np.zeros((2, V), np.float32), [0.0] * V):
        assert not compiled.fits(other)
    assert not compiled.fits(np.zeros(2 * V, np.float32)[::2])


def test_wrong_calls_are_refused() -> None:
    native = kernels.native()
    x = np.ones(V, np.float32)
    with pytest.raises(ValueError):
        native.race(x.astype(np.int64), (1, 2), [1, 2, 3], 1)
    with pytest.raises(ValueError):
        native.race(x, (1, 2), [1, 2], 1)
    with pytest.raises(ValueError):
        native.race(x, (1, 2), [1, 2, 3], 0)
    with pytest.raises(ValueError):
        native.top_p(x, 0.5, np.empty(3, np.float32))
    with pytest.raises(ValueError):
        native.top_p(x, math.nan, np.empty_like(x))
