"""Plots as SVG text: readable axes, and nothing hidden."""

from __future__ import annotations

import math
import re

from slipstream.profiling.plots import Line, diagonal_plot, line_plot


def labels(svg: str) -> list[str]:
    return re.findall(r'text-anchor="middle">([^<]*)</text>', svg)


def test_an_axis_of_whole_numbers_has_whole_ticks() -> None:
    svg = line_plot([Line(label="a", xs=(1, 2, 3), ys=(0.1, 0.2, 0.3))], "position", "alpha")
    assert labels(svg)[:3] == ["1", "2", "3"]
    points = diagonal_plot([("a", 1.1, 1.2)], "predicted", "measured")
    assert any("." in label for label in labels(points))


def test_the_axis_reaches_what_was_asked_for() -> None:
    svg = line_plot([Line(label="a", xs=(1, 2), ys=(0.0, 0.0))], "k", "alpha", reach=1.0)
    assert 'text-anchor="end">1</text>' in svg


def test_lines_that_coincide_are_all_seen() -> None:
    lines = [Line(label=name, xs=(1, 2), ys=(0.5, 0.6)) for name in "abc"]
    widths = [int(w) for w in re.findall(r'stroke-width="(\d)"', line_plot(lines, "k", "y"))]
    assert widths == sorted(set(widths), reverse=True)


def test_a_title_and_a_label_are_text_and_not_markup() -> None:
    line = Line(label="<b>", xs=(1, 2), ys=(1.0, math.nan), lows=(0.5, math.nan), highs=(2.0,))
    svg = line_plot([line], "k", '"y"', title="<i>")
    assert "<b>" not in svg and "<h3>&lt;i&gt;</h3>" in svg
    assert 'aria-label="&lt;i&gt;: &quot;y&quot; over k"' in svg and "nan" not in svg
