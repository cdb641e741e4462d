"""Sampling in the core equals sampling in numpy, on every instruction set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from slipstream import kernels
from slipstream.config import SamplingParams
from slipstream.errors import NumericalError
from slipstream.kernels import sampling as compiled
from slipstream.sampling import comparison
from slipstream.sampling.noise import Noise
from slipstream.sampling.processors import draw, process_logits
from slipstream.sampling.race import race

SIZES = (1024, 1025, 2063, 4999)
"""Multiples of 64, of 16, and of neither."""

FILTERS = [
    {"temperature": t, "top_k": k, "top_p": p, "min_p": m}
    for t, k, p, m in itertools.product(
        (0.8, 1.3), (0, 1, 40, 900), (1.0, 0.999, 0.9, 0.3, 1e-9), (0.0, 0.05, 1.0)
    )
]


def logits(seed: int, size: int = 4999) -> np.ndarray:
    """Flat or peaked; every third mostly masked, every fourth full of ties."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(size) * rng.choice([0.1, 1.0, 4.0])).astype(np.float32)
    if seed % 3 == 0:
        x[rng.integers(0, size, size)] = -np.inf
    if seed % 4 == 0:
        x = np.round(x)
    return x


def softmax(seed: int, size: int = 4999) -> np.ndarray:
    weights = np.exp(logits(seed, size) - np.float32(1.0))
    return weights / weights.sum()


@pytest.fixture(params=kernels.isas())
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each instruction set in turn."""
    monkeypatch.setattr(compiled, "_isa", lambda: request.param)
    return str(request.param)


@pytest.fixture
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Calls a function without its shortcut through the core."""

    def call(function: Callable, *args: object) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "fits", lambda *_, **__: False)
            return function(*args)

    return call


@pytest.mark.usefixtures("isa")
def test_the_best_token_is_the_first_of_the_highest() -> None:
    for seed in range(24):
        row = logits(seed, SIZES[seed % 4])
        assert compiled.best(row) == (int(row.argmax()), float(row.max()))
    row[5] = np.nan
    token, best = compiled.best(row)
    assert token == 0
    assert math.isnan(best)


@pytest.mark.usefixtures("isa")
def test_drawing_at_once_is_a_distribution_and_its_race() -> None:
    for seed in range(24):
        row, stream = logits(seed, SIZES[seed % 4]), Noise(seed).cycle(seed).pick(seed % 3)
        params = SamplingParams(**FILTERS[seed % len(FILTERS)])
        probs, token = draw(row, params, [], [], stream)
        assert (probs == process_logits(row, params, [], [])).all()
        assert token == race(probs, stream)[0]
    row[5] = np.inf
    with pytest.raises(NumericalError, match="infinity"):
        draw(row, params, [], [], stream)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_races_have_the_same_winners(dtype: type, in_numpy: Callable) -> None:
    for seed in range(24):
        stream = Noise(seed).cycle(seed).pick(seed % 3)
        field = softmax(seed, SIZES[seed % 4]).astype(dtype)
        for count in (1, 2, 7):
            assert race(field, stream, count) == in_numpy(race, field, stream, count)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [-140, -60, 60, 120])
def test_tiny_and_huge_weights_race_too(dtype: type, exponent: int, in_numpy: Callable) -> None:
    for seed in range(4):
        stream = Noise(seed).cycle(0).pick(0)
        field = np.ldexp(softmax(seed).astype(dtype), exponent)
        with np.errstate(over="ignore"):
            assert race(field, stream, 3) == in_numpy(race, field, stream, 3)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_filters_keep_the_same_tokens(filters: dict[str, float], in_numpy: Callable) -> None:
    params = SamplingParams(**filters)  # type: ignore[arg-type]
    for seed in range(13):
        x = logits(seed, SIZES[seed % 4])
        probs, expected = (
            process_logits(x, params, [], []),
            in_numpy(process_logits, x, params, [], []),
        )
        normal = expected > 1e-30
        np.testing.assert_array_equal(probs > 1e-30, normal)
        np.testing.assert_allclose(probs[normal], expected[normal], rtol=5e-6)


@pytest.mark.usefixtures("isa")
def test_a_softmax_is_exact_up_to_rounding() -> None:
    for seed in range(12):
        x = logits(seed, SIZES[seed % 4])
        probs = process_logits(x, SamplingParams(temperature=0.7), [], [])
        exact = np.exp((x.astype(np.float64) - float(x.max())) / np.float64(np.float32(0.7)))
        exact /= exact.sum()
        normal = exact > 1e-30
        # The quotient's own rounding grows with it: half a unit in the last place of up to 87.
        np.testing.assert_allclose(probs[normal], exact[normal], rtol=5e-6)
        near = x > x.max() - 0.7
        np.testing.assert_allclose(probs[near], exact[near], rtol=6e-7)
        assert not probs[x == -np.inf].any()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("places", [(0,), (63, 64), (4998,), (17, 4990)])
