"""Small plots as SVG text: lines with bands, and points against the diagonal.

Knows numbers and labels, nothing of what they mean. Colours work on light and dark ground.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 40
COLOURS: Final = (
    "#2f7ed8",
    "#d8692f",
    "#3a9d5d",
    "#a04fc4",
    "#c4a12f",
    "#c43f5f",
    "#4fb3c4",
    "#888",
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line through points, with an interval around each where it is known.

    Args:
        label: for the legend.
        xs, ys: the points; NaN leaves one out.
        lows, highs: bounds of the band, NaN for none; empty for no band.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()


class _Axes:
    """Maps values to places and draws the frame."""

    def __init__(
        self, xs: Sequence[float], ys: Sequence[float], x_label: str, y_label: str, *, zero: bool
    ) -> None:
        finite_x = [x for x in xs if math.isfinite(x)] or [0.0, 1.0]
        finite_y = [y for y in ys if math.isfinite(y)] or [0.0, 1.0]
        self.x0, self.x1 = _widen(min(finite_x), max(finite_x))
        self.y0, self.y1 = _widen(0.0 if zero else min(finite_y), max(finite_y))
        self._labels = (x_label, y_label)
        self._whole = all(x == int(x) for x in finite_x)

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def frame(self) -> list[str]:
        parts = []
        for tick in _ticks(self.y0, self.y1):
            y = self.y(tick)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
        for tick in _ticks(self.x0, self.x1, whole=self._whole):
            x, y = self.x(tick), HEIGHT - BOTTOM + 16
            parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{tick:g}</text>')
        at = f'x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}"'
        parts.append(f'<text {at} text-anchor="middle">{escape(self._labels[0])}</text>')
        parts.append(
            f'<text transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
            f"{escape(self._labels[1])}</text>"
        )
        return parts


def line_plot(
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    title: str = "",
    mark: float | None = None,
    reach: float | None = None,
) -> str:
    """Lines with their bands, over a y axis that begins at 0.

    Args:
        title: above the plot.
        mark: a height to mark with a dashed line.
        reach: a height that the y axis reaches whatever the values are.
    """
    xs = [x for line in lines for x in line.xs]
    ys = [y for line in lines for y in (*line.ys, *line.highs, *line.lows)]
    ys += [y for y in (mark, reach) if y is not None]
    axes = _Axes(xs, ys, x_label, y_label, zero=True)
    parts = axes.frame()
    if mark is not None:
        y = axes.y(mark)
        parts.append(f'<path class="mark" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        parts += _band(axes, line, colour)
        points = [
            (axes.x(x), axes.y(y))
            for x, y in zip(line.xs, line.ys, strict=True)
            if math.isfinite(y)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        # Of a few lines that may coincide the lower ones are wider, so that each can be seen.
        width = 2 + 2 * (len(lines) - 1 - i if len(lines) <= 3 else 0)
        style = f'fill="none" stroke="{colour}" stroke-width="{width}"'
        parts.append(f'<polyline points="{path}" {style}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    spoken = f"{title}: {y_label} over {x_label}" if title else f"{y_label} over {x_label}"
    return _figure(parts, [line.label for line in lines], spoken, title)


def diagonal_plot(points: Sequence[tuple[str, float, float]], x_label: str, y_label: str) -> str:
    """Points (label, x, y) and the line on which x = y."""
    values = [v for _, x, y in points for v in (x, y)] + [1.0]
    axes = _Axes(values, values, x_label, y_label, zero=False)
    low, high = max(axes.x0, axes.y0), min(axes.x1, axes.y1)
    parts = axes.frame()
    parts.append(
        f'<path class="mark" d="M{axes.x(low):.1f} {axes.y(low):.1f}'
        f'L{axes.x(high):.1f} {axes.y(high):.1f}"/>'
    )
    for i, (_, x, y) in enumerate(points):
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="5" fill="{colour}"/>')
    return _figure(parts, [label for label, _, _ in points], f"{y_label} over {x_label}")


def _figure(parts: list[str], labels: Sequence[str], spoken: str, title: str = "") -> str:
    legend = "".join(
        f'<span><i style="background:{COLOURS[i % len(COLOURS)]}"></i>{escape(label)}</span>'
        for i, label in enumerate(labels)
    )
    name = f'role="img" aria-label="{escape(spoken)}"'
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {name}>{"".join(parts)}</svg>'
    head = f"<h3>{escape(title)}</h3>" if title else ""
    return f'<figure>{head}{svg}<figcaption class="legend">{legend}</figcaption></figure>'


def _band(axes: _Axes, line: Line, colour: str) -> list[str]:
    known = [
        (axes.x(x), axes.y(low), axes.y(high))
        for x, low, high in zip(line.xs, line.lows, line.highs, strict=False)
        if math.isfinite(low) and math.isfinite(high)
    ]
    if len(known) < 2:
        return []
    upper = [f"{x:.1f},{high:.1f}" for x, _, high in known]
    lower = [f"{x:.1f},{low:.1f}" for x, low, _ in reversed(known)]
    return [f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" opacity="0.15"/>']


def _widen(low: float, high: float) -> tuple[float, float]:
    if high <= low:
        return low - 0.5, low + 0.5
    margin = 0.05 * (high - low)
    return (low if low == 0 else low - margin), high + margin


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Round values inside a range, eight at most; only whole numbers if asked for."""
    raw = (high - low) / 8
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step)
    return [round(i * step, 10) for i in range(first, math.floor(high / step) + 1)]
