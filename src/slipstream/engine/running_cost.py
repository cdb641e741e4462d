"""What a cycle costs by its size, learnt from the clock while it runs.

A :class:`RunningCost` starts from a shape, a guess or a measured table, that says how much dearer
size n is than the smallest. Two things are learnt: the machine's present speed, quickly, because
another job on it moves all prices together; and the true shape, slowly: a line against the
assumed one (weighted least squares) and a correction for each size that was seen often.

Knows neither models nor drafters. Promises: a few float operations a cycle, and one stalled cycle
doesn't move a price far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_SPEED_RATE: Final = 0.1
"""Weight of the newest cycle in the machine's present speed."""

_FADE: Final = 0.998
"""How an observation of the shape fades with every later one."""

_GUESSED, _MEASURED = 2.0, 40.0
"""How many cycles the line counts as against the record of a size."""

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
        # Variance of a cycle (10 % of noise) over that of the slope (20 %, or 100 % if guessed).
        self._prior = 0.25 if measured else 0.01
        self._confidence = _MEASURED if measured else _GUESSED
        self._start(self._origin if measured else 1.0)
        self.known = measured

    def _start(self, level: float) -> None:
        """Forget all observations; a price is speed x (level + slope x), drawn to the records."""
        self._speed = 1.0
        self._level = self._slope = level
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._seen = 0
        # Size -> weight and weighted seconds, both as of the last time it was seen, and when.
        self._records: dict[int, tuple[float, float, int]] = {}

    def observe(self, size: int, seconds: float) -> None:
        """A cycle of this size took this long."""
        seconds = max(seconds, _TICK)
        x = self._shape(size) / self._origin - 1
        price = self.price(size)
        if not self.known or seconds < price / _STALL:
            # Nothing makes a cycle faster than it is: earlier prices were learnt from stalls.
            self._start(seconds / (1 + x))
            self.known = True
            price = seconds
        seconds = min(seconds, price * _STALL)
        y = seconds / self._speed
        self._fit(x, y)
        self._seen += 1
        weight, total, when = self._records.get(size, (0.0, 0.0, 0))
        faded = _FADE ** (self._seen - when)
        self._records[size] = (weight * faded + 1, total * faded + y, self._seen)
        # In the long run the line takes over what the speed has found, so the two don't drift.
        self._speed = (self._speed * (seconds / price) ** _SPEED_RATE) ** _FADE

    def price(self, size: int) -> float:
        """Seconds that a cycle of this size is expected to take.

        Before anything is known, in units of the smallest size.
        """
        line = self._line(self._shape(size) / self._origin - 1)
        if size in self._records:
            weight, total, when = self._records[size]
            confidence = self._confidence / _FADE ** (self._seen - when)
            line = (total + confidence * line) / (weight + confidence)
        return self._speed * line

    def _line(self, x: float) -> float:
        return max(self._level + self._slope * x, _TICK)

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
        level = mean_y / (1 + mean_x)  # if the slope is as assumed
        self._slope = max((together + self._prior * level) / (spread + self._prior), 0.0)
        self._level = max(mean_y - self._slope * mean_x, 0.1 * level)
