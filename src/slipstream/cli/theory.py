"""``slipstream theory``: what an acceptance and a drafter's price are worth, and the best k.

The formulas are :mod:`slipstream.theory.speedup`; here they are only shown.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from slipstream.config import MAX_DEPTH
from slipstream.theory.speedup import (
    Prediction,
    best_k,
    break_even_alpha,
    break_even_c,
    curve,
    expected_tokens,
    speedup,
)

_BAR = 44  # columns of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉"


@click.command()
@click.option(
    "--alpha", type=float, required=True, help="Acceptance of a drafted token, in [0, 1]."
)
@click.option(
    "--c", type=float, required=True, help="Time of a drafter step over the time of a target pass."
)
@click.option(
    "--k",
    type=click.IntRange(1, MAX_DEPTH),
    default=4,
    show_default=True,
    help="Drafted tokens per cycle.",
)
@click.option(
    "--max-k",
    type=click.IntRange(1, MAX_DEPTH),
    default=20,
    show_default=True,
    help="Draw the curve up to this k.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the drawing.")
def theory(alpha: float, c: float, k: int, max_k: int, as_json: bool) -> None:
    """Predict tokens per cycle and speedup from acceptance and cost.

    Every cycle drafts k tokens, of which each is accepted with probability ALPHA until the first
    rejection; one more comes from the target. The prediction assumes that verifying k + 1 tokens
    costs what decoding one costs.
    """
    at_k = Prediction(k, expected_tokens(alpha, k), speedup(alpha, k, c))
    best = best_k(alpha, c, MAX_DEPTH)
    values: dict[str, Any] = {
        "alpha": alpha,
        "c": c,
        **at_k._asdict(),
        "best": best._asdict(),
        "break_even_alpha": break_even_alpha(c, k),
        "break_even_c": break_even_c(alpha, k),
        "curve": [point._asdict() for point in curve(alpha, c, max_k)],
    }
    if as_json:
        click.echo(json.dumps(values))
        return
    click.echo(f"alpha = {alpha:g}, c = {c:g}, k = {k}\n")
    click.echo(f"  tokens per cycle   {at_k.tokens:.2f}")
    click.echo(f"  speedup            {at_k.speedup:.2f}×")
    click.echo(f"  best k             {best.k} at {best.speedup:.2f}×")
    needed = values["break_even_alpha"]
    click.echo(
        "  break-even alpha   "
        + (f"{needed:.3f}" if needed is not None else "none: a draft costs more than the target")
        + f" at c = {c:g}"
    )
    click.echo(f"  break-even c       {values['break_even_c']:.3f} at alpha = {alpha:g}\n")
    for line in draw_curve(curve(alpha, c, max_k), best, fancy=sys.stdout.isatty()):
        click.echo(line)


def draw_curve(points: list[Prediction], best: Prediction, *, fancy: bool) -> list[str]:
    """The curve as lines of a bar chart; ``┊`` marks plain decoding.

    Args:
        points: what to draw, from k = 0 on.
        best: marked, if it is among them.
        fancy: colours and eighths of a column; otherwise plain ASCII.
    """
    top = max(point.speedup for point in points)
    mark = int(_BAR / top)
    lines = ["   k  tokens  speedup"]
    for point in points:
        length = point.speedup / top * _BAR
        whole = int(length)
        if fancy:
            bar = "█" * whole + _EIGHTHS[int((length - whole) * 8)].strip()
        else:
            bar = "#" * round(length)
        if len(bar) < mark:
            bar = bar.ljust(mark) + ("┊" if fancy else "|")
        line = f"  {point.k:>2}  {point.tokens:>6.2f}  {point.speedup:>6.2f}×  {bar}"
        if point.k == best.k:
            line += " <- best"
            line = click.style(line, fg="green", bold=True) if fancy else line
        elif fancy and point.speedup < 1:
            line = click.style(line, fg="red")
        lines.append(line)
    return lines
