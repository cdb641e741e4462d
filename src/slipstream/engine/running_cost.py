"""What a cycle costs by its size, learnt from the clock while it runs.

A :class:`RunningCost` starts from a shape, a guess or a measured table, that says how much dearer
size n is than the smallest. Two things are learnt: the machine's present speed, quickly, because
another job on it moves all prices together; and the true shape, slowly: a line against the
assumed one (Bayesian least squares) and a correction for each size that was seen often. How much a
cycle's time may change of both depends on how noisy the clock has turned out to be.

Knows neither models nor drafters. Promises: a few float operations a cycle, and one stalled cycle
doesn't move a price far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import exp, log, sqrt
from typing import Final

_SPEED_RATE: Final = 0.1
"""Weight of the newest cycle in the machine's present speed, at 10 % of noise."""

_FADE: Final = 0.998
"""How an observation of the shape fades with every later one."""

_NOISE, _NOISE_WEIGHT, _NOISE_FADE = 0.1, 10.0, 0.98
"""Noise of a cycle's time before anything is known, the cycles that this counts as, and how an
observation of it fades."""

_GUESSED, _MEASURED = (1.0, 0.07), (0.2, 0.016)
"""How far the slope may be from the assumed one, and a size from the line, as fractions."""

_OUTLIER: Final = 2.5
"""So many times the usual noise is the most that a cycle can tell about the shape."""

_NEW: Final = 2.5
"""What a size costs that was seen less often than this is no outlier, however it surprises."""

_TICK: Final = 1e-7
"""No cycle is shorter, in seconds."""

_STALL: Final = 2.5
"""A cycle this many times dearer than its price counts as that and no more."""


class RunningCost:
    """Seconds by size, from a shape and from what was observed.

    Args:
        shape: relative price of a size, positive and not falling.
        smallest: the size that others are compared with.
        measured: whether the shape was measured, in seconds; otherwise it is a guess, which a few
            cycles overrule.
    """

    def __init__(
        self, shape: Callable[[int], float], *, smallest: int = 1, measured: bool = False
    ) -> None:
        self._shape = shape
        self._origin = shape(smallest)
        self._excess: dict[int, float] = {}  # size -> how much dearer it is assumed to be, from 0
        self._slope_spread, self._size_spread = _MEASURED if measured else _GUESSED
        self._start(self._origin if measured else 1.0)
        self.known = measured

    def _start(self, level: float) -> None:
        """Forget all observations; a price is speed x (level + slope x), drawn to the records."""
        self._speed = 1.0
        self._level = self._slope = level
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._variance = _NOISE**2
        self._seen = 0
        self._latest: deque[float] = deque(maxlen=5)
        # Size -> weight and weighted seconds, both as of the last time it was seen, and when.
        self._records: dict[int, tuple[float, float, int]] = {}

    def observe(self, size: int, seconds: float) -> None:
        """A cycle of this size took this long."""
        seconds = max(seconds, _TICK)
        x = self._excess.get(size)
        if x is None:
            x = self._dearer(size)
        price = self._price(size, x)
        if not self.known or seconds < price / _STALL:
            # Nothing makes a cycle faster than it is: earlier prices were learnt from stalls.
            self._start(seconds / (1 + x))
            self.known = True
            price = seconds
        seconds = min(seconds, price * _STALL)
        surprise = log(seconds / price)
        noise = sqrt(self._variance)
        count, total, when = self._records.get(size, (0.0, 0.0, 0))
        usual = surprise
        if count >= _NEW:
            usual = max(min(surprise, _OUTLIER * noise), -_OUTLIER * noise)
            weight = min(self._seen + _NOISE_WEIGHT, 1 / (1 - _NOISE_FADE))
            self._variance += (usual**2 - self._variance) / weight
            self._latest.append(surprise)
        y = price / self._speed * exp(usual)
        self._fit(x, y)
        self._seen += 1
        faded = _FADE ** (self._seen - when)
        self._records[size] = (count * faded + 1, total * faded + y, self._seen)
        change = _SPEED_RATE * usual
        if abs(surprise) > 2 * noise and len(self._latest) == 5:
            middle = sorted(self._latest)[2]
            if abs(middle) > 2 * noise:  # no outlier, but a change
                change = middle
                self._latest.clear()
        # In the long run the line takes over what the speed has found, so the two don't drift.
        self._speed = (self._speed * exp(change)) ** _FADE

    def price(self, size: int) -> float:
        """Seconds that a cycle of this size is expected to take.

        Before anything is known, in units of the smallest size.
        """
        return self._price(size, self._dearer(size))

    def extend(self, prices: list[float], size: int) -> None:
        """Append the prices of all sizes up to this one to a list by size; they never fall."""
        for n in range(len(prices), size + 1):
            x = self._excess.get(n)
            price = self._price(n, self._dearer(n) if x is None else x)
            prices.append(max(prices[-1], price))

    def _price(self, size: int, x: float) -> float:
        """The price of a size that is assumed to be x dearer than the smallest."""
        line = max(self._level + self._slope * x, _TICK)
        record = self._records.get(size)
        if record is not None:
            weight, total, when = record
            confidence = self._variance / self._size_spread**2 / _FADE ** (self._seen - when)
            line = (total + confidence * line) / (weight + confidence)
        return self._speed * line

    def _dearer(self, size: int) -> float:
        """How much more than the smallest size this one is assumed to cost, by that one's cost."""
        x = self._excess.get(size)
        if x is None:
            x = self._excess[size] = self._shape(size) / self._origin - 1
        return x

    def _fit(self, x: float, y: float) -> None:
        """Least squares of y on level and slope, with the prior that both are one."""
        self._n = self._n * _FADE + 1
        self._x = self._x * _FADE + x
        self._y = self._y * _FADE + y
        self._xx = self._xx * _FADE + x * x
        self._xy = self._xy * _FADE + x * y
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = max(self._xx - self._x * mean_x, 0.0)
        together = self._xy - self._x * mean_y
        prior = self._variance / self._slope_spread**2
        level = mean_y / (1 + mean_x)  # if the slope is as assumed
        self._slope = max((together + prior * level) / (spread + prior), 0.0)
        self._level = max(mean_y - self._slope * mean_x, 0.1 * level)