def test_greedy_takes_the_lowest_of_the_best(places: tuple[int, ...]) -> None:
    x = logits(1)
    x[list(places)] = 50.0
    probs = process_logits(x, SamplingParams(), [], [])
    assert np.flatnonzero(probs).tolist() == [places[0]]
    assert probs[places[0]] == 1.0


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("place", [0, 15, 16, 64, 4096, 4998])
@pytest.mark.parametrize("others", [1, 3], ids=["free", "masked"])
def test_a_broken_logit_is_an_error_wherever_it_is(
    temperature: float, place: int, others: int
) -> None:
    params = SamplingParams(temperature=temperature, top_k=5)
    for value, what in ((np.nan, "NaN"), (np.inf, "infinity")):
        x = logits(others)
        x[place] = value
        with pytest.raises(NumericalError, match=what):
            process_logits(x, params, [], [])
    with pytest.raises(NumericalError, match="masked"):
        process_logits(np.full(4999, -np.inf, np.float32), params, [], [])


def test_a_mask_hides_no_nan() -> None:
    x = logits(1)
    x[7] = np.nan
    with pytest.raises(NumericalError, match="NaN"):
        process_logits(x, SamplingParams(banned_token_ids=(7,)), [], [])


@pytest.mark.usefixtures("isa")
def test_a_row_has_the_same_bits_wherever_it_lies() -> None:
    rows = np.stack([logits(seed) for seed in range(5)])  # 4,999 floats: each begins elsewhere
    for params in (SamplingParams(temperature=0.8), SamplingParams(temperature=0.8, top_p=0.9)):
        for row in rows:
            moved = np.empty(len(row) + 3, np.float32)[3:]
            moved[:] = row
            expected = process_logits(row, params, [], [])
            np.testing.assert_array_equal(process_logits(moved, params, [], []), expected)


@pytest.mark.usefixtures("isa")
def test_overlap_and_excess_are_numpys(in_numpy: Callable) -> None:
    for seed in range(8):
        p, q = softmax(seed, SIZES[seed % 4]), softmax(seed + 1, SIZES[seed % 4])
        exact = np.minimum(p, q).sum(dtype=np.float64)
        assert comparison.overlap(p, q) == pytest.approx(exact, rel=1e-12)
        for scale in (1.0, 0.3):
            expected = in_numpy(comparison.excess, p, q, scale)
            np.testing.assert_array_equal(comparison.excess(p, q, scale), expected)


@pytest.mark.usefixtures("isa")
def test_nobody_wins_a_race_without_weights() -> None:
    assert race(np.zeros(4999, np.float32), Noise(1).cycle(1).pick(0), 3) == []


def test_only_what_fits_is_handed_over() -> None:
    assert compiled.fits(np.zeros(4999, np.float32))
    assert not compiled.fits(np.zeros(4999, np.float64))
    assert compiled.fits(np.zeros(4999, np.float64), double=True)
    for other in (np.zeros(10, np.float32), np.zeros((2, 4999), np.float32), [0.0] * 4999):
        assert not compiled.fits(other)
    assert not compiled.fits(np.zeros(9998, np.float32)[::2])


def test_wrong_calls_are_refused() -> None:
    native, isa = kernels.native(), kernels.isa()
    x, none = np.ones(5000, np.float32), np.ones(0, np.float32)
    calls: list[tuple[str, tuple[object, ...]]] = [
        ("race", (x.astype(np.int64), (1, 2), [1, 2, 3], 1)),
        ("race", (x, (1, 2), [1, 2], 1)),
        ("race", (x, (1, 2), [1, 2, 3], 0)),
        ("race", (none, (1, 2), [1, 2, 3], 1)),
        ("largest", (none,)),
        ("distribution", (none, 1.0, 0, 1.0, 0.0, none)),
        ("distribution", (x, 1.0, 0, 1.0, 0.0, np.empty(3, np.float32))),
        ("distribution", (x, math.nan, 0, 1.0, 0.0, np.empty_like(x))),
        ("distribution", (x, 1.0, -1, 1.0, 0.0, np.empty_like(x))),
        ("distribution", (x, 1.0, 0, math.nan, 0.0, np.empty_like(x))),
        ("distribution", (x, 1.0, 0, 1.0, math.nan, np.empty_like(x))),
        ("overlap", (x, x[:9])),
        ("excess", (x, x, 1.0, np.empty(9))),
    ]
    for name, arguments in calls:
        with pytest.raises(ValueError):
            getattr(native, name)(isa, *arguments)
